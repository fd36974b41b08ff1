"""A stream of the run's events, in order, without gaps and without duplicates, across reconnects and hub restarts.

The socket says what is new; whatever it missed (late subscription, high-water mark, hub restart) is fetched from the
journal. The decisions are `follow.Follower`'s; this is the socket and the calls around it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NamedTuple

import trio
import zmq

from spade_actors.runtime.errors import CallFailed, CallTimeout
from spade_actors.runtime.follow import Follower, Verdict
from spade_actors.runtime.hub_client import HubClient
from spade_actors.runtime.metrics import Metrics
from spade_actors.runtime.sockets import Socket, SocketFactory
from spade_protocols.codec import CodecError, Limits, decode_header, unpack_body, unpack_news
from spade_protocols.events import Stored
from spade_protocols.registry import BY_CLASS, Event


class Received(NamedTuple):
    """One event."""

    seq: int
    type: str
    message: Event
    at: float
    """when it was committed, seconds since the epoch"""
    key: str
    sender: str
    trace: str


class Subscription:
    """`async with ctx.events(...) as sub: async for event in sub: ...`; one consumer.

    With `snapshot` the retained events come first; with `after` everything after that sequence number comes instead.
    `on_news` is called when the hub greets a (re)joining subscriber, as after its restart.
    An event that cannot be decoded (a newer version's type) is counted and skipped.
    """

    def __init__(
        self,
        hub: HubClient,
        sockets: SocketFactory,
        address: str,
        types: Sequence[type[Event]],
        limits: Limits,
        metrics: Metrics,
        *,
        snapshot: bool,
        after: int | None,
        on_news: Callable[[], None] | None = None,
    ) -> None:
        self._hub = hub
        self._sockets = sockets
        self._address = address
        self._types = [BY_CLASS[cls].name for cls in types]
        self._limits = limits
        self._metrics = metrics
        self._snapshot = snapshot
        self._after = after
        self._on_news = on_news
        self._follower = Follower(frozenset(self._types), after or 0)
        self._ready: deque[Stored] = deque()
        self._covered = 0
        self._behind = False
        self._seen_behind = -1
        self._scope: trio.CancelScope | None = None
        self._socket: Socket | None = None
        self.closed = False

    @property
    def cursor(self) -> int:
        """Everything of these types up to this sequence number was delivered."""
        return self._follower.cursor

    async def __aenter__(self) -> "Subscription":
        self._socket = self._sockets.open(zmq.SUB)
        for name in self._types or [""]:
            self._socket.raw.setsockopt(zmq.SUBSCRIBE, name.encode())
        self._socket.raw.connect(self._address)
        if self._after is not None:
            self._behind = True
            return self
        state = await self._retry_snapshot()
        if self._snapshot:
            self._ready.extend(state[0])
        self._covered = state[1]
        if not self._ready:
            self._follower.delivered(self._covered)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closed = True
        if self._socket is not None:
            self._socket.close()

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Received:
        """The next event. Cancellation loses none."""
        if self._socket is None:
            raise RuntimeError("a subscription is used inside `async with`")
        while True:
            while self._ready:
                received = self._take(self._ready.popleft())
                if received is not None:
                    return received
            if self._behind:
                await self._fetch()
                continue
            frames: list[bytes] | None = None
            with trio.CancelScope() as self._scope:
                frames = await self._socket.recv()
            self._scope = None
            if frames is not None:
                received = self._look(frames)
                if received is not None:
                    return received

    def note(self, newest: dict[str, int]) -> None:
        """The hub's newest sequence numbers, once per heartbeat: a consumer that waits while it is behind fetches."""
        if self._scope is None or not self._follower.behind(newest):
            self._seen_behind = -1
        elif self._seen_behind == self._follower.cursor:
            self._behind = True
            self._scope.cancel()
        else:
            self._seen_behind = self._follower.cursor

    def _take(self, stored: Stored) -> Received | None:
        self._follower.delivered(stored.seq)
        if not self._ready:
            self._follower.delivered(self._covered)
        try:
            message = unpack_body(stored.type, stored.body, self._limits)
        except CodecError as error:
            self._metrics.count(f"refused.{error.code}")
            return None
        if not isinstance(message, Event):
            self._metrics.count("refused.bad_event")
            return None
        return Received(stored.seq, stored.type, message, stored.at, stored.key, stored.sender, stored.trace)

    def _look(self, frames: list[bytes]) -> Received | None:
        try:
            if len(frames) != 4:
                raise CodecError("frames", f"an event of {len(frames)} frames, 4 expected")
            header = decode_header(frames[1], self._limits)
            if not self._follower.wants(header.type, header.seq):
                return None
            verdict = self._follower.on_event(header.type, header.seq, unpack_news(frames[3], self._limits))
        except CodecError as error:
            self._metrics.count(f"refused.{error.code}")
            return None
        if header.seq == 0 and self._on_news is not None:
            self._on_news()
        if verdict is Verdict.REPLAY:
            self._metrics.count("replays")
            self._behind = True
        if verdict is not Verdict.DELIVER:
            return None
        key = frames[0][len(header.type.encode()) + 1 :].decode(errors="replace")
        return self._take(
            Stored(
                seq=header.seq,
                type=header.type,
                sender=header.sender,
                trace=header.trace,
                at=header.deadline,
                body=frames[2],
                key=key,
            )
        )

    async def _fetch(self) -> None:
        try:
            events = await self._hub.replay(self._follower.cursor, self._types)
        except CallTimeout:
            return
        except CallFailed as error:
            if not error.retry:
                raise
            return
        self._behind = events.more
        self._covered = events.events[-1].seq if events.more else events.seq
        self._ready.extend(events.events)
        if not self._ready:
            self._follower.delivered(self._covered)

    async def _retry_snapshot(self) -> tuple[list[Stored], int]:
        while True:
            try:
                state = await self._hub.snapshot(self._types)
            except CallTimeout:
                continue
            return state.events, state.seq
