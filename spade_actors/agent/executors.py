"""Which executor to ask for a session next. Pure: time is passed in.

Always holds: the one with fewest of our sessions comes first, one that refused lately comes last, and a play that failed
before starts at another one.
"""

from collections import defaultdict
from collections.abc import Iterable

PAUSE_S = 0.5
"""how long a refusal is remembered"""


class Executors:
    """What this agent knows of the executors' load: its own sessions, and who refused."""

    def __init__(self) -> None:
        self._mine: defaultdict[str, int] = defaultdict(int)
        self._refused: dict[str, float] = {}

    def order(self, names: Iterable[str], now: float, attempt: int = 1) -> list[str]:
        """Names in the order to be asked; `attempt` (from 1) turns the order, so that a retry goes elsewhere."""
        ranked = sorted(names, key=lambda name: (self._mine[name], name))
        turn = (attempt - 1) % len(ranked) if ranked else 0
        turned = ranked[turn:] + ranked[:turn]
        return sorted(turned, key=lambda name: now - self._refused.get(name, float("-inf")) < PAUSE_S)

    def refused(self, name: str, now: float) -> None:
        """It had no room."""
        self._refused[name] = now

    def opened(self, name: str) -> None:
        """A session of ours runs there."""
        self._mine[name] += 1
        self._refused.pop(name, None)

    def closed(self, name: str) -> None:
        """It ended."""
        self._mine[name] -= 1
        if not self._mine[name]:
            del self._mine[name]
