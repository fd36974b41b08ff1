"""Between the machine and the disk: every decision is saved before anybody hears of it.

Always holds: inputs change the machine at once and without a checkpoint between; all that changed since the last commit
is written in one transaction with the bulk that came along; effects go to their lanes, and callers are answered, only
after that commit. A write that fails ends the process, and the next one goes on from the last commit.
"""

from collections.abc import Callable
from functools import partial

import trio

from spade_actors.judge import spool
from spade_actors.judge.effects import LANES, Effect
from spade_actors.judge.machine import Machine
from spade_actors.judge.spool import Statement
from spade_actors.runtime.store import Store

Lane = trio.MemoryReceiveChannel[tuple[int, Effect]]


class Desk:
    """Owns the machine's journal."""

    def __init__(self, store: Store, machine: Machine, left: list[tuple[int, Effect]]) -> None:
        self.machine = machine
        self._store = store
        self._number = max((number for number, _ in left), default=0)
        self._extra: list[Statement] = []
        self._done: list[int] = []
        self._waiters: list[trio.Event] = []
        self._wake = trio.Event()
        self._idle = trio.Event()
        self.scoring = trio.Event()
        """set whenever a trial may have become complete"""
        self._send: dict[str, trio.MemorySendChannel[tuple[int, Effect]]] = {}
        self.lanes: dict[str, Lane] = {}
        self.backlog = dict.fromkeys(LANES.values(), 0)
        for lane in self.backlog:
            self._send[lane], self.lanes[lane] = trio.open_memory_channel(float("inf"))
        for number, effect in left:
            self._dispatch(number, effect)

    def touch(self, *extra: Statement) -> None:
        """The machine changed, or there is bulk to be written: a commit is due."""
        self._extra += extra
        self._wake.set()

    async def saved(self) -> None:
        """Returns when everything decided so far is on disk. Cancellation drops only the waiting."""
        event = trio.Event()
        self._waiters.append(event)
        self._wake.set()
        await event.wait()

    def carried_out(self, number: int, effect: Effect, *extra: Statement) -> None:
        """An effect happened; forgotten with the next commit."""
        self.backlog[LANES[type(effect)]] -= 1
        if not any(self.backlog.values()):
            self._idle.set()
        self._done.append(number)
        self.touch(*extra)

    async def idle(self) -> None:
        """Returns when a commit left nothing to be carried out."""
        await self.saved()
        while any(self.backlog.values()):
            self._idle = trio.Event()
            await self._idle.wait()
            await self.saved()

    async def commit_forever(self, plan: Callable[[], None]) -> None:
        """Commits whenever something changed, after `plan` let the machine open what it may.

        Raises:
            StoreError: the journal cannot be written.
        """
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            plan()
            change = self.machine.take()
            numbered = [(self._number + i, effect) for i, effect in enumerate(change.effects, 1)]
            self._number += len(numbered)
            todo = [*self._extra, *spool.statements(change), *spool.effect_statements(numbered, self._done)]
            waiters = self._waiters
            self._extra, self._done, self._waiters = [], [], []
            await self._store.write(partial(spool.run, todo=todo))
            for number, effect in numbered:
                self._dispatch(number, effect)
            for waiter in waiters:
                waiter.set()
            self.scoring.set()

    def _dispatch(self, number: int, effect: Effect) -> None:
        lane = LANES[type(effect)]
        self.backlog[lane] += 1
        self._send[lane].send_nowait((number, effect))
