"""The calling side: typed calls to one address, many in flight.

What always holds: a call ends exactly once, with the validated reply or an exception; its id is made once, and every copy
sent again after silence carries the same id; a reply to a call that is no longer waited for is dropped, or given to the
call's `on_late` when there is one. No task and no cancel scope per call: one clock for all, and one receiver per address,
which is the call itself while it is alone, else a pump task.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import trio
import zmq
from outcome import Error as Raised
from outcome import Outcome, Value

from spade_actors.runtime.errors import CallFailed, CallTimeout, PeerGone
from spade_actors.runtime.metrics import Metrics
from spade_actors.runtime.sockets import HOT, Socket, SocketFactory
from spade_actors.runtime.timers import Timers
from spade_protocols.codec import CodecError, Header, Limits, decode_header, pack_body, pack_header, unpack_body
from spade_protocols.common import Error
from spade_protocols.registry import BY_CLASS, Call, Reply

FIRST_RESEND_S = 1.0
LAST_RESEND_S = 8.0
_ABANDONED = 1024
_FEW = 4
"""calls in flight up to which each is sent at once; beyond, those of one turn of the loop go out together"""
_MOST_POSTED = 1024
_ids = itertools.count(1)  # of the whole process: an id stays unique when a connection is dropped and made again


class Answer(NamedTuple):
    """A reply and its raw frames."""

    message: Reply
    buffers: Sequence[bytes]


class Identity:
    """Who this process is on the wire. `run` is empty until the hub has told it."""

    def __init__(self, name: str, incarnation: str, run: str = "") -> None:
        self.name = name
        self.incarnation = incarnation
        self.run = run


OnLate = Callable[[Answer], None]


class _Slot:
    """One call in flight."""

    __slots__ = ("deadline", "frames", "interval", "on_late", "outcome", "resend_at", "sent_at", "task")

    def __init__(self, frames: list[bytes], deadline: float, resend_at: float, on_late: OnLate | None) -> None:
        self.frames = frames
        self.deadline = deadline
        self.interval = FIRST_RESEND_S
        self.resend_at = resend_at
        self.sent_at = resend_at - FIRST_RESEND_S
        self.on_late = on_late
        self.task: trio.lowlevel.Task | None = None
        """parked until the outcome, or None while the call receives by itself"""
        self.outcome: Outcome[tuple[Header, list[bytes]]] | None = None


class Caller:
    """Calls to one address. Made by `Callers`; shared by all tasks of the process."""

    def __init__(self, address: str, socket: Socket, who: Identity, timers: Timers, limits: Limits, metrics: Metrics):
        self.address = address
        self._socket = socket
        self._who = who
        self._timers = timers
        self._limits = limits
        self._metrics = metrics
        self._pending: dict[str, _Slot] = {}
        self._abandoned: dict[str, OnLate] = {}
        self._receiving = False
        self._pump: trio.lowlevel.Task | None = None
        self._alone = 0
        self._prefix = f"{who.incarnation}."

    @property
    def in_flight(self) -> int:
        """Calls that wait for their reply."""
        return len(self._pending)

    async def call(
        self,
        message: Call,
        *,
        timeout: float,
        buffers: Sequence[bytes] = (),
        trace: str = "",
        on_late: OnLate | None = None,
    ) -> Answer:
        """Sends a call and waits for its reply; at-least-once, so the handler is idempotent.

        Args:
            message: a registered `Call`.
            timeout: seconds until `CallTimeout`; the receiver sees the absolute deadline and never works past it.
            buffers: raw frames the message describes.
            trace: travels with the call.
            on_late: given a reply that comes after this call was cancelled or timed out, e.g. to give back a lease.

        Raises:
            CallTimeout: no reply in time.
            CallFailed: the peer's error reply, or a reply that is not of the call's reply type.
            PeerGone: the directory declared the peer dead meanwhile.

        Cancellation: the call is forgotten; the peer may or may not have worked on it. A reply that was received is
        returned even if the cancellation comes at the same moment.
        """
        if self._socket.closed:
            raise PeerGone(f"{self.address}: the connection was closed")
        spec = BY_CLASS[type(message)]
        now = trio.current_time()
        id_ = self._prefix + str(next(_ids))
        who = self._who
        header = pack_header("call", spec.name, id_, who.run, trace, who.name, time.time() + timeout)
        slot = _Slot([header, pack_body(message), *buffers], now + timeout, now + FIRST_RESEND_S, on_late)
        await trio.lowlevel.checkpoint_if_cancelled()
        if len(self._pending) > _FEW and self._socket.posted < _MOST_POSTED:
            self._socket.post(slot.frames)
        elif not self._socket.try_send(slot.frames):
            with trio.move_on_at(slot.deadline):
                await self._socket.send(slot.frames)
        self._pending[id_] = slot
        self._arm(id_, slot)
        if self._receiving or self._pump is None:
            frames = await self._park(id_, slot)
        else:
            frames = await self._receive_alone(id_, slot)
        reply = self._decode(*frames)
        if type(reply) is not spec.reply:
            if type(reply) is Error:
                if reply.code == "deadline":
                    raise CallTimeout(f"{self.address}: {reply.text}")
                raise CallFailed(reply.code, reply.text, reply.retry)
            raise CallFailed("bad_reply", f"{spec.name}: the reply is a {frames[0].type}")
        return Answer(reply, frames[1][2:])

    async def run(self) -> None:
        """Receives replies, while more than one call waits, until the socket is closed; start it once."""
        socket = self._socket
        while not socket.closed:
            if self._receiving or not (self._pending or self._abandoned):
                self._pump = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._stop_pump)
                continue
            self._receiving = True
            try:
                messages = await socket.recv_many()
            except trio.ClosedResourceError:
                return
            finally:
                self._receiving = False
            for frames in messages:
                self._receive(frames)

    async def _receive_alone(self, id_: str, slot: _Slot) -> tuple[Header, list[bytes]]:
        """One hop less than through the pump: a third of a round trip."""
        self._alone += 1
        self._receiving = True
        try:
            if self._alone % HOT == 0:
                await trio.lowlevel.checkpoint()
            while slot.outcome is None:
                for frames in await self._socket.recv_many():
                    self._receive(frames)
        except BaseException:
            self._forget(id_)
            raise
        finally:
            self._receiving = False
            if self._pending or self._abandoned:
                self._wake_pump()
        return slot.outcome.unwrap()

    async def _park(self, id_: str, slot: _Slot) -> tuple[Header, list[bytes]]:
        slot.task = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._forget(id_)
            return trio.lowlevel.Abort.SUCCEEDED

        if not self._receiving:
            self._wake_pump()
        frames: tuple[Header, list[bytes]] = await trio.lowlevel.wait_task_rescheduled(abort)
        return frames

    def _stop_pump(self, _: object) -> trio.lowlevel.Abort:
        self._pump = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _wake_pump(self) -> None:
        if self._pump is not None:
            trio.lowlevel.reschedule(self._pump)
            self._pump = None

    def resend(self) -> None:
        """Sends every waiting call again now, save those sent just before: the peer is there again."""
        now = trio.current_time()
        for slot in list(self._pending.values()):
            if now - slot.sent_at > FIRST_RESEND_S / 4:
                slot.sent_at = now
                self._socket.try_send(slot.frames)

    def fail(self, reason: str) -> None:
        """Ends every waiting call with `PeerGone`."""
        for id_, slot in list(self._pending.items()):
            self._end(id_, slot, Raised(PeerGone(f"{self.address}: {reason}")))
            self._stop_alone(slot)

    def close(self) -> None:
        """Ends every waiting call and closes the socket."""
        self.fail("closed here")
        self._socket.close()
        self._wake_pump()

    def _receive(self, frames: list[bytes]) -> None:
        try:
            if len(frames) < 2:
                raise CodecError("frames", f"{len(frames)} frames")
            header = decode_header(frames[0], self._limits)
        except CodecError as error:
            self._metrics.count(f"refused.{error.code}")
            return
        slot = self._pending.get(header.id)
        if slot is not None:
            self._end(header.id, slot, Value((header, frames)))
            return
        self._metrics.count("late_replies")
        on_late = self._abandoned.pop(header.id, None)
        if on_late is not None:
            try:
                reply = self._decode(header, frames)
            except CallFailed:
                return
            on_late(Answer(reply, frames[2:]))

    def _decode(self, header: Header, frames: list[bytes]) -> Reply:
        try:
            reply = unpack_body(header.type, frames[1], self._limits)
        except CodecError as error:
            self._metrics.count(f"refused.{error.code}")
            raise CallFailed(error.code, f"the reply: {error}") from None
        if not isinstance(reply, Reply):
            raise CallFailed("bad_reply", f"the reply is a {header.type}")
        return reply

    def _arm(self, id_: str, slot: _Slot) -> None:
        def due(now: float) -> None:
            if self._pending.get(id_) is not slot:
                return
            if now >= slot.deadline:
                self._metrics.count("timeouts")
                text = f"{self.address} did not answer in time"
                self._forget(id_, slot)
                self._end(id_, slot, Raised(CallTimeout(text)))
                self._stop_alone(slot)
                return
            self._metrics.count("resends")
            self._socket.try_send(slot.frames)
            slot.sent_at = now
            slot.interval = min(2 * slot.interval, LAST_RESEND_S)
            slot.resend_at = now + slot.interval
            self._timers.at(min(slot.resend_at, slot.deadline), due)

        self._timers.at(min(slot.resend_at, slot.deadline), due)

    def _forget(self, id_: str, slot: _Slot | None = None) -> None:
        slot = self._pending.pop(id_, slot)
        if slot is not None and slot.on_late is not None:
            self._abandoned[id_] = slot.on_late
            if len(self._abandoned) > _ABANDONED:
                del self._abandoned[next(iter(self._abandoned))]

    def _stop_alone(self, slot: _Slot) -> None:
        if slot.task is None:
            self._socket.interrupt()

    def _end(self, id_: str, slot: _Slot, outcome: Outcome[tuple[Header, list[bytes]]]) -> None:
        self._pending.pop(id_, None)
        slot.outcome = outcome
        if slot.task is not None:
            trio.lowlevel.reschedule(slot.task, outcome)


class Callers:
    """One `Caller` per address, opened when first asked for."""

    def __init__(
        self,
        nursery: trio.Nursery,
        sockets: SocketFactory,
        who: Identity,
        timers: Timers,
        limits: Limits,
        metrics: Metrics,
    ) -> None:
        self._nursery = nursery
        self._sockets = sockets
        self._parts = (who, timers, limits, metrics)
        self._by_address: dict[str, Caller] = {}

    def get(self, address: str) -> Caller:
        """The caller of this address; connecting happens in the background."""
        caller = self._by_address.get(address)
        if caller is None:
            socket = self._sockets.open(zmq.DEALER)
            socket.raw.connect(address)
            caller = Caller(address, socket, *self._parts)
            self._by_address[address] = caller
            self._nursery.start_soon(caller.run, name=f"replies from {address}")
            self._nursery.start_soon(socket.run_posts, name=f"calls to {address}")
        return caller

    def known(self, address: str) -> Caller | None:
        """The caller of this address if there is one already."""
        return self._by_address.get(address)

    def drop(self, address: str, reason: str) -> None:
        """The peer is gone for good: waiting calls end with `PeerGone`, the connection is closed."""
        caller = self._by_address.pop(address, None)
        if caller is not None:
            caller.fail(reason)
            caller.close()
