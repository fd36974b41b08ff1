"""Names, settings and results of the gate."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple


class Check(StrEnum):
    """The checks, in the order in which a run applies and reports them."""

    PARSE = "parse"
    DUPLICATE = "duplicate"
    CONTRACT = "contract"
    RUNTIME = "runtime"
    RESOURCE = "resource"
    TERMINATION = "termination"
    REWARD = "reward"
    DETERMINISM = "determinism"
    SEED_SENSITIVITY = "seed_sensitivity"
    TRIVIAL_POLICY = "trivial_policy"
    LEAK = "leak"
    HINT_LEAK = "hint_leak"


class Verdict(NamedTuple):
    """One check's finding. `reason` is a sentence; `evidence` is bounded text from the play that shows it; `ms` is wall time spent."""

    check: Check
    verdict: Literal["pass", "fail", "skipped"]
    reason: str = ""
    evidence: str = ""
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What admits. Rates are shares of the scripted plays of one policy."""

    reward_range: tuple[float, float] = (-10.0, 10.0)
    trivial_rate: float = 0.5  # a trivial policy may win at most this share of its plays
    confirm_plays: int = 8  # more plays of a trivial policy that seems to win too often, before it is believed
    win_reward: float = 0.0  # a play is won when its return is above this
    step_s: float = 2.0  # wall clock of one step
    load_s: float = 5.0  # wall clock of loading and resetting
    slow_step_s: float = 0.5  # no play may need this long for each of its steps (sleeps)
    post_terminal: bool = True  # an action after the end must not raise
    concurrency: int = 8  # plays at once


@dataclass(frozen=True, slots=True)
class GateReport:
    """The gate's decision on one proposal. Without `admitted`, `failed` names the checks that said no."""

    admitted: bool
    failed: tuple[Check, ...]
    verdicts: tuple[Verdict, ...]
    ms: float
    source_hash: str
    shape_hash: str  # of the syntax tree without comments, layout and docstrings; empty when it does not parse
    trace_hash: str  # of the behaviour under the fixed scripts
    class_name: str
    title: str
    max_turns: int | None
    first_observation: str

    @property
    def reason(self) -> str:
        """The first failed check and why, in one line; empty when admitted."""
        for verdict in self.verdicts:
            if verdict.verdict == "fail":
                return f"{verdict.check.value}: {verdict.reason}"
        return ""
