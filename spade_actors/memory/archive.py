"""memory.sqlite: briefs, environments by content hash, and what is known of each admitted one.

Functions of a connection, run on the store's writer thread. Always holds: a brief is written once per grant; an
environment is stored under the hash of its own source and hint; what is judged of a design replaces what was known.
"""

import random
import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from spade_actors.config.schema import MemoryConfig
from spade_actors.memory.normalise import exact_key, normalised_key
from spade_actors.memory.passages import draw
from spade_actors.memory.ranking import Judged, exemplars, negative
from spade_actors.scoring.title import class_title
from spade_protocols.design import (
    Brief,
    CheckDuplicate,
    DuplicateVerdict,
    Environment,
    Exemplar,
    Grant,
    MemoryStats,
    Passage,
    PutEnvironment,
    StoreJudged,
)

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS briefs (id TEXT PRIMARY KEY, passage TEXT, parent TEXT, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS environments (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, hint TEXT NOT NULL, exact TEXT, normalised TEXT, title TEXT
);
CREATE TABLE IF NOT EXISTS judged (
    number INTEGER PRIMARY KEY AUTOINCREMENT, design TEXT UNIQUE NOT NULL, environment TEXT, skill TEXT, parent TEXT,
    version INTEGER, admitted INTEGER, exact TEXT, normalised TEXT, regret REAL, regret_se REAL, win_rate REAL,
    verdicts TEXT, scores TEXT
);
CREATE INDEX IF NOT EXISTS judged_exact ON judged (exact) WHERE admitted;
CREATE INDEX IF NOT EXISTS judged_normalised ON judged (normalised) WHERE admitted;
CREATE INDEX IF NOT EXISTS judged_skill ON judged (skill, number) WHERE regret IS NOT NULL;
"""

UNKNOWN_SE = 1.0
"""standard error of a score that comes without one"""


def write_briefs(
    connection: sqlite3.Connection,
    grants: Sequence[Grant],
    passages: list[Passage],
    config: MemoryConfig,
    seed: int,
) -> list[Grant]:
    """Writes a brief per grant that has none; returns the grants, for their items."""
    for grant in grants:
        if connection.execute("SELECT 1 FROM briefs WHERE id = ?", (grant.id,)).fetchone():
            continue
        rng = random.Random(f"{seed}/brief/{grant.id}/{grant.seed}")
        passage = draw(passages, seed, _next(connection, "passages"))
        recent = recent_judged(connection, grant.skill, config.recent)
        chosen = []
        if rng.random() < config.exemplar_rate:
            chosen = exemplars(recent, best=config.best, count=config.exemplars, confidence=config.confidence, rng=rng)
        brief = Brief(
            id=grant.id,
            group=grant.group,
            skill=grant.skill,
            difficulty=config.difficulty,
            seed=grant.seed,
            passage=passage,
            exemplars=[_exemplar(connection, judged) for judged in chosen],
            negative=negative(recent, rng),
            parent=chosen[0].environment if chosen else "",
        )
        connection.execute(
            "INSERT INTO briefs VALUES (?, ?, ?, ?)",
            (brief.id, passage.id, brief.parent, msgspec.msgpack.encode(brief)),
        )
    return list(grants)


def read_brief(connection: sqlite3.Connection, name: str) -> Brief | None:
    """A brief by its design's id."""
    row = connection.execute("SELECT body FROM briefs WHERE id = ?", (name,)).fetchone()
    return msgspec.msgpack.decode(row[0], type=Brief) if row else None


def put_environment(connection: sqlite3.Connection, what: PutEnvironment) -> None:
    """Stores an environment under its (checked) hash; a second time changes nothing."""
    if connection.execute("SELECT 1 FROM environments WHERE id = ?", (what.environment,)).fetchone():
        return
    row = (what.environment, what.source, what.hint, exact_key(what.source), normalised_key(what.source))
    connection.execute("INSERT INTO environments VALUES (?, ?, ?, ?, ?, ?)", (*row, class_title(what.source)))


def get_environment(connection: sqlite3.Connection, name: str) -> Environment | None:
    """An environment by its hash."""
    row = connection.execute("SELECT source, hint FROM environments WHERE id = ?", (name,)).fetchone()
    return Environment(environment=name, source=row[0], hint=row[1]) if row else None


def store_judged(connection: sqlite3.Connection, what: StoreJudged) -> None:
    """Records admission, then scores, of a design's environment. Lineage falls back to the brief's parent."""
    keys = connection.execute(
        "SELECT exact, normalised FROM environments WHERE id = ?", (what.environment,)
    ).fetchone() or ("", "")
    brief = connection.execute("SELECT parent FROM briefs WHERE id = ?", (what.design,)).fetchone()
    parent = what.parent or (brief[0] if brief else "")
    scores: dict[str, Any] = what.scores
    row = (
        what.environment, what.skill, parent, what.version, what.admitted, *keys,
        scores.get("regret"), scores.get("regret_se", UNKNOWN_SE if scores else None), scores.get("win_rate"),
        msgspec.json.encode(what.verdicts).decode(), msgspec.json.encode(scores).decode(),
    )  # fmt: skip
    connection.execute(
        "INSERT INTO judged (environment, skill, parent, version, admitted, exact, normalised, regret, regret_se,"
        " win_rate, verdicts, scores, design) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (design) DO UPDATE SET environment = excluded.environment, skill = excluded.skill,"
        " parent = excluded.parent, version = excluded.version, admitted = excluded.admitted, exact = excluded.exact,"
        " normalised = excluded.normalised, regret = excluded.regret, regret_se = excluded.regret_se,"
        " win_rate = excluded.win_rate, verdicts = excluded.verdicts, scores = excluded.scores"
        " WHERE excluded.regret IS NOT NULL OR judged.regret IS NULL",
        (*row, what.design),
    )


def check_duplicate(connection: sqlite3.Connection, what: CheckDuplicate, window: int) -> DuplicateVerdict:
    """Whether one of the newest `window` admitted environments (0 = all) is the same."""
    newest = connection.execute("SELECT MAX(number) FROM (SELECT number FROM judged WHERE admitted)").fetchone()[0] or 0
    oldest = 0
    if window:
        row = connection.execute(
            "SELECT number FROM judged WHERE admitted AND number <= ? ORDER BY number DESC LIMIT 1 OFFSET ?",
            (newest, window - 1),
        ).fetchone()
        oldest = row[0] if row else 0
    for how, column, key in (
        ("exact", "exact", exact_key(what.source)),
        ("normalised", "normalised", normalised_key(what.source)),
    ):
        row = (
            key
            and connection.execute(
                f"SELECT environment FROM judged WHERE admitted AND {column} = ? AND design != ? AND number >= ?"
                " ORDER BY number DESC LIMIT 1",
                (key, what.design, oldest),
            ).fetchone()
        )
        if row:
            return DuplicateVerdict(duplicate=True, of=row[0], how=how)
    return DuplicateVerdict(duplicate=False)


def recent_judged(connection: sqlite3.Connection, skill: str, count: int) -> list[Judged]:
    """The newest scored environments of a skill, newest first."""
    found = connection.execute(
        "SELECT j.environment, j.skill, coalesce(e.title, ''), j.regret, j.regret_se, coalesce(j.win_rate, 0)"
        " FROM judged j LEFT JOIN environments e ON e.id = j.environment"
        " WHERE j.skill = ? AND j.regret IS NOT NULL ORDER BY j.number DESC LIMIT ?",
        (skill, count),
    )
    return [Judged(*row) for row in found]


def stats(connection: sqlite3.Connection, passages: int) -> MemoryStats:
    """Sizes; exemplars are scored environments by skill."""
    skills = connection.execute("SELECT skill, count(*) FROM judged WHERE regret IS NOT NULL GROUP BY skill")
    return MemoryStats(
        environments=connection.execute("SELECT count(*) FROM environments").fetchone()[0],
        judged=connection.execute("SELECT count(*) FROM judged").fetchone()[0],
        passages=passages,
        exemplars=dict(skills.fetchall()),
    )


def _exemplar(connection: sqlite3.Connection, judged: Judged) -> Exemplar:
    source, hint = connection.execute(
        "SELECT source, hint FROM environments WHERE id = ?", (judged.environment,)
    ).fetchone() or ("", "")
    return Exemplar(
        environment=judged.environment, source=source, hint=hint, regret=judged.regret, win_rate=judged.win_rate
    )  # fmt: skip


def _next(connection: sqlite3.Connection, key: str) -> int:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    value: int = row[0] if row else 0
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value + 1))
    return value
