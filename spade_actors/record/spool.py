"""The judge's spool as plain data, read without the judge. The file's tables are described in `judge/spool.py`."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec


class DesignRow(NamedTuple):
    """One design, from its grant to its reward."""

    group: str
    state: str
    reason: str
    attempt: int
    tokens: int
    """sampled"""


class PlayRow(NamedTuple):
    """One play of a trial."""

    trial: str
    arm: str
    state: str


class SampleRow(NamedTuple):
    """One released sample."""

    role: str
    trial: str
    group: str
    state: str


@dataclass
class Spool:
    """Everything the accounts need."""

    seq: int
    """newest event the judge took in"""
    designs: dict[str, DesignRow]
    trials: dict[str, str]
    """id -> state"""
    plays: dict[str, PlayRow]
    trajectories: set[str]
    env_steps: int
    play_tokens: int
    """sampled in plays, held-out ones too"""
    samples: dict[str, SampleRow]
    evaluations: dict[str, str]
    """id -> state"""
    eval_plays: dict[str, tuple[str, str]]
    """id -> (evaluation, state)"""
    pending: list[dict[str, Any]]
    """effects that were decided and not carried out yet"""

    def pending_of(self, kind: str, field: str) -> set[str]:
        """Values of a field of the pending effects of one kind."""
        return {str(effect[field]) for effect in self.pending if effect.get("type") == kind}


def read_spool(path: Path) -> Spool | None:
    """The spool, or None when the judge has not begun. Reading changes nothing, also while the judge writes."""
    if not path.is_file():
        return None
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        return _read(connection) if "meta" in tables else None
    finally:
        connection.close()


def _read(connection: sqlite3.Connection) -> Spool:
    def rows(sql: str) -> list[tuple[Any, ...]]:
        return connection.execute(sql).fetchall()

    connection.execute("BEGIN")  # one moment for all tables
    meta = rows("SELECT body FROM meta WHERE key = 'machine'")
    designs = {}
    for name, group, state, reason, body in rows("SELECT id, grp, state, reason, body FROM designs"):
        more = msgspec.json.decode(body)
        designs[name] = DesignRow(group, state, reason, more.get("attempt", 0), more.get("trained", 0))
    spans = msgspec.json.Decoder(list[tuple[int, int, int]])
    sampled = (spans.decode(versions) for (versions,) in rows("SELECT versions FROM trajectories"))
    return Spool(
        seq=msgspec.json.decode(meta[0][0]).get("seq", 0) if meta else 0,
        designs=designs,
        trials=dict(rows("SELECT id, state FROM trials")),
        plays={row[0]: PlayRow(*row[1:]) for row in rows("SELECT id, trial, arm, state FROM plays")},
        trajectories={name for (name,) in rows("SELECT play FROM trajectories")},
        env_steps=rows("SELECT coalesce(sum(turn_count), 0) FROM trajectories")[0][0],
        play_tokens=sum(stop - start for play in sampled for _, start, stop in play),
        samples={row[0]: SampleRow(*row[1:]) for row in rows("SELECT id, role, trial, grp, state FROM samples")},
        evaluations=dict(rows("SELECT id, state FROM evaluations")),
        eval_plays={row[0]: (row[1], row[2]) for row in rows("SELECT id, evaluation, state FROM eval_plays")},
        pending=[msgspec.json.decode(body) for (body,) in rows("SELECT body FROM effects ORDER BY id")],
    )
