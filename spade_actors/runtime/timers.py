"""One clock for many deadlines: callbacks at trio times, without a task or a cancel scope per deadline.

Always holds: a callback runs at most once, on the trio thread, never before its time.
"""

import heapq
import itertools
from collections.abc import Callable
from math import ceil, inf

import trio

QUANTUM_S = 0.02
"""callbacks within it share one wake-up"""


class Timers:
    """A heap of (time, callback). Entries are not cancelled; a callback looks whether it still matters."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = itertools.count()
        self._scope: trio.CancelScope | None = None

    def at(self, when: float, callback: Callable[[float], None]) -> None:
        """Runs `callback(now)` at `when` (trio time) or at most `QUANTUM_S` later if the loop is free; it must not raise."""
        when = ceil(when / QUANTUM_S) * QUANTUM_S
        heapq.heappush(self._heap, (when, next(self._order), callback))
        if self._scope is not None and when < self._scope.deadline:
            self._scope.deadline = when

    async def run(self) -> None:
        """Serves until cancelled; start it once."""
        while True:
            now = trio.current_time()
            while self._heap and self._heap[0][0] <= now:
                heapq.heappop(self._heap)[2](now)
            with trio.CancelScope(deadline=self._heap[0][0] if self._heap else inf) as self._scope:
                await trio.sleep_forever()
            self._scope = None
