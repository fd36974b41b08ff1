"""The hub's journal as plain data, read without the hub. The file's tables are described in `hub/journal.py`."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]

ENDED = ("completed", "cancelled", "dead")


class JournalEvent(NamedTuple):
    """One event; `body` holds its fields."""

    seq: int
    type: str
    at: float
    """seconds since the epoch"""
    body: dict[str, Any]


class JournalItem(NamedTuple):
    """One queue item as it is now."""

    state: str
    """ready | leased | completed | cancelled | dead"""
    result: dict[str, Any]


@dataclass
class Journal:
    """All events in order, and all items by (queue, id)."""

    events: list[JournalEvent] = field(default_factory=list)
    items: dict[tuple[str, str], JournalItem] = field(default_factory=dict)

    ended_at: dict[tuple[str, str], int] = field(default_factory=dict)
    """sequence number of each item's end"""

    def add(self, event: JournalEvent) -> None:
        """Takes the next event in."""
        self.events.append(event)
        if event.type == "item.ended":
            self.ended_at.setdefault((event.body["queue"], event.body["id"]), event.seq)

    def of(self, *types: str) -> Iterator[JournalEvent]:
        """Events of these types, in order."""
        return (event for event in self.events if event.type in types)


def read_journal(path: Path) -> Journal | None:
    """The journal, or None when the hub has not begun. Reading changes nothing, also while the hub writes."""
    if not path.is_file():
        return None
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        return _read(connection) if {"events", "items"} <= tables else None
    finally:
        connection.close()


def _read(connection: sqlite3.Connection) -> Journal:
    connection.execute("BEGIN")  # one moment for both tables
    journal = Journal()
    for seq, type_, at, body in connection.execute("SELECT seq, type, at, body FROM events ORDER BY seq"):
        journal.add(JournalEvent(seq, type_, at, msgpack.unpackb(body, strict_map_key=False)))
    for queue, name, state, result in connection.execute("SELECT queue, id, state, result FROM items ORDER BY ord"):
        unpacked = msgpack.unpackb(result, strict_map_key=False) if result else {}
        journal.items[queue, name] = JournalItem(state, unpacked)
    return journal
