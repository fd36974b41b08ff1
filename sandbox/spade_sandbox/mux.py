"""One epoll for all descriptors of a provider: one task waits, and wakes the others.

Registering a descriptor once and draining all that are ready per wake-up costs a third of a
`trio.lowlevel.wait_readable` per step. Deadlines of waiting sessions are looked at every 50 ms by the same task, so a
step needs no cancel scope of its own.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Protocol

import trio

_SWEEP_S = 0.05


class Waiting(Protocol):
    """Something with a deadline (`trio.current_time()` clock) that must be told when it has passed."""

    deadline: float

    def expired(self) -> None:
        """Called when the deadline has passed; must move it, or leave the mux's waiting set."""


class Mux:
    """Callbacks by descriptor. All methods are for the trio thread; callbacks must not block."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self.waiting: set[Waiting] = set()
        self._work = trio.Event()

    def add(self, descriptor: int, callback: Callable[[int], None]) -> None:
        """Call `callback(events)` whenever the descriptor is readable, until `remove`."""
        self._callbacks[descriptor] = callback
        self._epoll.register(descriptor, select.EPOLLIN)

    def want_write(self, descriptor: int, wanted: bool) -> None:
        """Whether the callback is also called when the descriptor can be written."""
        self._epoll.modify(descriptor, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def remove(self, descriptor: int) -> None:
        """Forget a descriptor; before it is closed, or its number could be taken by another."""
        if self._callbacks.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def wait_for(self, item: Waiting) -> None:
        """Watch an item's deadline until it is discarded from `waiting`."""
        self.waiting.add(item)
        if len(self.waiting) == 1:
            self._work.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._sweep)
            descriptor = self._epoll.fileno()
            while True:
                found = self._epoll.poll(0)
                for ready, events in found:
                    callback = self._callbacks.get(ready)
                    if callback is not None:  # an earlier callback of this round may have removed it
                        callback(events)
                if found:  # a turn for those just woken, then look again: cheaper than waiting in the kernel
                    await trio.lowlevel.checkpoint()
                else:
                    await trio.lowlevel.wait_readable(descriptor)

    async def _sweep(self) -> None:
        while True:
            if not self.waiting:
                self._work = trio.Event()
                await self._work.wait()
            await trio.sleep(_SWEEP_S)
            now = trio.current_time()
            for item in [item for item in self.waiting if item.deadline <= now]:
                item.expired()

    def close(self) -> None:
        """Free the epoll descriptor; nothing may be waiting any more."""
        self._callbacks.clear()
        self._epoll.close()
