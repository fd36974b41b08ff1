"""What the gate remembers of an environment: traces of scripted plays, recorded once and judged by many checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from ..errors import EnvironmentFailure
from ..replies import Facts, Inspection, Reset, Step


class Turn(NamedTuple):
    """One action and what came of it; `wall_s` is the time the step took, pipes and scheduling included."""

    action: str
    step: Step
    wall_s: float


@dataclass(frozen=True, slots=True)
class Trace:
    """One play. `hash_class` says in which of the two jails; `failure` ended it, if any."""

    policy: str
    seed: int
    hash_class: int
    reset: Reset | None = None
    turns: tuple[Turn, ...] = ()
    failure: EnvironmentFailure | None = None
    after: EnvironmentFailure | None = None  # what an action after the end did, if it failed
    inspection: Inspection | None = None

    @property
    def ended(self) -> bool:
        """Whether the environment itself ended the play."""
        return bool(self.turns) and (self.turns[-1].step.terminated or self.turns[-1].step.truncated)

    @property
    def final_reward(self) -> float:
        """The return: the reward of the last turn of an ended play, else 0."""
        return self.turns[-1].step.reward if self.ended else 0.0

    def seen(self) -> tuple[Any, ...]:
        """All that the environment showed, for comparison. `info` counts too: hidden state often shows there alone."""
        first = (self.reset.observation, self.reset.info) if self.reset else ()
        return (first, *(tuple(turn.step) for turn in self.turns), self.failure.reason if self.failure else None)


@dataclass(slots=True)
class Record:
    """Everything the checks look at."""

    source: str
    hint: str | None
    facts: Facts | None = None
    compile_failure: EnvironmentFailure | None = None
    traces: list[Trace] = field(default_factory=list)
    duplicate_of: str | None = None
    duplicate_asked: bool = False

    def trace_hash(self) -> str:
        """Hash of how the environment behaved under the fixed scripts: equal for environments that differ in wording of the code alone."""
        digest = sha256()
        for trace in self.traces:
            if trace.hash_class == 0:
                digest.update(msgspec.json.encode((trace.policy, trace.seed, trace.seen()), order="deterministic"))
        return digest.hexdigest()
