"""What the trial machine remembers between inputs, what of it is saved, and what one decision changes."""

from collections import Counter
from typing import NamedTuple

import msgspec

from spade_actors.judge.capacity import Ledger
from spade_actors.judge.effects import Effect
from spade_actors.judge.evaluation import EvalPlay, Evaluation
from spade_actors.judge.groups import Design, Group, Rotation
from spade_actors.judge.trials import Play, Trial


class Meta(msgspec.Struct, kw_only=True):
    """The scalars of a run, saved with every decision."""

    seq: int = 0
    """newest event that was taken in"""
    version: int = 0
    """newest weight version heard of"""
    step: int = 0
    final: bool = False
    """the learner did its last step"""
    complete: bool = False
    rotation: Rotation = msgspec.field(default_factory=Rotation)
    taken: dict[int, int] = msgspec.field(default_factory=dict)
    samples: dict[str, int] = msgspec.field(default_factory=dict)
    """the ledger's counts: released, trained, stale, lost"""
    applied: dict[str, int] = msgspec.field(default_factory=dict)
    """generator -> newest version it has"""
    examined: int = -1
    """newest version an evaluation was considered for; -1 = the first is still to come"""
    counters: dict[str, int] = msgspec.field(default_factory=dict)


class Saved(msgspec.Struct, kw_only=True):
    """What a restarted judge goes on from: everything that has not ended."""

    meta: Meta = msgspec.field(default_factory=Meta)
    groups: list[Group] = msgspec.field(default_factory=list)
    trials: list[Trial] = msgspec.field(default_factory=list)
    evaluations: list[Evaluation] = msgspec.field(default_factory=list)
    done_evaluations: list[str] = msgspec.field(default_factory=list)
    open_samples: list[str] = msgspec.field(default_factory=list)


class NewSample(NamedTuple):
    """A row of the spool's table of samples."""

    id: str
    role: str
    trial: str
    group: str
    advantage: float


class Change(msgspec.Struct, kw_only=True):
    """Everything one or more decisions changed; written in one transaction, its effects carried out after it."""

    meta: Meta
    groups: list[Group]
    """their members are rows of their own"""
    designs: list[Design]
    trials: list[Trial]
    """their plays are rows of their own"""
    plays: list[tuple[str, Play]]
    """with their trial"""
    evaluations: list[Evaluation]
    """their plays are rows of their own"""
    eval_plays: list[tuple[str, EvalPlay]]
    """with their evaluation"""
    samples: list[NewSample]
    ended: list[tuple[str, str]]
    """sample -> trained, stale, cancelled or dead; its bulk may go"""
    dropped: list[str]
    """designs whose tokens will never be trained"""
    effects: list[Effect]


class Draft:
    """Collects changes until they are taken; objects are written as they are at that moment."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Starts anew."""
        self.groups: dict[str, Group] = {}
        self.designs: dict[str, Design] = {}
        self.trials: dict[str, Trial] = {}
        self.plays: dict[str, tuple[str, Play]] = {}
        self.evaluations: dict[str, Evaluation] = {}
        self.eval_plays: dict[str, tuple[str, EvalPlay]] = {}
        self.samples: list[NewSample] = []
        self.ended: list[tuple[str, str]] = []
        self.dropped: list[str] = []
        self.effects: list[Effect] = []

    def take(self, meta: Meta, ledger: Ledger, counters: Counter[str]) -> Change:
        """The change so far; the draft starts anew."""
        meta.taken = dict(ledger.taken)
        meta.samples = {"released": ledger.released, "trained": ledger.trained, "stale": ledger.stale}
        meta.samples["lost"] = ledger.lost
        meta.counters = dict(counters)
        change = Change(
            meta=meta,
            groups=list(self.groups.values()),
            designs=list(self.designs.values()),
            trials=list(self.trials.values()),
            plays=list(self.plays.values()),
            evaluations=list(self.evaluations.values()),
            eval_plays=list(self.eval_plays.values()),
            samples=self.samples,
            ended=self.ended,
            dropped=self.dropped,
            effects=self.effects,
        )
        self.clear()
        return change


def ledger_of(saved: Saved) -> Ledger:
    """The ledger as it was saved."""
    return Ledger(open=set(saved.open_samples), taken=dict(saved.meta.taken), **saved.meta.samples)
