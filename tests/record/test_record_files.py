"""The record as files with the hub's and the judge's own tables; broken by hand in SQL, it is caught with exit code 1."""

import json
import sqlite3
from pathlib import Path

import msgpack
import pytest
from books import journal, spool

from spade_actors.cli.app import app, run_command
from spade_actors.hub.journal import SCHEMA as HUB_SCHEMA
from spade_actors.judge.spool import SCHEMA as JUDGE_SCHEMA
from spade_actors.record.folder import RunFolder
from spade_actors.record.journal import Journal, read_journal
from spade_actors.record.spool import Spool, read_spool


def write_hub(path: Path, book: Journal) -> None:
    with sqlite3.connect(path) as db:
        db.executescript(HUB_SCHEMA)
        for event in book.events:
            row = (event.seq, event.type, "", "test", "", event.at, "", msgpack.packb(event.body))
            db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        for order, ((queue, name), item) in enumerate(book.items.items()):
            db.execute(
                "INSERT INTO items (ord, queue, id, body, grp, priority, attempts, put_at, state, result)"
                " VALUES (?, ?, ?, ?, '', 0, 3, 0, ?, ?)",
                (
                    order,
                    queue,
                    name,
                    msgpack.packb({}),
                    item.state,
                    msgpack.packb(item.result) if item.result else None,
                ),
            )
    db.close()


def write_judge(path: Path, rows: Spool) -> None:
    with sqlite3.connect(path) as db:
        db.executescript(JUDGE_SCHEMA)
        db.execute("INSERT INTO meta VALUES ('machine', ?)", (json.dumps({"seq": rows.seq}),))
        for name, design in rows.designs.items():
            body = json.dumps({"attempt": design.attempt, "trained": design.tokens})
            db.execute(
                "INSERT INTO designs (id, grp, state, reason, environment, reward, body) VALUES (?, ?, ?, ?, '', 0, ?)",
                (name, design.group, design.state, design.reason, body),
            )
        for name, state in rows.trials.items():
            db.execute("INSERT INTO trials (id, state, body) VALUES (?, ?, '{}')", (name, state))
        for name, play in rows.plays.items():
            db.execute("INSERT INTO plays (id, trial, arm, state, body) VALUES (?, ?, ?, ?, '{}')", (name, *play))
        for name in rows.trajectories:
            db.execute(
                "INSERT INTO trajectories (play, versions, turn_count) VALUES (?, '[[0, 2, 10], [1, 12, 20]]', 6)",
                (name,),
            )
        for name, sample in rows.samples.items():
            row = (name, sample.role, sample.trial, sample.group, sample.state)
            db.execute("INSERT INTO samples (id, role, trial, grp, state) VALUES (?, ?, ?, ?, ?)", row)
        for name, state in rows.evaluations.items():
            db.execute("INSERT INTO evaluations (id, version, label, state) VALUES (?, 0, 'first', ?)", (name, state))
        for name, (evaluation, state) in rows.eval_plays.items():
            db.execute(
                "INSERT INTO eval_plays (id, evaluation, state, body) VALUES (?, ?, ?, '{}')", (name, evaluation, state)
            )
    db.close()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    found = RunFolder(tmp_path)
    found.config_file.touch()
    book = journal()
    rows = spool(book)
    write_hub(found.hub_journal, book)
    write_judge(found.judge_spool, rows)
    for name, row in rows.designs.items():
        (found.environments / name).mkdir(parents=True)
        (found.environments / name / "scores.json").write_text(json.dumps({"state": rows.trials.get(name, row.state)}))
    for owner, path in {"d000000": found.episodes, "d000001": found.episodes, "e0f": found.evaluations}.items():
        path.mkdir(exist_ok=True)
        plays = {name: row.state for name, row in rows.plays.items() if row.trial == owner}
        plays |= {name: state for name, (evaluation, state) in rows.eval_plays.items() if evaluation == owner}
        (path / f"{owner}.jsonl").write_text(
            "".join(json.dumps({"play": n, "outcome": s}) + "\n" for n, s in plays.items())
        )
    return found


def test_what_is_read_is_what_was_written(folder: RunFolder) -> None:
    book, rows = read_journal(folder.hub_journal), read_spool(folder.judge_spool)
    assert book == journal()
    expected = spool(journal())
    assert rows is not None
    assert rows.env_steps == 6 * len(expected.trajectories)
    assert rows.play_tokens == 16 * len(expected.trajectories)
    expected.env_steps, expected.play_tokens = rows.env_steps, rows.play_tokens
    assert rows == expected


BREAKS = {
    "a sample is gone from the queue": ("journal", "DELETE FROM items WHERE queue = 'samples' AND id = 'd000002'"),
    "an event is gone": (
        "journal",
        "DELETE FROM events WHERE seq = (SELECT max(seq) FROM events WHERE type = 'item.ended')",
    ),
    "a play is resurrected": (
        "journal",
        "UPDATE items SET state = 'ready' WHERE id = 'd000000.0.p' AND queue = 'plays'",
    ),
    "a trajectory is gone": ("judge", "DELETE FROM trajectories WHERE play = 'd000000.1.p'"),
    "a sample is another's": ("judge", "UPDATE samples SET id = 'd000001.0.p' WHERE id = 'd000000.0.p'"),
    "a trial is forgotten": ("judge", "DELETE FROM trials WHERE id = 'd000000'"),
    "a reward is invented": ("judge", "UPDATE designs SET state = 'scored' WHERE id = 'd000002'"),
}


@pytest.mark.parametrize("what", BREAKS)
def test_the_auditor_catches_it(folder: RunFolder, capsys: pytest.CaptureFixture[str], what: str) -> None:
    assert run_command(app, ["audit-record", str(folder.path)]) == 0
    assert "no contradiction" in capsys.readouterr().out
    where, sql = BREAKS[what]
    with sqlite3.connect(folder.hub_journal if where == "journal" else folder.judge_spool) as db:
        assert db.execute(sql).rowcount == 1
    db.close()
    assert run_command(app, ["audit-record", str(folder.path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["contradiction"]


def test_nothing_to_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").touch()
    assert run_command(app, ["audit-record", str(tmp_path)]) == 2
    assert "nothing to audit" in capsys.readouterr().err


def test_status_of_an_ended_run_is_its_summary(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(app, ["status", str(folder.path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["state"] == "never started"
    assert told["summary"]["episodes"] == {"finished": 5, "failed": 1, "cancelled": 3}
