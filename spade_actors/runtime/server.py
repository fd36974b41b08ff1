"""The serving side: one ROUTER, handlers by message type.

What always holds: a call whose deadline has passed is never worked on; a call that is being worked on is not started a
second time when its copy arrives, and a copy of an answered one gets the same reply while that is remembered; a bad
message is answered with an `error`, counted, and harms no other; work waiting here is bounded, beyond it callers are told
`busy`. Plain functions are run at once, coroutine functions in a task of their own with the call's deadline.
"""

import inspect
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

import structlog
import trio

from spade_actors.runtime.calls import Identity
from spade_actors.runtime.errors import CallError
from spade_actors.runtime.metrics import Metrics
from spade_actors.runtime.sockets import Socket, Unreachable
from spade_protocols.codec import CodecError, Header, Limits, decode_header, pack_body, pack_header, unpack_body
from spade_protocols.common import Error
from spade_protocols.registry import BY_CLASS, BY_NAME, Call, Kind, Reply

REMEMBERED = 512
REMEMBERED_BYTES = 8 << 20

Result = Reply | tuple[Reply, Sequence[bytes]] | None
Handler = Callable[["CallContext"], Result | Awaitable[Result]]
_Key = tuple[str, str]


class CallContext:
    """One call as a handler sees it."""

    __slots__ = ("_deferred", "_server", "buffers", "ended", "header", "message", "peer")

    def __init__(self, server: "Server", peer: bytes, header: Header, message: Call, buffers: Sequence[bytes]) -> None:
        self._server = server
        self._deferred = False
        self.peer = peer
        self.header = header
        self.message = message
        self.buffers = buffers
        self.ended = False
        """answered or given up; an answer after that is dropped"""

    @property
    def remaining(self) -> float:
        """Seconds until the caller stops waiting; infinite without a deadline."""
        return self.header.deadline - time.time() if self.header.deadline else float("inf")

    def defer(self) -> None:
        """For a plain function: the answer comes later by `answer` or `fail`; the function returns None."""
        self._deferred = True

    def answer(self, reply: Reply, buffers: Sequence[bytes] = ()) -> None:
        """Answers a deferred call."""
        self._server.answer(self, reply, buffers)

    def fail(self, error: CallError) -> None:
        """Answers a deferred call with an error."""
        self._server.refuse(self, error)


