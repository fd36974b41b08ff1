import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgpack  # type: ignore[import-untyped]
import pytest
import trio

from spade_actors.hub.journal import SCHEMA, Committed, Journal, NewItem, Outcome, Sent, Work
from spade_actors.hub.ready import Entry
from spade_actors.runtime.errors import StoreError
from spade_protocols.directory import Peer
from spade_protocols.events import Outgoing


def entry(n: int) -> Entry:
    return Entry(id=f"i{n}", body={"n": n}, group="g", priority=1, attempts=3, order=n, put_at=5.0)


def put(n: int, done: Callable[[Outcome], None]) -> tuple[Work, Entry]:
    made = entry(n)
    work = Work(done)
    work.puts = [NewItem("plays", made, msgpack.packb(made.body))]
    return work, made


def with_journal(path: Path, test: Callable[[Journal, list[Committed]], None], *, events: int) -> None:
    """Runs `test`, which submits work, until all of it is done and `events` were published."""

    async def main() -> None:
        journal = Journal(path / "journal.sqlite", 2.0)
        published: list[Committed] = []
        await journal.load("run")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.run, published.append)
            test(journal, published)
            flushed = trio.Event()
            journal.submit(Work(lambda _: flushed.set()))
            await flushed.wait()
            nursery.cancel_scope.cancel()
        journal.close()
        assert len(published) == events

    trio.run(main)


def test_work_is_done_in_order_after_its_commit_and_its_events_come_before_its_done(tmp_path: Path) -> None:
    order: list[str] = []

    def test(journal: Journal, published: list[Committed]) -> None:
        for n in range(5):

            def done(outcome: Outcome, n: int = n) -> None:
                other = sqlite3.connect(tmp_path / "journal.sqlite")
                stored = other.execute("SELECT count(*) FROM events").fetchone()[0]
                other.close()
                assert stored >= outcome.seqs[-1] == published[-1].stored.seq
                order.append(f"{n}:{outcome.seqs}")

            work = Work(done)
            work.events = [Sent(Outgoing(type="run.state", body=b"\x80"), "me", "")]
            journal.submit(work)

    with_journal(tmp_path, test, events=5)
    assert order == [f"{n}:[{n + 1}]" for n in range(5)]


def test_an_id_is_put_once_and_an_event_id_is_committed_once(tmp_path: Path) -> None:
    new: list[list[bool]] = []
    seqs: list[list[int]] = []

    def test(journal: Journal, published: list[Committed]) -> None:
        for order, n in enumerate((1, 1, 2), 1):
            work, made = put(n, lambda outcome: new.append(outcome.new))
            made.order = order
            journal.submit(work)
        for id_ in ("a", "a", ""):
            work = Work(lambda outcome: seqs.append(outcome.seqs))
            work.events = [Sent(Outgoing(type="run.state", body=b"\x80", id=id_), "me", "")]
            journal.submit(work)

    with_journal(tmp_path, test, events=2)
    assert new == [[True], [False], [True]]
    assert seqs == [[1], [1], [2]]


def test_a_restart_loads_open_work_retained_events_peers_and_counts(tmp_path: Path) -> None:
    peer = Peer(role="agent", name="agent-1", incarnation="x")

    def test(journal: Journal, published: list[Committed]) -> None:
        for n in (1, 2, 3):
            work, made = put(n, lambda _: None)
            journal.submit(work)
            work = Work(lambda _: None)
            made.state, made.lease, made.holder, made.incarnation, made.leases = "leased", "L", "agent-1", "x", 1
            if n == 2:
                made.state = "completed"
                work.counts["plays"] = (1, 0, 0)
            if n < 3:
                work.update(made, msgpack.packb({"ok": True}) if n == 2 else None)
            work.peers["agent-1"] = peer
            work.events = [
                Sent(Outgoing(type="run.state", body=b"\x80", key=f"k{n}", retain=n < 3), "me", ""),
            ]
            if n == 2:
                work.forget.append(("run.state", "k1"))
            journal.submit(work)

    with_journal(tmp_path, test, events=3)

    async def again() -> None:
        journal = Journal(tmp_path / "journal.sqlite", 2.0)
        loaded = await journal.load("another name")
        assert (loaded.run, loaded.seq, loaded.order, loaded.latest) == ("run", 3, 3, {"run.state": 3})
        assert [(queue, e.id, e.state, e.lease, e.leases) for queue, e in loaded.items] == [
            ("plays", "i1", "leased", "L", 1),
            ("plays", "i3", "ready", "", 0),
        ]
        assert loaded.items[0][1].body == {"n": 1}
        assert [stored.key for stored in loaded.retained] == ["k2"]
        assert (loaded.peers, loaded.counts) == ([peer], {"plays": (1, 0, 0)})
        assert [stored.seq for stored in await journal.replay(1, ["run.state"], 10)] == [2, 3]
        assert await journal.replay(0, ["other"], 10) == []
        journal.close()

    trio.run(again)


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        ("SELECT 1 FROM items WHERE state IN ('ready', 'leased') ORDER BY ord", "items_open"),
        ("SELECT seq FROM events WHERE id = ? AND id <> ''", "events_id"),
        ("SELECT state, lease, result FROM items WHERE queue = ? AND id = ?", "items_id"),
        ("SELECT coalesce(max(seq), 0) FROM events", "SEARCH"),
        ("UPDATE items SET state = '' WHERE ord = ?", "INTEGER PRIMARY KEY"),
    ],
)
def test_nothing_reads_the_whole_history(sql: str, index: str) -> None:
    db = sqlite3.connect(":memory:")
    db.executescript(SCHEMA)
    plan = " ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", ("x",) * sql.count("?")))
    assert index in plan


def test_a_journal_that_cannot_commit_stops_and_acknowledges_nothing(tmp_path: Path) -> None:
    acknowledged: list[Outcome] = []

    async def main() -> None:
        journal = Journal(tmp_path / "journal.sqlite", 2.0)
        await journal.load("run")
        pages = await journal._store.read(lambda db: db.execute("PRAGMA page_count").fetchone()[0])
        await journal._store.read(lambda db: db.execute(f"PRAGMA max_page_count = {pages}"))
        work = Work(acknowledged.append)
        work.events = [Sent(Outgoing(type="run.state", body=bytes(8000)), "me", "") for _ in range(20)]
        journal.submit(work)
        with pytest.raises((StoreError, sqlite3.OperationalError), match="full"):
            await journal.run(lambda event: acknowledged.append(event))  # type: ignore[arg-type]
        journal.close()

    trio.run(main)
    assert acknowledged == []
