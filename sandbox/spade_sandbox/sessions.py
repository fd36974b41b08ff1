"""The executor's table of episodes: bounded, idempotent, and cleaned up whatever the holder does.

Always holds: at most `slots` episodes are open or opening and at most `backlog` opens wait for a slot, in order; an open of
the same play and attempt, and a step of the same turn, get the answer they got before; an episode ends by close, by its
holder's end, or `session_s` after it opened. Environment failures are answers; infrastructure failures end the episode and
are raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import NamedTuple, Protocol

import trio

from .errors import EnvironmentFailure
from .replies import Reset, Step


class Busy(Exception):
    """No slot, and no room to wait for one."""


class UnknownSession(Exception):
    """The session never was, or has ended: the holder's play is lost to the infrastructure."""


class BadTurn(ValueError):
    """A step out of order."""


class Opened(NamedTuple):
    """An episode, or why the environment could not start one."""

    session: str
    observation: str
    failure: str = ""  # "reason: detail" of an environment failure


class Stepped(NamedTuple):
    """The environment's answer, or how it failed."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    failure: str = ""  # reason of an environment failure
    evidence: str = ""


class Episode(Protocol):
    """What `session.Session` offers."""

    async def step(self, action: str, *, timeout: float | None = None) -> Step: ...

    def close(self) -> None: ...


class Handle(Protocol):
    """What `provider.Environment` offers."""

    async def open(self, seed: int, *, max_turns: int = 0, deadline: float | None = None) -> tuple[Episode, Reset]: ...

    def close(self) -> None: ...


class _Entry:
    """One episode; `opened` is set once its open has ended, with `answer` or `error` or, withdrawn, with neither."""

    __slots__ = (
        *(
            "answer",
            "episode",
            "error",
            "handle",
            "holder",
            "key",
            "last",
            "lock",
            "opened",
            "opened_at",
            "opening",
            "slot",
        ),
        "turn",
    )

    def __init__(self, key: tuple[str, int], holder: str, now: float) -> None:
        self.key = key
        self.holder = holder
        self.opened_at = now
        self.opening = trio.CancelScope()
        self.opened = trio.Event()
        self.answer: Opened | None = None
        self.error: Exception | None = None
        self.slot = False
        self.handle: Handle | None = None
        self.episode: Episode | None = None
        self.lock = trio.Lock()
        self.turn = -1
        self.last: Stepped | None = None


class SessionTable:
    """`environment(hash)` gives a handle on a stored environment; it may raise `EnvironmentFailure`, which is the answer."""

    def __init__(
        self,
        environment: Callable[[str], Awaitable[Handle]],
        *,
        slots: int,
        backlog: int,
        session_s: float,
        name: str = "s",
    ) -> None:
        self._environment = environment
        self._slots = trio.CapacityLimiter(slots)
        self._backlog = backlog
        self._session_s = session_s
        self._name = name
        self._ids = count(1)
        self._entries: dict[str, _Entry] = {}
        self._by_key: dict[tuple[str, int], str] = {}
        self._empty = trio.Event()
        self.opened_total = 0
        self.steps_total = 0

    @property
    def open_count(self) -> int:
        """Episodes that hold a slot."""
        return int(self._slots.borrowed_tokens)

    @property
    def waiting(self) -> int:
        """Opens that wait for a slot."""
        return self._slots.statistics().tasks_waiting

    @property
    def free(self) -> int:
        """Slots an open would get at once."""
        return int(self._slots.available_tokens)

    async def open(self, play: str, attempt: int, environment: str, seed: int, holder: str, max_turns: int) -> Opened:
        """Opens an episode, waiting for a slot if it must.

        Raises `Busy`, `InfrastructureFailure`, `UnknownSession` when it was ended while it opened, or what `environment` raises beside
        `EnvironmentFailure`. Cancellation withdraws the open; nothing stays behind.
        """
        key = (play, attempt)
        while (known := self._by_key.get(key)) is not None:
            entry = self._entries[known]
            await entry.opened.wait()
            if entry.error is not None:
                raise entry.error
            if entry.answer is not None:
                return entry.answer
        if self._slots.available_tokens < 1 and self.waiting >= self._backlog:
            raise Busy
        id_ = f"{self._name}-{next(self._ids)}"
        entry = self._entries[id_] = _Entry(key, holder, trio.current_time())
        self._by_key[key] = id_
        try:
            with entry.opening:
                await self._slots.acquire_on_behalf_of(entry)
                entry.slot = True
                entry.opened_at = trio.current_time()
                entry.answer = await self._start(id_, entry, environment, seed, max_turns)
        except Exception as error:
            entry.error = error
            raise
        finally:
            if entry.answer is None or entry.answer.failure:
                self._drop(id_, entry)
            entry.opened.set()
        if entry.answer is None:
            raise UnknownSession(id_)
        self.opened_total += 1
        return entry.answer

    async def _start(self, id_: str, entry: _Entry, environment: str, seed: int, max_turns: int) -> Opened:
        try:
            entry.handle = await self._environment(environment)
            entry.episode, reset = await entry.handle.open(seed, max_turns=max_turns)
        except EnvironmentFailure as failure:
            return Opened("", "", f"{failure.reason.value}: {failure.detail}"[:300])
        return Opened(id_, reset.observation)

    async def step(self, session: str, turn: int, action: str) -> Stepped:
        """Plays turn `turn` (from 0). Raises `UnknownSession`, `BadTurn` or `InfrastructureFailure`.

        Cancellation half-way ends the episode.
        """
        entry = self._entries.get(session)
        if entry is None or entry.episode is None:
            raise UnknownSession(session)
        if turn == entry.turn and entry.last is not None and not entry.lock.locked():
            return entry.last
        async with entry.lock:
            if turn == entry.turn and entry.last is not None:
                return entry.last
            if session not in self._entries:
                raise UnknownSession(session)
            if turn != entry.turn + 1 or (entry.last is not None and entry.last.failure):
                raise BadTurn(f"session {session}: turn {turn} after turn {entry.turn}, expected {entry.turn + 1}")
            whole = False
            try:
                entry.last = await self._play(entry.episode, action)
                entry.turn = turn
                whole = True
            finally:
                if not whole:
                    self._end(session)
            self.steps_total += 1
            return entry.last

    async def _play(self, episode: Episode, action: str) -> Stepped:
        try:
            return Stepped(*(await episode.step(action))[:4])
        except EnvironmentFailure as failure:
            return Stepped("", 0.0, False, False, failure.reason.value, f"{failure.phase}: {failure.detail}"[:500])

    def close(self, session: str) -> None:
        """Ends an episode; an unknown one is fine."""
        self._end(session)

    def end_holder(self, holder: str, *, opened_before: float) -> int:
        """Ends the episodes of a holder that died or left, opened before that moment (trio's clock); returns how many."""
        gone = [i for i, e in self._entries.items() if e.holder == holder and e.opened_at <= opened_before]
        for id_ in gone:
            self._end(id_)
        return len(gone)

    def expire(self) -> int:
        """Ends episodes over their wall clock; returns how many. Call it now and then."""
        bound = trio.current_time() - self._session_s
        old = [i for i, e in self._entries.items() if e.opened.is_set() and e.opened_at < bound]
        for id_ in old:
            self._end(id_)
        return len(old)

    async def emptied(self) -> None:
        """Waits until no episode is open or waiting."""
        while self._entries:
            self._empty = trio.Event()
            await self._empty.wait()

    def close_all(self) -> None:
        """Ends every episode."""
        for id_ in list(self._entries):
            self._end(id_)

    def _end(self, id_: str) -> None:
        entry = self._entries.get(id_)
        if entry is not None and entry.opened.is_set():
            self._drop(id_, entry)
        elif entry is not None:
            entry.opening.cancel()  # its own task drops it

    def _drop(self, id_: str, entry: _Entry) -> None:
        if entry.episode is not None:
            entry.episode.close()
        if entry.handle is not None:
            entry.handle.close()
        self._entries.pop(id_, None)
        if self._by_key.get(entry.key) == id_:
            del self._by_key[entry.key]
        if entry.slot:
            entry.slot = False
            self._slots.release_on_behalf_of(entry)
        if not self._entries:
            self._empty.set()