class Server:
    """Receives calls from any number of peers and answers them.

    Args:
        socket: a bound, mandatory ROUTER.
        handlers: by call class; a handler returns the reply, or (reply, buffers), or raises `CallError`.
        nursery: where handler tasks run.
        tasks: coroutine handlers at once.
        backlog: calls that wait for one of them before others are refused `busy`.
    """

    def __init__(
        self,
        socket: Socket,
        handlers: Mapping[type[Call], Handler],
        nursery: trio.Nursery,
        who: Identity,
        limits: Limits,
        metrics: Metrics,
        log: structlog.stdlib.BoundLogger,
        *,
        tasks: int = 256,
        backlog: int = 4096,
    ) -> None:
        self._socket = socket
        self._handlers: dict[str, tuple[Handler, bool]] = {}
        for cls, handler in handlers.items():
            self._handlers[BY_CLASS[cls].name] = (handler, _is_async(handler))
        self._nursery = nursery
        self._who = who
        self._limits = limits
        self._metrics = metrics
        self._log = log
        self._tasks = tasks
        self._backlog_limit = backlog
        self._active = 0
        self._backlog: deque[CallContext] = deque()
        self._working: dict[_Key, CallContext] = {}
        self._remembered: OrderedDict[_Key, list[bytes]] = OrderedDict()
        self._remembered_bytes = 0
        self._batch: list[list[bytes]] | None = None
        self.refused: dict[str, int] = {}
        """messages refused, by error code"""

    async def run(self) -> None:
        """Serves until the socket is closed."""
        while True:
            try:
                messages = await self._socket.recv_many()
            except trio.ClosedResourceError:
                return
            self._batch = [] if len(messages) > 1 else None
            for frames in messages:
                self._receive(frames)
            if self._batch:
                for reply in self._batch:
                    self._send_now(reply)
            self._batch = None

    def answer(self, call: CallContext, reply: Reply, buffers: Sequence[bytes] = ()) -> None:
        """Sends the reply of a call, once."""
        if call.ended:
            return
        call.ended = True
        frames = self._frames(Kind.REPLY, call.header, reply, buffers)
        if self._working.pop((call.header.sender, call.header.id), None) is not None:
            self._remember(call, frames)
        self._send(call.peer, frames)

    def refuse(self, call: CallContext, error: CallError) -> None:
        """Sends an error reply to a call, once."""
        if call.ended:
            return
        call.ended = True
        self._working.pop((call.header.sender, call.header.id), None)
        self._refuse(call.peer, call.header, error)

    def _receive(self, frames: list[bytes]) -> None:
        if len(frames) < 3:
            self._count("frames")
            return
        peer = frames[0]
        try:
            header = decode_header(frames[1], self._limits)
        except CodecError as error:
            self._count(error.code)
            return
        try:
            call = self._admit(peer, header, frames)
            if call is None:
                return
            handler, is_async = self._handlers[header.type]
        except CodecError as error:
            self._refuse(peer, header, CallError(error.code, str(error)))
            return
        except CallError as error:
            self._refuse(peer, header, error)
            return
        if is_async:
            self._working[header.sender, header.id] = call
            if self._active < self._tasks:
                self._active += 1
                self._nursery.start_soon(self._work, call, name=header.type)
            elif len(self._backlog) < self._backlog_limit:
                self._backlog.append(call)
            else:
                self.refuse(call, CallError("busy", f"{self._who.name} has {self._backlog_limit} calls waiting", True))
            return
        try:
            result = handler(call)
        except CallError as error:
            self.refuse(call, error)
        except Exception as error:  # a handler's fault is the caller's answer, never the process's end
            self._failed(call, error)
        else:
            if result is not None:
                self._finish(call, result)  # type: ignore[arg-type]
            elif call._deferred:
                if not call.ended:
                    self._working[header.sender, header.id] = call
            else:
                self._failed(call, TypeError(f"the handler of {header.type} returned nothing"))

    def _admit(self, peer: bytes, header: Header, frames: list[bytes]) -> CallContext | None:
        """The call to work on, or None when its copy is already known."""
        if header.kind != "call":
            raise CallError("bad_header", f"a {header.kind[:20]!r} where calls are served")
        if header.deadline and header.deadline < time.time():
            raise CallError("deadline", f"{header.type}: the deadline passed before work began")
        key = (header.sender, header.id)
        working = self._working.get(key)
        if working is not None:
            working.peer = peer
            return None
        answered = self._remembered.get(key)
        if answered is not None:
            self._metrics.count("duplicate_calls")
            self._send(peer, answered)
            return None
        if header.type not in self._handlers:
            known = header.type in BY_NAME
            code = "unhandled_type" if known else "unknown_type"
            raise CallError(code, f"{self._who.name} does not serve {header.type[:80]!r}")
        if header.run and self._who.run and header.run != self._who.run:
            raise CallError("wrong_run", f"a call of run {header.run[:80]!r}, this is {self._who.run!r}")
        if len(frames) - 3 > self._limits.buffers:
            raise CallError("frames", f"{len(frames) - 3} buffers, at most {self._limits.buffers}")
        message = unpack_body(header.type, frames[2], self._limits)
        if not isinstance(message, Call):
            raise CallError("bad_header", f"{header.type} is not a call")
        for buffer in frames[3:]:
            if len(buffer) > self._limits.buffer:
                raise CallError("too_large", f"a buffer of {len(buffer)} bytes, at most {self._limits.buffer}")
        return CallContext(self, peer, header, message, frames[3:])

    async def _work(self, call: CallContext | None) -> None:
        """A worker task: one call, then whatever waits."""
        while call is not None:
            if not call.ended:
                await self._handle(call)
            call = self._backlog.popleft() if self._backlog else None
        self._active -= 1

    async def _handle(self, call: CallContext) -> None:
        handler = self._handlers[call.header.type][0]
        with trio.CancelScope(deadline=trio.current_time() + call.remaining) as scope:
            if call.remaining <= 0:
                scope.cancel()
            await trio.lowlevel.checkpoint_if_cancelled()
            try:
                result = await handler(call)  # type: ignore[misc]
            except CallError as error:
                self.refuse(call, error)
            except Exception as error:  # a handler's fault is the caller's answer, never the process's end
                self._failed(call, error)
            else:
                if result is None:
                    self._failed(call, TypeError(f"the handler of {call.header.type} returned nothing"))
                else:
                    self._finish(call, result)
        if scope.cancelled_caught:
            self.refuse(call, CallError("deadline", f"{call.header.type}: the deadline passed during the work"))

    def _finish(self, call: CallContext, result: Reply | tuple[Reply, Sequence[bytes]]) -> None:
        if type(result) is tuple:
            self.answer(call, result[0], result[1])
        else:
            self.answer(call, result)  # type: ignore[arg-type]

    def _failed(self, call: CallContext, error: Exception) -> None:
        self._log.error("handler failed", type=call.header.type, sender=call.header.sender, exc_info=error)
        self._metrics.count("handler_failures")
        self.refuse(call, CallError("failed", f"{call.header.type}: {type(error).__name__}: {error}"[:500]))

    def _frames(self, kind: str, header: Header, reply: Reply, buffers: Sequence[bytes]) -> list[bytes]:
        name = BY_CLASS[type(reply)].name
        who = self._who
        return [pack_header(kind, name, header.id, who.run, header.trace, who.name), pack_body(reply), *buffers]

    def _refuse(self, peer: bytes, header: Header, error: CallError) -> None:
        self._count(error.code)
        body = Error(code=error.code, text=error.text[:1000], retry=error.retry)
        self._send(peer, self._frames(Kind.ERROR, header, body, ()))

    def _send(self, peer: bytes, frames: list[bytes]) -> None:
        if self._batch is None:
            self._send_now([peer, *frames])
        else:  # the replies to messages that came together go out together: one wake-up of ZeroMQ's thread
            self._batch.append([peer, *frames])

    def _send_now(self, frames: list[bytes]) -> None:
        try:
            if not self._socket.try_send(frames):
                self._metrics.count("replies_dropped")
        except Unreachable:
            self._metrics.count("replies_unreachable")

    def _remember(self, call: CallContext, frames: list[bytes]) -> None:
        size = sum(map(len, frames))
        if size > REMEMBERED_BYTES // 4:
            return
        self._remembered[call.header.sender, call.header.id] = frames
        self._remembered_bytes += size
        while len(self._remembered) > REMEMBERED or self._remembered_bytes > REMEMBERED_BYTES:
            _, old = self._remembered.popitem(last=False)
            self._remembered_bytes -= sum(map(len, old))

    def _count(self, code: str) -> None:
        self.refused[code] = self.refused.get(code, 0) + 1
        self._metrics.count(f"refused.{code}")


def _is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
