"""The judge and the memory as actors, with a real hub, real sockets and kill -9."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import trio

from spade_actors.config.schema import Config, JudgeConfig, LearnerConfig, MemoryConfig, RunConfig
from spade_actors.judge import make as make_judge
from spade_actors.memory import make as make_memory
from spade_actors.runtime.testing import context, running_hub
from spade_actors.scoring import score_trial
from spade_actors.scoring.process import make as make_scorer
from spade_protocols.play import PlayScore, ScoreTrial, TrialScore
from tests.judge.players import Players

CHILD = """
import sys, msgspec
from pathlib import Path
from spade_actors.config.schema import Config
from spade_actors.judge import make
from spade_actors.runtime.actor import ProcessSettings, run_actor
hub, run_dir, config = sys.argv[1:]
sys.exit(run_actor(make, ProcessSettings(
    role="judge", name="judge", hub=hub, run_dir=Path(run_dir), log=Path(run_dir) / "judge.log",
    config=msgspec.json.decode(config, type=Config), sockets=Path(hub.removeprefix("ipc://")).parent,
)))
"""


def configuration(tmp_path: Path, **judge: object) -> Config:
    """A run of four small updates with three held-out environments."""
    heldout = tmp_path / "heldout.jsonl"
    lines = [{"id": f"h{i}", "source": f"class H{i}Env:\n    n = {i}\n", "hint": "rule"} for i in range(3)]
    heldout.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines))
    base = {
        "pairs": 4, "min_pairs": 2, "design_group": 4, "skills": ["a", "b"], "eval_plays": 2, "eval_every": 2,
        "eval_small": 2, "heldout": str(heldout), "score_timeout_s": 5.0,
    }  # fmt: skip
    return Config(
        run=RunConfig(steps=4, seed=5),
        judge=JudgeConfig(**{**base, **judge}),  # type: ignore[arg-type]
        memory=MemoryConfig(exemplar_rate=1.0),
        learner=LearnerConfig(batch=24),
    )


def spawn(config: Config, hub: str, run_dir: Path) -> subprocess.Popen[bytes]:
    """The judge as a process of its own."""
    return subprocess.Popen([sys.executable, "-c", CHILD, hub, str(run_dir), msgspec.json.encode(config).decode()])


def accounts(run_dir: Path) -> tuple[Counter[str], sqlite3.Connection]:
    """How many plays, designs and samples the spool has in each state."""
    db = sqlite3.connect(run_dir / "judge.sqlite")
    count: Counter[str] = Counter()
    for table in ("designs", "plays", "samples", "trials", "eval_plays"):
        for state, number in db.execute(f"SELECT state, count(*) FROM {table} GROUP BY state"):
            count[f"{table}.{state}"] = number
    return count, db


def check_record(run_dir: Path, players: Players) -> None:
    """Everything adds up in the spool, and the readable record is there."""
    count, db = accounts(run_dir)
    assert not [k for k in ("plays.open", "designs.granted", "designs.proposed", "designs.trial") if count[k]], count
    assert not [k for k in ("eval_plays.open", "eval_plays.lost", "eval_plays.failed") if count[k]], count
    trained = {name for (name,) in db.execute("SELECT id FROM samples WHERE state = 'trained'")}
    assert trained == set(players.trained)
    assert len(players.trained) == len(trained)
    # samples of one group are there together; no design has two ends
    for trial, state in db.execute("SELECT id, state FROM trials"):
        assert state in ("scored", "failed", "withdrawn"), trial
        folder = run_dir / "environments" / trial
        assert (folder / "env.py").exists()
        about = msgspec.json.decode((folder / "scores.json").read_bytes())
        assert about["state"] == state
        if state == "scored":
            lines = (run_dir / "episodes" / f"{trial}.jsonl").read_text().splitlines()
            assert len(lines) == 8
    # trained and dropped arrays are gone, those of samples that still wait are there
    bulk = dict(db.execute("SELECT play, tokens IS NOT NULL FROM trajectories"))
    waiting = {n for (n,) in db.execute("SELECT id FROM samples WHERE state = 'released' AND role = 'agent'")}
    assert {name for name, there in bulk.items() if there} == waiting
    assert db.execute("SELECT count(*) FROM effects").fetchone() == (0,)
    names = {p.stem for p in (run_dir / "evaluations").glob("*.json")}
    assert {"e0f", "e4l"} <= names


@pytest.mark.parametrize("eta", [0, 1])
def test_a_run_to_its_end(tmp_path: Path, eta: int) -> None:
    config = configuration(tmp_path, eta=eta)
    players = Players(seed=eta, batch=24, steps=4, bound=0 if eta == 0 else 4)

    async def main() -> None:
        with trio.fail_after(25):
            async with (
                running_hub(tmp_path, config=config) as hub,
                context("memory", role="memory", hub=hub, run_dir=tmp_path, config=config) as memory,
                context("judge", role="judge", hub=hub, run_dir=tmp_path, config=config) as judge,
                context("world", role="world", hub=hub, run_dir=tmp_path, config=config) as ctx,
                trio.open_nursery() as nursery,
            ):
                memory.nursery.start_soon(make_memory(memory).run)
                nursery.start_soon(make_judge(judge).run)
                await players.play(ctx)

    trio.run(main)
    check_record(tmp_path, players)
    count, db = accounts(tmp_path)
    assert count["trials.scored"] > 10
    assert count["designs.invalid"] > 3
    if eta == 0:
        # design, trial and update of every trained sample at one version
        assert all(oldest == version for oldest, version in players.ages)
        first = {n: msgspec.json.decode(b)["oldest"] for n, b in db.execute("SELECT id, body FROM designs")}
        assert all(first[name.split(".")[0]] == players.trained_at[name] for name in players.trained)


@pytest.mark.parametrize("versions", [(0.5, 1.2), (1.6, 2.1)])
def test_a_judge_killed_twice_loses_and_doubles_nothing(tmp_path: Path, versions: tuple[float, float]) -> None:
    config = configuration(tmp_path)
    players = Players(seed=3, batch=24, steps=4)
    children: list[subprocess.Popen[bytes]] = []

    async def main() -> None:
        with trio.fail_after(40):
            async with (
                running_hub(tmp_path, config=config) as hub,
                context("memory", role="memory", hub=hub, run_dir=tmp_path, config=config) as memory,
                context("world", role="world", hub=hub, run_dir=tmp_path, config=config) as ctx,
            ):
                memory.nursery.start_soon(make_memory(memory).run)

                async def kill_twice() -> None:
                    for version in versions:
                        child = spawn(config, hub, tmp_path)
                        await players.reaches(version)
                        os.kill(child.pid, signal.SIGKILL)
                        child.wait()
                    children.append(spawn(config, hub, tmp_path))

                memory.nursery.start_soon(kill_twice)
                await players.play(ctx)
                assert await trio.to_thread.run_sync(children[0].wait) == 0

    trio.run(main)
    check_record(tmp_path, players)


def test_a_memory_that_dies_costs_time_only(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    players = Players(seed=4, batch=24, steps=4)

    async def main() -> None:
        over = trio.Event()
        with trio.fail_after(60):
            async with (
                running_hub(tmp_path, config=config) as hub,
                context("judge", role="judge", hub=hub, run_dir=tmp_path, config=config) as judge,
                context("world", role="world", hub=hub, run_dir=tmp_path, config=config) as ctx,
                trio.open_nursery() as memories,
            ):

                async def remember() -> None:
                    for until in (0.4, 1.3, None):
                        name = {"role": "memory", "hub": hub, "run_dir": tmp_path, "config": config, "leave": False}
                        async with context("memory", **name) as memory:  # type: ignore[arg-type]
                            memory.nursery.start_soon(make_memory(memory).run)
                            await (players.reaches(until) if until else over.wait())

                memories.start_soon(remember)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(make_judge(judge).run)
                    await players.play(ctx)
                over.set()

    trio.run(main)
    check_record(tmp_path, players)


def nonsense(trial: ScoreTrial) -> TrialScore:
    """A scorer with every fault, by trial."""
    good = score_trial(trial)
    number = int(trial.trial[1:]) % 4
    if number == 0:
        raise ValueError("no idea")
    if number == 1:
        return msgspec.structs.replace(good, designer_reward=float("nan"))
    if number == 2:
        return msgspec.structs.replace(good, returns={**good.returns, "nobody": 1.0})
    return good


@pytest.mark.parametrize("process", [False, True])
def test_a_scorer_of_somebody_else(tmp_path: Path, process: bool) -> None:
    """By import path and as a process; a faulty one costs its trials and nothing else."""
    path = f"{__name__}:nonsense"
    config = configuration(tmp_path, scorer="process" if process else path, served_scorer=path, eval_plays=1)
    players = Players(seed=9, batch=24, steps=2, die=0.0)

    async def main() -> None:
        with trio.fail_after(25):
            async with (
                running_hub(tmp_path, config=config) as hub,
                context("memory", role="memory", hub=hub, run_dir=tmp_path, config=config) as memory,
                context("judge", role="judge", hub=hub, run_dir=tmp_path, config=config) as judge,
                context("scorer-1", role="scorer", hub=hub, run_dir=tmp_path, config=config) as scorer,
                context("world", role="world", hub=hub, run_dir=tmp_path, config=config) as ctx,
                trio.open_nursery() as nursery,
            ):
                memory.nursery.start_soon(make_memory(memory).run)
                nursery.start_soon(make_judge(judge).run)
                if process:
                    scorer.nursery.start_soon(make_scorer(scorer).run)
                await players.play(ctx)

    trio.run(main)
    _, db = accounts(tmp_path)
    reasons = dict(db.execute("SELECT id, reason FROM trials WHERE state = 'withdrawn'"))
    faults = {int(n[1:]) % 4: r for n, r in reasons.items() if "scorer" in r}
    assert "no idea" in faults[0]
    assert "designer_reward" in faults[1]
    assert "nobody" in faults[2]
    assert 3 not in faults
    scored = [n for (n,) in db.execute("SELECT id FROM trials WHERE state = 'scored'")]
    assert scored
    assert all(int(n[1:]) % 4 == 3 for n in scored)


def test_play_scores_reach_the_scorer_by_wire_as_they_are() -> None:
    play = PlayScore(
        play="p", arm="plain", index=0, rewards=[1.0], terminated=True, ending="terminated", turns=1, version=0.5
    )
    again = msgspec.convert(msgspec.to_builtins(play), PlayScore)
    assert again == play
