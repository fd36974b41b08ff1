"""Keeps the planned processes alive, and ends them in order. Thin: decisions are in `restarts` and `drain`.

What always holds: a process is restarted only while the run runs; after `drain` returned nothing planned is alive; every death, restart
and kill is told to `tell` once.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from spade_actors.supervisor.children import Children
from spade_actors.supervisor.drain import Drain
from spade_actors.supervisor.last_words import last_words
from spade_actors.supervisor.plan import Planned
from spade_actors.supervisor.restarts import Restarts


@dataclass(frozen=True)
class Death:
    """One end of a process that was not asked to end."""

    name: str
    role: str
    code: int
    lived_s: float
    restart_in_s: float | None
    """None: the run gives up"""
    last_words: str
    log: Path


class Keeper:
    """Starts what is planned and keeps it alive until `drain`."""

    def __init__(
        self,
        children: Children,
        command: Callable[[Planned], Sequence[str]],
        environment: dict[str, str],
        tell: Callable[[Death], None],
        restarts: Restarts | None = None,
        drain: Drain | None = None,
    ) -> None:
        self.children = children
        self.restarts = restarts or Restarts()
        self.gave_up: Death | None = None
        self.stopping = trio.Event()
        self.drain_state = drain or Drain()
        self._command = command
        self._environment = environment
        self._tell = tell
        self._changed = trio.Event()

    async def keep(self, planned: Planned) -> None:
        """One process's life: start, wait, restart; returns when it ended while stopping, or sets `gave_up`."""
        while not self.stopping.is_set():
            child = self.children.start(planned.name, planned.role, self._command(planned), self._environment)
            code = await self.children.wait(child)
            self._wake()
            if self.stopping.is_set():
                return
            lived = time.monotonic() - child.started
            delay = self.restarts.died(planned.name, lived)
            words = last_words(planned.name, self.children.logs)
            death = Death(planned.name, planned.role, code, lived, delay, words.text, words.log)
            self._tell(death)
            if delay is None:
                self.gave_up = death
                self.stopping.set()
                return
            with trio.move_on_after(delay):
                await self.stopping.wait()

    def stop(self, *, now: bool = False) -> None:
        """No more restarts; `now`: everything alive is killed at once, drain or not."""
        self.stopping.set()
        if now:
            self.drain_state.now_or_never = True
        self._wake()

    def hurry(self, most_s: float) -> None:
        """Bounds every role's drain: there is little left to save."""
        self.drain_state.bounds = tuple((role, min(bound, most_s)) for role, bound in self.drain_state.bounds)
        self._wake()

    async def drain(self, before: Callable[[str], None]) -> None:
        """Ends everything in order; `before` is told the name of each process before it is asked to end."""
        self.stopping.set()
        while living := [(child.name, child.role) for child in self.children.living.values()]:
            self._changed = trio.Event()
            orders = self.drain_state.step(living, trio.current_time())
            for name in orders.ask:
                before(name)
                self.children.ask(name)
            for name in orders.kill:
                self.children.kill(name)
            with trio.move_on_after(self.drain_state.next_check(living, trio.current_time())):
                await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
