"""The run's journal: events, items, peers in one SQLite file. Everything the hub says has passed through here first.

What always holds: work is committed in the order it was submitted; its `done` is called after the commit, in that order;
sequence numbers have no holes; an event id is committed once. When a commit fails the hub stops (`StoreError`): its memory
would be ahead of its disk.
"""

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]
import msgspec
import trio

from spade_actors.hub.ready import Entry
from spade_actors.runtime.store import Store
from spade_protocols.directory import Peer
from spade_protocols.events import Outgoing, Stored

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY, type TEXT NOT NULL, key TEXT NOT NULL, sender TEXT NOT NULL, trace TEXT NOT NULL,
    at REAL NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS events_id ON events (id) WHERE id <> '';
CREATE TABLE IF NOT EXISTS retained (type TEXT, key TEXT, seq INTEGER NOT NULL, PRIMARY KEY (type, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS latest (type TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS items (
    ord INTEGER PRIMARY KEY, queue TEXT NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL, grp TEXT NOT NULL,
    priority INTEGER NOT NULL, attempts INTEGER NOT NULL, put_at REAL NOT NULL, state TEXT NOT NULL DEFAULT 'ready',
    lease TEXT NOT NULL DEFAULT '', holder TEXT NOT NULL DEFAULT '', incarnation TEXT NOT NULL DEFAULT '',
    leases INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0, result BLOB, reason TEXT NOT NULL DEFAULT '');
CREATE UNIQUE INDEX IF NOT EXISTS items_id ON items (queue, id);
CREATE INDEX IF NOT EXISTS items_open ON items (ord) WHERE state IN ('ready', 'leased');
CREATE TABLE IF NOT EXISTS counts (
    queue TEXT PRIMARY KEY, completed INTEGER NOT NULL, cancelled INTEGER NOT NULL, dead INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS peers (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
"""

_INSERT_ITEM = "INSERT OR IGNORE INTO items (ord, queue, id, body, grp, priority, attempts, put_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_UPDATE_ITEM = (
    "UPDATE items SET state = ?, lease = ?, holder = ?, incarnation = ?, leases = ?, failures = ?,"
    " result = ?, reason = ? WHERE ord = ?"
)


class NewItem(NamedTuple):
    """A row to put; it becomes an `Entry` when the journal says it is new."""

    queue: str
    entry: Entry
    packed: bytes


class Sent(NamedTuple):
    """An event to commit, with its sender."""

    outgoing: Outgoing
    sender: str
    trace: str


class Committed(NamedTuple):
    """A committed event."""

    stored: Stored
    retain: bool


class Ended(NamedTuple):
    """What the journal knows of an item."""

    state: str
    lease: str
    result: dict[str, Any]


class Outcome(NamedTuple):
    """What a piece of work came to."""

    new: list[bool]
    """per item put"""
    seqs: list[int]
    """per event; the first one's for a repeated id"""
    events: list[Committed]
    """those to publish"""
    found: dict[str, Ended]
    """what is stored of the items asked for"""


class Work:
    """Changes that are committed together, and what to do then."""

    def __init__(self, done: Callable[[Outcome], None]) -> None:
        self.done = done
        self.puts: list[NewItem] = []
        self.updates: dict[int, tuple[Any, ...]] = {}
        self.counts: dict[str, tuple[int, int, int]] = {}
        self.events: list[Sent] = []
        self.peers: dict[str, Peer | None] = {}
        self.forget: list[tuple[str, str]] = []
        """(type, key) of retained events that no longer hold"""
        self.look: tuple[str, Sequence[str]] | None = None
        """queue and ids of items to look up, after what was submitted before"""

    def update(self, entry: Entry, result: bytes | None = None, reason: str = "") -> None:
        """The item's state as it is now."""
        self.updates[entry.order] = (
            entry.state,
            entry.lease,
            entry.holder,
            entry.incarnation,
            entry.leases,
            entry.failures,
            result,
            reason,
            entry.order,
        )


class Loaded(NamedTuple):
    """What a restarted hub starts from: the open work, not the history."""

    run: str
    seq: int
    order: int
    latest: dict[str, int]
    retained: list[Stored]
    items: list[tuple[str, Entry]]
    counts: dict[str, tuple[int, int, int]]
    peers: list[Peer]


class Journal:
    """Submits work to the store in batches: whatever comes while one commit goes on shares the next."""

    def __init__(self, path: Path, commit_ms: float) -> None:
        self._store = Store(path, SCHEMA, commit_ms)
        self._pending: list[Work] = []
        self._wake = trio.Event()
        self.seq = 0
        """newest committed sequence number"""
        self.latest: dict[str, int] = {}
        """event type -> its newest committed number"""
        self.retained: dict[tuple[str, str], Stored] = {}
        self._writer = _Writer()

    @property
    def commit_ms(self) -> float:
        """What the last commit took."""
        return self._store.commit_seconds * 1e3

    async def load(self, run: str) -> Loaded:
        """Reads the state to go on from; a new journal belongs to `run`."""
        loaded = await self._store.write(lambda db: _load(db, run))
        self.seq = self._writer.seq = loaded.seq
        self.latest = dict(loaded.latest)
        self.retained = {(stored.type, stored.key): stored for stored in loaded.retained}
        return loaded

    def submit(self, work: Work) -> None:
        """Queues work; `work.done(outcome)` is called on this loop after the commit. It must not raise."""
        self._pending.append(work)
        self._wake.set()

    async def run(self, publish: Callable[[Committed], None]) -> None:
        """Commits until cancelled; publishes the events of each piece of work, then calls its `done`."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            batch, self._pending = self._pending, []
            outcomes = await self._store.write(lambda db, batch=batch: self._writer.apply(db, batch))  # type: ignore[misc]
            for work, outcome in zip(batch, outcomes, strict=True):
                for type_, key in work.forget:
                    self.retained.pop((type_, key), None)
                for event in outcome.events:
                    publish(event)
                    self._took(event)
                work.done(outcome)

    async def replay(self, after: int, types: Sequence[str], limit: int) -> list[Stored]:
        """Committed events of these types (all if empty) after a sequence number."""
        marks = ", ".join("?" * len(types))
        where = f" AND type IN ({marks})" if types else ""
        sql = f"SELECT seq, type, key, sender, trace, at, body FROM events WHERE seq > ?{where} ORDER BY seq LIMIT ?"
        rows = await self._store.read(lambda db: db.execute(sql, (after, *types, limit)).fetchall())
        return [_stored(row) for row in rows]

    def close(self) -> None:
        """Finishes what was submitted to the store and closes the file."""
        self._store.close()

    def _took(self, event: Committed) -> None:
        stored = event.stored
        self.seq = self.latest[stored.type] = stored.seq
        if event.retain:
            self.retained[stored.type, stored.key] = stored


class _Writer:
    """The half that runs on the store's thread; it alone numbers events."""

    def __init__(self) -> None:
        self.seq = 0

    def apply(self, db: sqlite3.Connection, batch: list[Work]) -> list[Outcome]:
        """One transaction's work. The last state of an item in the batch is the one written."""
        outcomes = []
        updates: dict[int, tuple[Any, ...]] = {}
        counts: dict[str, tuple[int, int, int]] = {}
        types: dict[str, int] = {}
        for work in batch:
            new = [self._put(db, item) for item in work.puts]
            for name, peer in work.peers.items():
                if peer is None:
                    db.execute("DELETE FROM peers WHERE name = ?", (name,))
                else:
                    db.execute("INSERT OR REPLACE INTO peers VALUES (?, ?)", (name, msgspec.msgpack.encode(peer)))
            for row in work.forget:
                db.execute("DELETE FROM retained WHERE type = ? AND key = ?", row)
            seqs: list[int] = []
            events: list[Committed] = []
            for sent in work.events:
                seqs.append(self._event(db, sent, events, types))
            updates.update(work.updates)
            counts.update(work.counts)
            outcomes.append(Outcome(new, seqs, events, _find(db, *work.look) if work.look else {}))
        if updates:
            db.executemany(_UPDATE_ITEM, updates.values())
        if counts:
            rows = [(queue, *ended) for queue, ended in counts.items()]
            db.executemany("INSERT OR REPLACE INTO counts VALUES (?, ?, ?, ?)", rows)
        if types:
            db.executemany("INSERT OR REPLACE INTO latest VALUES (?, ?)", types.items())
        return outcomes

    @staticmethod
    def _put(db: sqlite3.Connection, item: NewItem) -> bool:
        entry = item.entry
        row = (
            entry.order,
            item.queue,
            entry.id,
            item.packed,
            entry.group,
            entry.priority,
            entry.attempts,
            entry.put_at,
        )
        return db.execute(_INSERT_ITEM, row).rowcount == 1

    def _event(self, db: sqlite3.Connection, sent: Sent, events: list[Committed], types: dict[str, int]) -> int:
        out = sent.outgoing
        if out.id:
            known = db.execute("SELECT seq FROM events WHERE id = ? AND id <> ''", (out.id,)).fetchone()
            if known is not None:
                return int(known[0])
        self.seq += 1
        at = time.time()
        db.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (self.seq, out.type, out.key, sent.sender, sent.trace, at, out.id, out.body),
        )
        if out.retain:
            db.execute("INSERT OR REPLACE INTO retained VALUES (?, ?, ?)", (out.type, out.key, self.seq))
        stored = Stored(
            seq=self.seq, type=out.type, sender=sent.sender, trace=sent.trace, at=at, body=out.body, key=out.key
        )
        events.append(Committed(stored, out.retain))
        types[out.type] = self.seq
        return self.seq


def _stored(row: tuple[Any, ...]) -> Stored:
    return Stored(seq=row[0], type=row[1], key=row[2], sender=row[3], trace=row[4], at=row[5], body=row[6])


def _find(db: sqlite3.Connection, queue: str, ids: Sequence[str]) -> dict[str, Ended]:
    found = {}
    for id_ in ids:
        row = db.execute("SELECT state, lease, result FROM items WHERE queue = ? AND id = ?", (queue, id_)).fetchone()
        if row is not None:
            found[id_] = Ended(row[0], row[1], msgpack.unpackb(row[2]) if row[2] else {})
    return found


def _load(db: sqlite3.Connection, run: str) -> Loaded:
    db.execute("INSERT OR IGNORE INTO meta VALUES ('run', ?)", (run,))
    (name,) = db.execute("SELECT value FROM meta WHERE key = 'run'").fetchone()
    (seq,) = db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
    (order,) = db.execute("SELECT coalesce(max(ord), 0) FROM items").fetchone()
    retained = db.execute(
        "SELECT e.seq, e.type, e.key, e.sender, e.trace, e.at, e.body FROM retained r JOIN events e ON e.seq = r.seq"
        " ORDER BY e.seq"
    ).fetchall()
    items = []
    for row in db.execute(
        "SELECT queue, id, body, grp, priority, attempts, ord, put_at, state, lease, holder, incarnation, leases, failures"
        " FROM items WHERE state IN ('ready', 'leased') ORDER BY ord"
    ):
        entry = Entry(
            id=row[1],
            body=msgpack.unpackb(row[2]),
            group=row[3],
            priority=row[4],
            attempts=row[5],
            order=row[6],
            put_at=row[7],
        )
        entry.state, entry.lease, entry.holder, entry.incarnation, entry.leases, entry.failures = row[8:14]
        items.append((row[0], entry))
    return Loaded(
        run=name,
        seq=seq,
        order=order,
        latest=dict(db.execute("SELECT type, seq FROM latest").fetchall()),
        retained=[_stored(row) for row in retained],
        items=items,
        counts={row[0]: row[1:] for row in db.execute("SELECT * FROM counts")},
        peers=[msgspec.msgpack.decode(body, type=Peer) for (body,) in db.execute("SELECT body FROM peers")],
    )
