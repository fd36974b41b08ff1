"""judge.sqlite: designs and their tokens, trials, plays and trajectories, samples, evaluations, and what is still to be done.

Functions of a connection, run on the store's writer thread. Always holds: a decision, the bulk that came with it, the
number of the event it answers and the effects it asks for are in one transaction. Bodies are JSON; tokens, masks and
log-probabilities are raw little-endian arrays, deleted once no sample can need them.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from spade_actors.judge.effects import AnyEffect, Effect
from spade_actors.judge.evaluation import EvalPlay, Evaluation
from spade_actors.judge.groups import Design, Group
from spade_actors.judge.state import Change, Meta, Saved
from spade_actors.judge.trials import Play, Trial
from spade_protocols.play import Turn

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS groups (id TEXT PRIMARY KEY, skill TEXT, size INTEGER, state TEXT, reason TEXT) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS open_groups ON groups (id) WHERE state = 'open';
CREATE TABLE IF NOT EXISTS designs (
    id TEXT PRIMARY KEY, grp TEXT, state TEXT, reason TEXT, environment TEXT, reward REAL, body TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS designs_of_group ON designs (grp);
CREATE TABLE IF NOT EXISTS generations (
    design TEXT PRIMARY KEY, attempt INTEGER, prompt BLOB, output BLOB, logprobs BLOB, versions TEXT,
    temperature REAL, text TEXT
);
CREATE TABLE IF NOT EXISTS trials (
    id TEXT PRIMARY KEY, grp TEXT, environment TEXT, skill TEXT, state TEXT, reason TEXT, title TEXT, body TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS live_trials ON trials (id) WHERE state IN ('opening', 'open', 'scoring');
CREATE TABLE IF NOT EXISTS plays (
    id TEXT PRIMARY KEY, trial TEXT, arm TEXT, idx INTEGER, state TEXT, ending TEXT, body TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS plays_of_trial ON plays (trial);
CREATE TABLE IF NOT EXISTS trajectories (
    play TEXT PRIMARY KEY, trial TEXT, attempt INTEGER, tokens BLOB, mask BLOB, logprobs BLOB, versions TEXT,
    temperature REAL, turns TEXT, turn_count INTEGER, agent TEXT, seconds REAL
);
CREATE INDEX IF NOT EXISTS trajectories_of_trial ON trajectories (trial);
CREATE TABLE IF NOT EXISTS samples (
    id TEXT PRIMARY KEY, role TEXT, trial TEXT, grp TEXT, advantage REAL, state TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS open_samples ON samples (id) WHERE state = 'released';
CREATE TABLE IF NOT EXISTS evaluations (id TEXT PRIMARY KEY, version INTEGER, label TEXT, state TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS eval_plays (
    id TEXT PRIMARY KEY, evaluation TEXT, state TEXT, value REAL, body TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS plays_of_evaluation ON eval_plays (evaluation);
CREATE TABLE IF NOT EXISTS effects (id INTEGER PRIMARY KEY, body TEXT NOT NULL);
"""


class Statement(NamedTuple):
    """One SQL text with the rows it runs on."""

    sql: str
    rows: list[tuple[Any, ...]]


class Generation(NamedTuple):
    """A delivered design's bulk; token ids i4, log-probabilities f4, spans over the output."""

    design: str
    attempt: int
    prompt: bytes
    output: bytes
    logprobs: bytes
    versions: list[tuple[int, int, int]]
    temperature: float
    text: str


