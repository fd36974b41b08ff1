"""The summary's keys and numbers, from a record alone."""

import json
from pathlib import Path

from books import journal, spool

from spade_actors.record.folder import RunFolder
from spade_actors.record.journal import Journal, JournalEvent
from spade_actors.record.summary import compute, in_words, surviving_steps, wall_seconds, write_summary

KEYS = [
    "steps", "weight_version", "wall_s", "episodes", "environments", "samples", "valid_share", "in_band", "mean_return",
    "regret", "heldout", "tokens_per_s", "env_steps_per_s", "restarts", "exit",
]  # fmt: skip


def test_every_key_and_number() -> None:
    book = journal()
    summary = compute(book, spool(book), "complete")
    wall = len(book.events)
    assert list(summary) == KEYS
    assert summary == {
        "steps": 1,
        "weight_version": 1,
        "wall_s": wall,
        "episodes": {"finished": 5, "failed": 1, "cancelled": 3},
        "environments": {
            "proposed": 3, "admitted": 2, "rejected": 1, "not_proposed": 1, "reasons": {"parse": 1, "no_code": 1},
        },
        "samples": {"trained": 2, "stale": 0},
        "valid_share": {"first": 0.5, "last": 0.5},
        "in_band": {"first": 0.3, "last": 0.3},
        "mean_return": 0.5,
        "regret": 0.25,
        "heldout": {
            "first": {"version": 0, "pinned": True, "heldout": 0.2, "unseen": 0.1},
            "last": None,
            "per_version": {"0": {"heldout": 0.2, "unseen": 0.1}},
        },
        "tokens_per_s": round(480 / wall, 1),
        "env_steps_per_s": round(30 / wall, 1),
        "restarts": {"agent-1": 1},
        "exit": "complete",
    }  # fmt: skip
    assert any("2 admitted" in line for line in in_words(summary))


def test_a_run_that_never_began(tmp_path: Path) -> None:
    summary = write_summary(RunFolder(tmp_path), "failed", "no jail")
    assert list(summary) == KEYS
    assert summary["exit"] == "failed: no jail"
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert list(in_words(summary))


def events(*told: tuple[str, float, dict[str, object]]) -> Journal:
    book = Journal()
    for seq, (type_, at, body) in enumerate(told, 1):
        book.add(JournalEvent(seq, type_, at, body))
    return book


def test_lost_updates_do_not_count() -> None:
    steps = [("learner.stepped", 0.0, {"step": step}) for step in (1, 2, 3)]
    book = events(
        ("learner.started", 0.0, {"step": 0}),
        *steps,
        ("learner.started", 0.0, {"step": 1}),
        ("learner.stepped", 0.0, {"step": 2}),
    )
    assert surviving_steps(book) == {1: 2, 2: 6}


def test_wall_time_is_the_sum_over_sessions() -> None:
    def start(at: float) -> dict[str, object]:
        return {"name": "session.started", "values": {"started": at}}

    book = events(
        ("peer.up", 101.0, {}), ("log.fact", 102.0, start(100.0)), ("peer.up", 110.0, {}),
        ("peer.up", 501.0, {}), ("log.fact", 502.0, start(500.0)), ("peer.up", 525.0, {}),
    )  # fmt: skip
    assert wall_seconds(book) == 35.0


def test_first_and_last_windows_are_apart() -> None:
    told: list[tuple[str, float, dict[str, object]]] = [("learner.started", 0.0, {"step": 0})]
    for step in range(1, 31):
        told.append(
            (
                "item.ended",
                0.0,
                {"queue": "proposals", "id": f"d{step}", "state": "completed", "result": {"admitted": step > 15}},
            )
        )
        scores = {"in_band": step / 100, "mean_return": step / 10, "regret": 0.0}
        told.append(("trial.scored", 0.0, {"trial": f"d{step}", "state": "scored", "scores": scores}))
        told.append(("learner.stepped", 0.0, {"step": step}))
    summary = compute(events(*told), None, "complete")
    assert summary["valid_share"] == {"first": 0.0, "last": 1.0}
    assert summary["in_band"] == {"first": 0.03, "last": 0.28}
    assert summary["mean_return"] == 2.8
