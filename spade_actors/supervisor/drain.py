"""In which order processes end, and how long each may take. Pure: time is passed in.

What always holds: a role is told to drain only when every role that feeds it has ended (producers before what they use, the hub
last); what does not end within its bound is killed; once `now` is asked for, everything that lives is killed at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

ORDER: tuple[tuple[str, float], ...] = (
    ("designer", 10.0),
    ("agent", 20.0),
    ("sandbox", 30.0),
    ("learner", 60.0),
    ("generator", 25.0),
    ("judge", 50.0),
    ("memory", 70.0),
    ("hub", 20.0),
)
"""role and the seconds its drain may take: longer than what the role itself allows for it, so that it ends by itself (the
learner finishes its update and writes a checkpoint)"""
GRACE_S = 10.0
"""What a role whose drain time is configured gets on top, to hand back what it did not finish."""


def bounds(designer_s: float, agent_s: float) -> tuple[tuple[str, float], ...]:
    """The order with the configured drain times of designers and agents, in seconds."""
    configured = {"designer": designer_s + GRACE_S, "agent": agent_s + GRACE_S}
    return tuple((role, configured.get(role, bound)) for role, bound in ORDER)


class Orders(NamedTuple):
    """What to do with processes now, by name."""

    ask: tuple[str, ...] = ()
    """SIGTERM: drain"""
    kill: tuple[str, ...] = ()
    """SIGKILL, with the whole process group"""


@dataclass
class Drain:
    """One drain. Call `step` again whenever a process ended or `next_check` has passed, until nothing is alive."""

    bounds: tuple[tuple[str, float], ...] = ORDER
    now_or_never: bool = False
    """the second Ctrl-C: kill what lives"""
    asked: dict[str, float] = field(default_factory=dict)
    """name -> when it was asked"""
    killed: list[str] = field(default_factory=list)
    """processes that did not end in time"""

    def step(self, alive: Iterable[tuple[str, str]], now: float) -> Orders:
        """Orders for the living processes, given as (name, role)."""
        living = list(alive)
        if self.now_or_never:
            return self._kill([name for name, _ in living])
        known = {role for role, _ in self.bounds}
        for role, bound in (*((role, 10.0) for _, role in living if role not in known), *self.bounds):
            stage = [name for name, its_role in living if its_role == role]
            if stage:
                late = [name for name in stage if name in self.asked and now - self.asked[name] >= bound]
                fresh = [name for name in stage if name not in self.asked]
                self.asked.update(dict.fromkeys(fresh, now))
                return Orders(ask=tuple(fresh), kill=self._kill(late).kill)
        return Orders()

    def next_check(self, alive: Iterable[tuple[str, str]], now: float) -> float:
        """Seconds until the next bound passes; infinite when nothing was asked."""
        bounds = dict(self.bounds)
        waits = [
            self.asked[name] + bounds.get(role, 10.0) - now
            for name, role in alive
            if name in self.asked and name not in self.killed
        ]
        return max(0.0, min(waits, default=float("inf")))

    def _kill(self, names: list[str]) -> Orders:
        fresh = [name for name in names if name not in self.killed]
        self.killed += fresh
        return Orders(kill=tuple(fresh))