class Trajectory(NamedTuple):
    """A delivered play's bulk; tokens i4, mask u1, log-probabilities f4, spans over the tokens."""

    play: str
    trial: str
    attempt: int
    tokens: bytes | None
    mask: bytes | None
    logprobs: bytes | None
    versions: list[tuple[int, int, int]]
    temperature: float
    turns: list[Turn]
    agent: str
    seconds: float


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def statements(change: Change) -> list[Statement]:
    """A change as SQL, encoded now, so that later decisions do not slip into it."""
    trial_body = {"min_pairs", "verdicts", "stale_arms"}
    out = [
        Statement("INSERT OR REPLACE INTO meta VALUES ('machine', ?)", [(_json(change.meta),)]),
        Statement(
            "INSERT OR REPLACE INTO groups VALUES (?, ?, ?, ?, ?)",
            [(g.id, g.skill, g.size, g.state, g.reason) for g in change.groups],
        ),
        Statement(
            "INSERT OR REPLACE INTO designs VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(d.id, d.group, d.state, d.reason, d.environment, d.reward, _json(d)) for d in change.designs],
        ),
        Statement(
            "INSERT OR REPLACE INTO trials VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (t.id, t.group, t.environment, t.skill, t.state, t.reason, t.title,
                 _json({name: getattr(t, name) for name in trial_body}))
                for t in change.trials
            ],
        ),
        Statement(
            "INSERT OR REPLACE INTO plays VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(p.id, trial, p.arm, p.index, p.state, p.ending, _json(p)) for trial, p in change.plays],
        ),
        Statement(
            "INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?, ?)",
            [(e.id, e.version, e.label, e.state) for e in change.evaluations],
        ),
        Statement(
            "INSERT OR REPLACE INTO eval_plays VALUES (?, ?, ?, ?, ?)",
            [(p.id, evaluation, p.state, p.value, _json(p)) for evaluation, p in change.eval_plays],
        ),
        Statement(
            "INSERT INTO samples VALUES (?, ?, ?, ?, ?, 'released')",
            [(s.id, s.role, s.trial, s.group, s.advantage) for s in change.samples],
        ),
        Statement("UPDATE samples SET state = ? WHERE id = ?", [(outcome, name) for name, outcome in change.ended]),
        Statement(_FORGET_TRAJECTORY, [(name,) for name, _ in change.ended]),
        Statement(_FORGET_GENERATION, [(name,) for name, _ in change.ended]),
        Statement(_FORGET_GENERATION, [(name,) for name in change.dropped]),
    ]  # fmt: skip
    return [statement for statement in out if statement.rows]


_FORGET_TRAJECTORY = "UPDATE trajectories SET tokens = NULL, mask = NULL, logprobs = NULL WHERE play = ?"
_FORGET_GENERATION = "UPDATE generations SET prompt = NULL, output = NULL, logprobs = NULL WHERE design = ?"


def effect_statements(numbered: Iterable[tuple[int, Effect]], done: Iterable[int]) -> list[Statement]:
    """Effects to be journalled, and effects that were carried out."""
    return [
        Statement("INSERT INTO effects VALUES (?, ?)", [(number, _json(effect)) for number, effect in numbered]),
        Statement("DELETE FROM effects WHERE id = ?", [(number,) for number in done]),
    ]


