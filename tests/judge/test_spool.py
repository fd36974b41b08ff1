"""The journal: arrays survive, decisions and bulk go together, and what is no longer needed goes."""

import sqlite3
from pathlib import Path

import msgspec
import pytest

from spade_actors.judge import effects, files, spool
from spade_actors.judge.heldout import HeldOutError, load_heldout, small_subset
from spade_actors.judge.samples import BadDelivery, ages, array, fetch
from spade_actors.judge.serving import generation, trajectory
from spade_protocols.codec import Buffer, pack_buffer, unpack_buffer
from spade_protocols.design import DeliverDesign
from spade_protocols.play import DeliverTrajectory, Turn
from spade_protocols.queues import PLAYS, SAMPLES
from tests.judge.world import World, rules


def deliver_play(name: str, **changes: object) -> tuple[DeliverTrajectory, list[bytes]]:
    """A play of five tokens, two of them sampled by version 4."""
    tokens, b0 = pack_buffer([1, 2, 3, 4, 5], "i4", 0)
    mask, b1 = pack_buffer([0, 0, 1, 1, 0], "u1", 1)
    logprobs, b2 = pack_buffer([0, 0, -0.5, -0.25, 0], "f4", 2)
    message = DeliverTrajectory(
        play=name, trial=name.split(".")[0], attempt=1, arm="plain", index=0, purpose="train", outcome="finished",
        ending="terminated", rewards=[1.0], terminated=True, turns=[Turn(observation="o", action="a", reward=1.0)],
        tokens=tokens, mask=mask, logprobs=logprobs, versions=[(4, 2, 3), (5, 3, 4)], temperature=1.0, agent="agent-1",
        seconds=0.5,
    )  # fmt: skip
    return msgspec.structs.replace(message, **changes), [b0, b1, b2]


def deliver_design(name: str) -> tuple[DeliverDesign, list[bytes]]:
    """A design of two prompt and three output tokens."""
    prompt, b0 = pack_buffer([7, 8], "i4", 0)
    output, b1 = pack_buffer([9, 10, 11], "i4", 1)
    logprobs, b2 = pack_buffer([-1, -2, -3], "f4", 2)
    message = DeliverDesign(
        design=name, group="g00000", skill="a", attempt=1, environment=f"env-{name}", prompt=prompt, output=output,
        logprobs=logprobs, versions=[(3, 0, 1), (2, 1, 3)], temperature=0.9, text="text",
    )  # fmt: skip
    return message, [b0, b1, b2]


def test_a_delivered_play_is_read_back_as_a_sample() -> None:
    world = World(rules())
    world.settle()
    world.admit("d000000")
    message, frames = deliver_play("d000000.0.p")
    bulk, outcome = trajectory(message, frames, 9)
    assert (outcome.trained, outcome.length, outcome.oldest, outcome.newest, outcome.version) == (2, 5, 4, 5, 4.5)
    assert world.machine.play_delivered("d000000", "d000000.0.p", outcome)
    spool.run(world.db, [spool.trajectory_statement(bulk)])
    for name in ("d000000.0.h", "d000000.1.p", "d000000.1.h"):
        world.play(name, 0.0)
    world.score()
    world.settle()
    samples, buffers = fetch(world.db, ["d000000.0.p", "nothing"])
    assert samples.missing == ["nothing"]
    sample = samples.samples[0]
    assert (sample.role, sample.advantage, sample.temperature, sample.turns) == ("agent", 0.5, 1.0, 1)
    assert list(unpack_buffer(sample.tokens, buffers)) == [1, 2, 3, 4, 5]
    assert list(unpack_buffer(sample.mask, buffers)) == [0, 0, 1, 1, 0]
    assert list(unpack_buffer(sample.logprobs, buffers)) == [0, 0, -0.5, -0.25, 0]
    assert sample.versions == [(4, 2, 3), (5, 3, 4)]
    # the episode is written: turns go; the sample is trained: arrays go
    spool.run(world.db, spool.forget_turns("d000000", ["d000000.0.p", "d000000.1.p"]))
    assert fetch(world.db, ["d000000.0.p"])[0].missing == []
    world.end(SAMPLES, "d000000.0.p", "completed", {"outcome": "trained"})
    world.settle()
    assert fetch(world.db, ["d000000.0.p"])[0].missing == ["d000000.0.p"]
    assert world.db.execute("SELECT state FROM samples WHERE id = 'd000000.0.p'").fetchone() == ("trained",)


