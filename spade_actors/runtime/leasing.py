"""Working off a leased queue with many tasks: what agents and designers have in common.

What always holds: at most `most` items are in hand; an item's task has ended before its place is given to another.
"""

from collections.abc import Awaitable, Callable

import trio

from spade_actors.runtime.context import Context
from spade_protocols.queues import Leased, Return

_LEASE_S = 10.0


class LeasedWork:
    """Items of one queue in this process's hands. `least`: places that must be free before more is asked for (a group's
    size); `gauge`: the name under which `status` shows how many are in hand."""

    def __init__(self, ctx: Context, queue: str, *, most: int, least: int, gauge: str) -> None:
        self._ctx = ctx
        self._queue = queue
        self._most = most
        self._least = least
        self._gauge = gauge
        self._ended = trio.Event()
        self.running = 0

    async def take(self, tasks: trio.Nursery, work: Callable[[Leased], Awaitable[None]]) -> None:
        """Leases while there is room and starts `work` on each item in `tasks`; returns on drain, while tasks go on."""
        async with trio.open_nursery() as nursery:

            async def stop() -> None:
                await self._ctx.draining.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(stop)
            while True:
                free = self._most - self.running
                if free < self._least:
                    self._ended = trio.Event()
                    await self._ended.wait()
                    continue
                for item in await self._ctx.hub.lease(self._queue, free, wait_s=_LEASE_S):
                    self._count(1)
                    tasks.start_soon(self._one, work, item)

    async def give_back(self, item: Leased, reason: str, *, counts: bool = True) -> None:
        """Returns a lease; with `counts` as a failed attempt, which is logged."""
        if counts:
            noun = self._queue.removesuffix("s")
            self._ctx.metrics.count(f"{self._queue}_returned")
            self._ctx.log.warning(f"{noun} given back", **{noun: item.id}, attempt=item.attempt, reason=reason)
        returned = Return(id=item.id, lease=item.lease, reason=reason[:300], counts=counts)
        await self._ctx.hub.release(self._queue, [returned])

    async def _one(self, work: Callable[[Leased], Awaitable[None]], item: Leased) -> None:
        try:
            await work(item)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        self.running += change
        self._ctx.metrics.gauge(self._gauge, self.running)
        if change < 0:
            self._ended.set()