def generation_statement(bulk: Generation) -> Statement:
    """A delivered design; one of an earlier attempt is replaced."""
    row = (*bulk[:5], _json(bulk.versions), bulk.temperature, bulk.text)
    return Statement("INSERT OR REPLACE INTO generations VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [row])


def trajectory_statement(bulk: Trajectory) -> Statement:
    """A delivered play; the machine lets only the first one come here."""
    row = (
        *bulk[:6],
        _json(bulk.versions),
        bulk.temperature,
        _json(bulk.turns),
        len(bulk.turns),
        bulk.agent,
        bulk.seconds,
    )
    return Statement("INSERT OR IGNORE INTO trajectories VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [row])


def forget_turns(trial: str, keep: Sequence[str]) -> list[Statement]:
    """The episodes are in their file: drops the turns, and the arrays of plays that became no sample."""
    marks = ", ".join("?" * len(keep))
    return [
        Statement("UPDATE trajectories SET turns = NULL WHERE trial = ?", [(trial,)]),
        Statement(
            "UPDATE trajectories SET tokens = NULL, mask = NULL, logprobs = NULL"
            f" WHERE trial = ? AND play NOT IN ({marks})",
            [(trial, *keep)],
        ),
    ]


def forget_text(design: str) -> Statement:
    """The design is in its folder."""
    return Statement("UPDATE generations SET text = NULL WHERE design = ?", [(design,)])


def run(connection: sqlite3.Connection, todo: Iterable[Statement]) -> None:
    """Executes statements in the caller's transaction."""
    for sql, rows in todo:
        connection.executemany(sql, rows)


def load(connection: sqlite3.Connection) -> tuple[Saved, list[tuple[int, AnyEffect]]]:
    """What a judge goes on from, and the effects that were not carried out, in order."""
    row = connection.execute("SELECT body FROM meta WHERE key = 'machine'").fetchone()
    saved = Saved(meta=msgspec.json.decode(row[0], type=Meta) if row else Meta())
    for name, skill, size in connection.execute("SELECT id, skill, size FROM groups WHERE state = 'open' ORDER BY id"):
        members = connection.execute("SELECT body FROM designs WHERE grp = ? ORDER BY id", (name,))
        saved.groups.append(
            Group(id=name, skill=skill, size=size, members=[msgspec.json.decode(m[0], type=Design) for m in members])
        )
    live = "SELECT id FROM trials WHERE state IN ('opening', 'open', 'scoring') ORDER BY id"
    saved.trials = [trial for (name,) in connection.execute(live).fetchall() if (trial := read_trial(connection, name))]
    for name, version, label, state in connection.execute("SELECT id, version, label, state FROM evaluations"):
        if state in ("done", "dropped"):
            saved.done_evaluations.append(name)
        else:
            plays = read_eval_plays(connection, name)
            saved.evaluations.append(Evaluation(id=name, version=version, label=label, state=state, plays=plays))
    saved.open_samples = [name for (name,) in connection.execute("SELECT id FROM samples WHERE state = 'released'")]
    effects = [
        (number, msgspec.json.decode(body, type=AnyEffect))
        for number, body in connection.execute("SELECT id, body FROM effects ORDER BY id")
    ]
    return saved, effects


def read_trial(connection: sqlite3.Connection, name: str) -> Trial | None:
    """A trial with its plays, ended or not."""
    row = connection.execute(
        "SELECT grp, environment, skill, state, reason, title, body FROM trials WHERE id = ?", (name,)
    ).fetchone()
    if row is None:
        return None
    found = connection.execute("SELECT body FROM plays WHERE trial = ? ORDER BY idx, arm DESC", (name,))
    plays = [msgspec.json.decode(body, type=Play) for (body,) in found]
    fields = dict(zip(("group", "environment", "skill", "state", "reason", "title"), row[:6], strict=True))
    return Trial(id=name, plays={play.id: play for play in plays}, **fields, **msgspec.json.decode(row[6]))


def read_eval_plays(connection: sqlite3.Connection, evaluation: str) -> dict[str, EvalPlay]:
    """The plays of an evaluation by id."""
    found = connection.execute("SELECT body FROM eval_plays WHERE evaluation = ? ORDER BY id", (evaluation,))
    plays = [msgspec.json.decode(body, type=EvalPlay) for (body,) in found]
    return {play.id: play for play in plays}


def read_evaluation(connection: sqlite3.Connection, name: str) -> Evaluation | None:
    """An evaluation with its plays."""
    row = connection.execute("SELECT version, label, state FROM evaluations WHERE id = ?", (name,)).fetchone()
    if row is None:
        return None
    return Evaluation(id=name, version=row[0], label=row[1], state=row[2], plays=read_eval_plays(connection, name))


def read_turns(connection: sqlite3.Connection, trial: str) -> dict[str, tuple[list[Turn], str, str, float]]:
    """Stored turns of a trial or evaluation: play -> (turns, version spans as JSON, agent, seconds)."""
    found = connection.execute(
        "SELECT play, turns, versions, agent, seconds FROM trajectories WHERE trial = ? AND turns IS NOT NULL", (trial,)
    )
    return {row[0]: (msgspec.json.decode(row[1], type=list[Turn]), row[2], row[3], row[4]) for row in found}