def test_a_design_is_read_back_with_its_prompt_masked() -> None:
    world = World(rules())
    world.settle()
    message, frames = deliver_design("d000000")
    bulk, delivered = generation(message, frames, 9)
    assert (delivered.oldest, delivered.first, delivered.trained, delivered.length) == (2, 3, 3, 5)
    assert world.machine.design_delivered(delivered)
    spool.run(world.db, [spool.generation_statement(bulk)])
    world.propose("d000000")
    world.gate("d000000", False)
    world.admit("d000001")
    world.finish_trial("d000001", [1, 0], [1, 0])
    samples, buffers = fetch(world.db, ["d000000"])
    sample = samples.samples[0]
    assert sample.role == "designer"
    assert list(unpack_buffer(sample.tokens, buffers)) == [7, 8, 9, 10, 11]
    assert list(unpack_buffer(sample.mask, buffers)) == [0, 0, 1, 1, 1]
    assert list(unpack_buffer(sample.logprobs, buffers)) == [0, 0, -1, -2, -3]
    assert sample.versions == [(3, 2, 3), (2, 3, 5)]


def test_arrays_that_do_not_fit_are_refused() -> None:
    message, frames = deliver_play("d000000.0.p")
    replace = msgspec.structs.replace
    bad = [
        (replace(message, versions=[(4, 2, 9)]), "span"),
        (replace(message, versions=[(4, 2, 4), (5, 3, 4)]), "span"),
        (replace(message, mask=Buffer("u1", (4,), 1)), "buffer|frame"),
        (replace(message, mask=Buffer("i4", (5,), 0)), "i4"),
        (replace(message, logprobs=Buffer("f4", (5,), 7)), "buffer"),
        (replace(message, outcome="won"), "won"),
    ]
    for wrong, text in bad:
        with pytest.raises(BadDelivery, match=text):
            trajectory(wrong, frames, 0)
    with pytest.raises(BadDelivery, match="one dimension"):
        array(Buffer("i4", (5, 1), 0), frames, "i4")
    assert ages([], 5, 7) == (7, 7, 7, 7.0, 0)


def test_effects_survive_in_order_until_they_are_carried_out() -> None:
    db = sqlite3.connect(":memory:")
    db.executescript(spool.SCHEMA)
    some: list[effects.Effect] = [
        effects.CancelItems(queue=PLAYS, ids=["a"], reason="r"),
        effects.FetchHint(trial="t", environment="e"),
        effects.Announce(event="run.state", body={"state": "complete"}, id="x", retain=True),
    ]
    spool.run(db, spool.effect_statements(list(enumerate(some, 5)), []))
    spool.run(db, spool.effect_statements([], [6]))
    assert spool.load(db)[1] == [(5, some[0]), (7, some[2])]
    assert set(effects.LANES) == set(effects.AnyEffect.__args__)


def test_files_are_readable_and_whole(tmp_path: Path) -> None:
    what = effects.WriteDesign(
        design="d1", environment="e", state="invalid", reason="runtime: boom", skill="a", verdicts=[{"name": "parse"}]
    )
    files.write_design(tmp_path, what, "class XEnv: pass\n", "a rule", "")
    folder = tmp_path / "environments" / "d1"
    assert (folder / "env.py").read_text() == "class XEnv: pass\n"
    assert (folder / "hint.txt").read_text() == "a rule\n"
    assert msgspec.json.decode((folder / "scores.json").read_bytes())["reason"] == "runtime: boom"
    files.write_design(tmp_path, msgspec.structs.replace(what, design="d2"), None, "", "no code \ud800")
    assert sorted(p.name for p in (tmp_path / "environments" / "d2").iterdir()) == [
        "generation.txt", "scores.json", "verdicts.json",
    ]  # fmt: skip

    world = World(rules())
    world.settle()
    world.admit("d000000")
    trial = world.machine.trials["d000000"]
    turns = {"d000000.0.p": ([Turn(observation="o", action="a", reward=1.0)], "[[4, 2, 3]]", "agent-1", 0.5)}
    files.write_episodes(tmp_path, trial, {"d000000.0.p": 1.0}, turns)
    lines = [msgspec.json.decode(x) for x in (tmp_path / "episodes" / "d000000.jsonl").read_text().splitlines()]
    assert len(lines) == 4
    told = next(line for line in lines if line["play"] == "d000000.0.p")
    assert (told["return"], told["versions"], told["turns"][0]["action"]) == (1.0, [[4, 2, 3]], "a")


def test_the_heldout_file(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    entries = [{"id": f"e{i}", "source": "s", "hint": "h", "family": f"f{i % 3}", "split": "heldout"} for i in range(9)]
    path.write_bytes(b"\n".join(msgspec.json.encode(e) for e in entries))
    loaded = load_heldout(str(path))
    assert [e.id for e in loaded] == [f"e{i}" for i in range(9)]
    assert sorted(e.family for e in small_subset(loaded, 3)) == ["f0", "f1", "f2"]
    assert small_subset(loaded, 3) == small_subset(list(reversed(loaded)), 3)
    path.write_text('{"id": "x"}')
    with pytest.raises(HeldOutError, match="line 1"):
        load_heldout(str(path))
    with pytest.raises(HeldOutError, match="No such file"):
        load_heldout(str(tmp_path / "nothing"))
