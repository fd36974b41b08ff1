"""What the run looks like right now: a fold over events and hub status. Pure; the live view, the plain lines and metrics read it.

Shares and means are over the last `WINDOW` trials or designs, so they move with the policy. In-band is an expected probability
(Beta(1,1) posterior), not a share.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from spade_protocols.directory import Status
from spade_protocols.queues import DESIGNS, PLAYS, PROPOSALS, ItemEnded
from spade_protocols.registry import Event
from spade_protocols.sample import (
    EvaluationDone,
    LearnerStarted,
    LearnerStepped,
    RunState,
    TrialScored,
    WeightsApplied,
    WeightsPublished,
)

WINDOW = 64
FOLLOWED: tuple[type[Event], ...] = (
    EvaluationDone,
    ItemEnded,
    LearnerStarted,
    LearnerStepped,
    RunState,
    TrialScored,
    WeightsApplied,
    WeightsPublished,
)
"""event types the supervisor follows"""


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None


def _window() -> deque[dict[str, float]]:
    return deque(maxlen=WINDOW)


@dataclass
class Picture:
    """The run at one moment."""

    steps_wanted: int
    started: float
    """seconds since the epoch"""
    state: str = "starting"
    reason: str = ""
    step: int = 0
    version: int | None = None
    applied: dict[str, int] = field(default_factory=dict)
    """generator -> weight version"""
    trained: int = 0
    stale: int = 0
    staleness: float | None = None
    """mean of the last batch, in versions"""
    update_s: float | None = None
    designs: Counter[str] = field(default_factory=Counter)
    """valid | invalid | lost"""
    rejected: Counter[str] = field(default_factory=Counter)
    """check -> rejections"""
    plays: Counter[str] = field(default_factory=Counter)
    """finished | failed | cancelled | dead"""
    trials: deque[dict[str, float]] = field(default_factory=_window)
    validity: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))
    titles: deque[str] = field(default_factory=lambda: deque(maxlen=3))
    heldout: dict[int, dict[str, float]] = field(default_factory=dict)
    """version -> scores"""
    status: Status | None = None
    status_at: float = 0.0
    rates: dict[str, float] = field(default_factory=dict)
    """per second, over the last interval between two statuses"""
    pids: dict[str, int] = field(default_factory=dict)
    """processes of this node that live, whether the hub knows them or not"""
    restarts: dict[str, int] = field(default_factory=dict)
    notes: deque[str] = field(default_factory=lambda: deque(maxlen=5))
    _counted: dict[str, float] = field(default_factory=dict)
    _counted_at: float = 0.0

    def apply(self, event: Event) -> None:
        """Takes one event in, in order of sequence numbers."""
        if isinstance(event, ItemEnded):
            self._item_ended(event)
        elif isinstance(event, LearnerStepped):
            self.step = event.step
            self.trained += event.samples
            self.stale += event.stale
            self.update_s = event.seconds
            total = sum(event.staleness.values())
            self.staleness = sum(int(age) * n for age, n in event.staleness.items()) / total if total else None
        elif isinstance(event, LearnerStarted):
            self.step = event.step
        elif isinstance(event, TrialScored):
            if event.state == "scored":
                self.trials.append(event.scores)
                self.titles.append(event.title)
        elif isinstance(event, EvaluationDone):
            self.heldout[event.version] = event.scores
        elif isinstance(event, WeightsPublished):
            self.version = event.version
        elif isinstance(event, WeightsApplied):
            self.applied[event.generator] = event.version
        elif isinstance(event, RunState):
            self.state, self.reason = event.state, event.reason

    def _item_ended(self, event: ItemEnded) -> None:
        if event.queue == DESIGNS:
            if event.state != "completed":
                self.designs["lost"] += 1
            elif not event.result.get("proposed"):
                self._invalid(str(event.result.get("reason", "")) or "no proposal")
        elif event.queue == PROPOSALS:
            if event.state != "completed":
                self.designs["lost"] += 1
            elif event.result.get("admitted"):
                self.designs["valid"] += 1
                self.validity.append(True)
            else:
                self._invalid(str(event.result.get("failed", "")) or "unknown")
        elif event.queue == PLAYS:
            outcome = str(event.result.get("outcome", "finished")) if event.state == "completed" else event.state
            self.plays[outcome] += 1

    def _invalid(self, reason: str) -> None:
        self.designs["invalid"] += 1
        self.rejected[reason] += 1
        self.validity.append(False)

    def observe(self, status: Status, at: float) -> None:
        """Takes a hub status in, and the rates since the one before."""
        counted: dict[str, float] = {"episodes": self.plays["finished"]}
        for peer in status.peers:
            for name, value in peer.counters.items():
                counted[f"{peer.peer.role}.{name}"] = counted.get(f"{peer.peer.role}.{name}", 0) + value
        span = at - self._counted_at
        if self._counted_at and span > 0:
            fresh = {name: max(0.0, value - self._counted.get(name, value)) / span for name, value in counted.items()}
            self.rates = {name: 0.7 * self.rates.get(name, rate) + 0.3 * rate for name, rate in fresh.items()}
        self._counted, self._counted_at = counted, at
        self.status, self.status_at = status, at

    def mean(self, score: str) -> float | None:
        """A score's mean over the last trials, or None before the first."""
        return _mean(trial[score] for trial in self.trials if score in trial)

    def valid_share(self) -> float | None:
        """Share of the last designs that were admitted."""
        return _mean(self.validity)

    def rate(self, suffix: str) -> float | None:
        """The sum of rates whose counter ends in `suffix`, or None if there is none."""
        found = [rate for name, rate in self.rates.items() if name == suffix or name.endswith(f".{suffix}")]
        return sum(found) if found else None

    def record(self, at: float) -> dict[str, Any]:
        """One line of `metrics.jsonl`."""
        status = self.status
        return {
            "at": round(at, 3),
            "kind": "status",
            "state": self.state,
            "step": self.step,
            "version": self.version,
            "queues": {q.queue: {"ready": q.ready, "leased": q.leased, "dead": q.dead} for q in status.queues}
            if status
            else {},
            "plays": dict(self.plays),
            "designs": dict(self.designs),
            "valid_share": self.valid_share(),
            "mean_return": self.mean("mean_return"),
            "regret": self.mean("regret"),
            "in_band": self.mean("in_band"),
            "rates": {name: round(rate, 3) for name, rate in self.rates.items()},
            "lag_ms": {peer.peer.name: peer.lag_ms for peer in status.peers} if status else {},
            "restarts": dict(self.restarts),
        }
