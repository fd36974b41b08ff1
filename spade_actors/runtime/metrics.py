"""What a process tells the hub about itself: counters, gauges, named waits and the lag of its loop.

Always holds: reading for a heartbeat changes nothing but the lag's window.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from spade_protocols.directory import Wait


class Metrics:
    """Counters only grow; gauges are what was set last."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self.gauges: dict[str, float] = {}

    def count(self, name: str, n: int = 1) -> None:
        """Adds `n` to a counter."""
        self.counters[name] = self.counters.get(name, 0) + n

    def gauge(self, name: str, value: float) -> None:
        """Sets a gauge."""
        self.gauges[name] = float(value)


class Waits:
    """The named waits of one process: nothing waits silently.

    `with ctx.waits("lease plays", on="hub"):` around every wait; `status` shows the oldest of each name.
    """

    def __init__(self) -> None:
        self._active: dict[int, Wait] = {}
        self._next = 0

    @contextmanager
    def __call__(self, name: str, on: str, deadline: float = 0.0) -> Iterator[None]:
        """Names what is awaited and from whom; `deadline` in seconds since the epoch, 0 = `on` owns the end."""
        self._next += 1
        key = self._next
        self._active[key] = Wait(name=name, on=on, since=time.time(), deadline=deadline)
        try:
            yield
        finally:
            del self._active[key]

    def current(self, most: int = 16) -> list[Wait]:
        """The waits going on, one (the oldest) per name and peer, at most `most`."""
        oldest: dict[tuple[str, str], Wait] = {}
        for wait in self._active.values():
            oldest.setdefault((wait.name, wait.on), wait)
        return list(oldest.values())[:most]


class LagMonitor(trio.abc.Instrument):
    """How long the loop was away from its waiting point: the longest any ready task had to wait for its turn."""

    def __init__(self) -> None:
        self._left: float | None = None
        self._worst = 0.0

    def after_io_wait(self, timeout: float) -> None:
        """The loop has work."""
        self._left = time.perf_counter()

    def before_io_wait(self, timeout: float) -> None:
        """The loop has done it."""
        if self._left is not None:
            busy = time.perf_counter() - self._left
            if busy > self._worst:
                self._worst = busy

    def take_ms(self) -> float:
        """The worst lag since the last call, in milliseconds."""
        worst, self._worst = self._worst, 0.0
        return worst * 1e3
