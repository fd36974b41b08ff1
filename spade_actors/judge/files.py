"""The readable record: environments, episodes and held-out evaluations as files anybody can open.

Always holds: a file is there whole or not at all, and writing it again gives the same file.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from spade_actors.judge.effects import WriteDesign
from spade_actors.judge.evaluation import Evaluation, scores
from spade_actors.judge.trials import Trial
from spade_protocols.play import Turn

Turns = Mapping[str, tuple[list[Turn], str, str, float]]
"""play -> turns, version spans as JSON, agent, seconds"""


def write_design(run_dir: Path, what: WriteDesign, source: str | None, hint: str, generation: str) -> None:
    """`environments/<design>/`: env.py and hint.txt, or generation.txt where no code was found; verdicts.json, scores.json."""
    folder = run_dir / "environments" / what.design
    folder.mkdir(parents=True, exist_ok=True)
    if source is None:
        _write(folder / "generation.txt", generation)
    else:
        _write(folder / "env.py", source)
        _write(folder / "hint.txt", hint + "\n")
    _write(folder / "verdicts.json", _pretty(what.verdicts))
    about = {"design": what.design, "environment": what.environment, "skill": what.skill}
    about |= {"state": what.state, "reason": what.reason}
    _write(folder / "scores.json", _pretty({**about, "scores": what.scores}))


def write_episodes(run_dir: Path, trial: Trial, returns: Mapping[str, float], turns: Turns) -> None:
    """`episodes/<trial>.jsonl`, one line per play in pair order, plays without an episode too."""
    lines = []
    for play in trial.plays.values():
        told, versions, agent, seconds = turns.get(play.id, ([], "[]", "", 0.0))
        lines.append(
            {
                "play": play.id,
                "arm": play.arm,
                "index": play.index,
                "seed": play.seed,
                "outcome": play.state,
                "ending": play.ending,
                "return": returns.get(play.id),
                "versions": msgspec.Raw(versions.encode()),
                "agent": agent,
                "seconds": seconds,
                "turns": told,
            }
        )
    _write_lines(run_dir / "episodes" / f"{trial.id}.jsonl", lines)


def write_evaluation(run_dir: Path, evaluation: Evaluation, turns: Turns) -> None:
    """`evaluations/<evaluation>.json` with the scores and `.jsonl` with one line per play."""
    lines = [
        {
            "play": play.id,
            "environment": play.heldout,
            "split": play.split,
            "family": play.family,
            "arm": play.arm,
            "seed": play.seed,
            "sampling_seed": play.sampling_seed,
            "outcome": play.state,
            "return": play.value if play.state == "finished" else None,
            "versions": [play.oldest, play.newest],
            "turns": turns[play.id][0] if play.id in turns else [],
        }
        for play in evaluation.plays.values()
    ]
    _write_lines(run_dir / "evaluations" / f"{evaluation.id}.jsonl", lines)
    about = {"version": evaluation.version, "label": evaluation.label, "pinned": evaluation.pinned}
    about |= {"plays": len(lines), "scores": scores(evaluation)}
    _write(run_dir / "evaluations" / f"{evaluation.id}.json", _pretty(about))


def _write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, "".join(msgspec.json.encode(line).decode() + "\n" for line in lines))


def _pretty(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(text, encoding="utf-8", errors="surrogatepass")
    os.replace(temporary, path)
