"""Warm jails: started ahead of need, each used for one source.

Two classes of `str` hash seed are kept, so that two jails that disagree only in hash order are at hand for judging
determinism. The seeds themselves are fixed: a play repeated elsewhere sees the same order. Refilling is gentle (one
start at a time) and stops when the pool closes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import structlog
import trio

from .errors import Fault, InfrastructureFailure
from .jail import Jail, Totals
from .limits import JailLimits
from .mux import Mux

_log = structlog.get_logger(__name__)
HASH_SEEDS = ("101", "202")
_PAUSE_S = 0.005  # between two starts
_BACKOFF_S = 1.0  # after a start that failed

Command = Callable[[int, str], Sequence[str]]  # (control descriptor, hash seed) -> argument list


class Pool:
    """`size` warm jails of class 0, and `twins` of class 1."""

    def __init__(
        self, mux: Mux, limits: JailLimits, command: Command, environment: dict[str, str], size: int, twins: int
    ):
        self.totals = Totals()
        self.jails: set[Jail] = set()
        self._mux = mux
        self._limits = limits
        self._command = command
        self._environment = environment
        self._sizes = (size, twins)
        self._warm: tuple[deque[Jail], deque[Jail]] = (deque(), deque())
        self._need = trio.Event()
        self._full = trio.Event()
        self._closing = False

    @property
    def warm(self) -> int:
        """Jails waiting for a source."""
        return sum(len(queue) for queue in self._warm)

    async def run(self) -> None:
        """Keep the pool filled until cancelled."""
        while True:
            self._need = trio.Event()
            for hash_class, queue in enumerate(self._warm):
                while len(queue) < self._sizes[hash_class]:
                    try:
                        jail = await self._start(hash_class)
                    except InfrastructureFailure as failure:
                        _log.warning("a warm jail did not start", reason=failure.detail)
                        await trio.sleep(_BACKOFF_S)
                        continue
                    jail.warm_up()
                    queue.append(jail)
                    await trio.sleep(_PAUSE_S)
            self._full.set()
            await self._need.wait()
            self._full = trio.Event()

    async def full(self) -> None:
        """Wait until every warm jail is ready (measurements; a run need not wait)."""
        await self._full.wait()

    async def acquire(self, hash_class: int = 0) -> Jail:
        """A jail without a source: a warm one, or else a new one. Raises `InfrastructureFailure`."""
        queue = self._warm[hash_class]
        self._need.set()
        while queue:
            jail = queue.popleft()
            if jail.alive:
                return jail
        return await self._start(hash_class)

    async def _start(self, hash_class: int) -> Jail:
        if self._closing:
            raise InfrastructureFailure(Fault.CLOSED, "the sandbox is closing")
        jail = Jail(self._mux, self._limits, self.totals, self._forget)
        seed = HASH_SEEDS[hash_class]
        jail.start(lambda control: self._command(control, seed), self._environment | {"PYTHONHASHSEED": seed})
        self.jails.add(jail)
        try:
            await jail.ready()
        except BaseException:
            jail.kill()
            raise
        return jail

    def _forget(self, jail: Jail) -> None:
        """A jail has ended."""
        self.jails.discard(jail)
        for queue in self._warm:
            if jail in queue:
                queue.remove(jail)
        self._need.set()

    async def aclose(self) -> None:
        """End every jail and wait until all are reaped. Not cancelled half-way."""
        self._closing = True
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for jail in list(self.jails):
                    nursery.start_soon(jail.aclose)
