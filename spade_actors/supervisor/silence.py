"""Which living process hangs: the hub has not heard of it for long while others are heard. Pure: time is passed in."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Silence:
    """Remembers since when each process has been missing from the hub's directory."""

    ttl_s: float
    start_s: float = 120.0
    """a process may take this long from its start to its first registration"""
    missing: dict[str, float] = field(default_factory=dict)

    def hung(self, ages: Mapping[str, float], heard: set[str], now: float) -> list[str]:
        """Names to kill. `ages`: living processes and how long they live, `heard`: who is in the directory.

        A directory that knows none of them is the hub's own restart, and says nothing about anybody.
        """
        if not heard & set(ages):
            self.missing.clear()
            return []
        for name in list(self.missing):
            if name in heard or name not in ages:
                del self.missing[name]
        found = []
        for name, age in ages.items():
            if name in heard:
                continue
            since = self.missing.setdefault(name, now)
            if now - since > 3 * self.ttl_s and age > self.start_s:
                found.append(name)
        return found
