"""Reading environments and episodes of a run folder: the same plain files anybody can open without this code.

`environments/ID/` holds `env.py`, `hint.txt`, `verdicts.json`, `scores.json`; `episodes/TRIAL.jsonl` and `evaluations/*.jsonl` hold a
play per line.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spade_actors.record.folder import FolderError, RunFolder

TEXTS = {"source": "env.py", "hint": "hint.txt", "generation": "generation.txt"}
JSONS = {"verdicts": "verdicts.json", "scores": "scores.json"}


def environment(folder: RunFolder, wanted: str) -> dict[str, Any] | None:
    """Everything about one environment by its design id (or the one id that starts so), or None.

    Raises:
        FolderError: several ids start so.
    """
    found = _one(wanted, sorted(path.name for path in folder.environments.glob("*") if path.is_dir()))
    if found is None:
        return None
    place = folder.environments / found
    read: dict[str, Any] = {"id": found, "folder": str(place)}
    for key, name in TEXTS.items():
        if (place / name).is_file():
            read[key] = (place / name).read_text(encoding="utf-8", errors="replace")
    for key, name in JSONS.items():
        if (place / name).is_file():
            read[key] = json.loads((place / name).read_text(encoding="utf-8"))
    read["episodes"] = [play.get("play", "") for play in _lines(folder.episodes / f"{found}.jsonl")]
    return read


def episode(folder: RunFolder, wanted: str) -> dict[str, Any] | None:
    """One play's transcript by its id, from training or a held-out evaluation, or None."""
    owner = wanted.split(".", 1)[0]
    for path in (folder.episodes / f"{owner}.jsonl", folder.evaluations / f"{owner}.jsonl"):
        for play in _lines(path):
            if play.get("play") == wanted:
                return play
    return None


def _one(wanted: str, names: list[str]) -> str | None:
    if wanted in names:
        return wanted
    starting = [name for name in names if name.startswith(wanted)]
    if len(starting) > 1:
        shown = ", ".join(starting[:5]) + (", ..." if len(starting) > 5 else "")
        raise FolderError(f"{wanted}: {len(starting)} environments start so: {shown}")
    return starting[0] if starting else None


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.endswith("\n"):  # a line without its end is still being written
                yield json.loads(line)
