"""When a process that died is started again, and when the run gives up. Pure: time is passed in.

What always holds: a process that lived for `healthy_s` is started again at once and forgets its past; one that dies sooner waits
twice as long each time; after `give_up` fast deaths in a row nothing is restarted and the run fails.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Policy:
    """Bounds, in seconds and deaths."""

    healthy_s: float = 20.0
    first_s: float = 0.25
    longest_s: float = 10.0
    give_up: int = 6
    """fast deaths in a row after which the run fails"""


@dataclass
class Restarts:
    """The memory of deaths, by process name."""

    policy: Policy = Policy()
    fast_deaths: dict[str, int] = field(default_factory=dict)
    total: dict[str, int] = field(default_factory=dict)
    """restarts so far"""

    def died(self, name: str, lived_s: float) -> float | None:
        """Seconds until the restart; None: give up, the run has failed."""
        if lived_s >= self.policy.healthy_s:
            self.fast_deaths[name] = 0
        deaths = self.fast_deaths.get(name, 0)
        self.fast_deaths[name] = deaths + 1
        if deaths + 1 >= self.policy.give_up:
            return None
        self.total[name] = self.total.get(name, 0) + 1
        if deaths == 0:
            return 0.0
        delay: float = min(self.policy.longest_s, self.policy.first_s * 2 ** (deaths - 1))
        return delay
