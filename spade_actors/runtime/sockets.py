"""ZeroMQ sockets under trio.

A ZeroMQ descriptor is edge-triggered, and *any* operation on the socket may eat the edge: a send can process the internal
command that says "a message has arrived", after which the descriptor stays silent although a message is there. What
always holds here, therefore:

* after every operation, if some task waits on this socket, EVENTS is read again and whoever can go on is woken;
* there is one waiter per descriptor, the *leader*; it waits with `wait_readable` for sending as well as for receiving,
  because the descriptor is only ever readable, and when it leaves it passes the lead on;
* between a successful receive and the return to the caller there is no checkpoint, so a cancelled receive loses nothing;
* trio is told (`notify_closing`) before the descriptor goes away;
* a receive that always succeeds at once still yields to other tasks every `HOT` messages.
"""

import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import trio
import zmq

HOT = 64
_NOBLOCK = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS = zmq.EVENTS  # as enum members: a plain int costs a look-up at every call
_RCVMORE = zmq.RCVMORE
_IN = int(zmq.POLLIN)
_OUT = int(zmq.POLLOUT)


class Unreachable(Exception):
    """A ROUTER was asked to send to a peer that is not connected (any more)."""


class Socket:
    """A multipart socket for many tasks of one trio loop.

    Sends and receives from different tasks may overlap; messages are never interleaved. Use from one thread only.
    """

    def __init__(self, raw: "zmq.Socket[bytes]") -> None:
        self._raw = raw
        self._fd = int(raw.getsockopt(zmq.FD))
        self._send_frame = super(zmq.Socket, raw).send
        self._recv_frame = super(zmq.Socket, raw).recv
        self._option = super(zmq.Socket, raw).get
        self._leader_side = 0
        self._kicked = False
        self._interrupted = False
        self._parked: dict[int, deque[trio.lowlevel.Task]] = {_IN: deque(), _OUT: deque()}
        self._waiting = 0
        self._streak = 0
        self._posts: deque[Sequence[bytes]] = deque()
        self._poster: trio.lowlevel.Task | None = None
        self._file: tuple[str, int] | None = None
        self.closed = False

    def bind(self, address: str) -> None:
        """Binds; an ipc socket file is removed again at `close`, unless another process has bound it since."""
        self._raw.bind(address)
        if address.startswith("ipc://"):
            path = address.removeprefix("ipc://")
            self._file = (path, os.stat(path).st_ino)

    @property
    def raw(self) -> "zmq.Socket[bytes]":
        """The wrapped socket, for options and connecting; never send or receive on it directly."""
        return self._raw

    def try_send(self, frames: Sequence[bytes]) -> bool:
        """Sends now, or returns False when the high-water mark is reached.

        Raises:
            Unreachable: a mandatory ROUTER has no such peer.
            trio.ClosedResourceError: the socket is closed.
        """
        if self.closed:
            raise trio.ClosedResourceError("the socket is closed")
        last = len(frames) - 1
        sent = True
        try:
            for index, frame in enumerate(frames):
                self._send_frame(frame, _NOBLOCK if index == last else _MORE, True, False)
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                raise Unreachable(str(error)) from None
            if error.errno != zmq.EAGAIN:
                raise
            sent = False
        finally:
            self._after_send()
        return sent

    def try_recv(self) -> list[bytes] | None:
        """The next message's frames, or None when there is none."""
        if self.closed:
            raise trio.ClosedResourceError("the socket is closed")
        recv, option = self._recv_frame, self._option
        try:
            frames = [recv(_NOBLOCK, True, False)]
        except zmq.ZMQError as error:
            self._after_recv()
            if error.errno == zmq.EAGAIN:
                return None
            raise
        while option(_RCVMORE):
            frames.append(recv(_NOBLOCK, True, False))
        self._after_recv()
        return frames

    def post(self, frames: Sequence[bytes]) -> None:
        """Sends after the tasks that are ready now have run, together with what they post.

        A burst wakes ZeroMQ's own thread once instead of once per message. Needs `run_posts`; order among posts is kept.
        """
        if self.closed:
            raise trio.ClosedResourceError("the socket is closed")
        self._posts.append(frames)
        if self._poster is not None:
            trio.lowlevel.reschedule(self._poster)
            self._poster = None

    @property
    def posted(self) -> int:
        """Posts that were not sent yet."""
        return len(self._posts)

    async def run_posts(self) -> None:
        """Sends what is posted until the socket is closed; start it once."""
        while not self.closed:
            while self._posts and not self.closed:
                if self.try_send(self._posts[0]):
                    self._posts.popleft()
                else:
                    await self._wait(_OUT)
            self._poster = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._stop_posting)

    def _stop_posting(self, _: object) -> trio.lowlevel.Abort:
        self._poster = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def send(self, frames: Sequence[bytes]) -> None:
        """Sends, waiting while the high-water mark is reached. Cancelled: nothing was sent."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self.try_send(frames):
            await self._wait(_OUT)

    async def recv(self) -> list[bytes]:
        """The next message's frames. Cancelled: no message was taken."""
        self._streak += 1
        if self._streak >= HOT:
            self._streak = 0
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        while (frames := self.try_recv()) is None:
            self._streak = 0
            await self._wait(_IN)
        return frames

    async def recv_many(self, most: int = HOT) -> list[list[bytes]]:
        """At least one message and whatever else is there, up to `most`; none after `interrupt`.

        Cancelled: no message was taken.
        """
        if self._streak:
            self._streak = 0
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        recv, option = self._recv_frame, self._option
        while True:
            if self._interrupted:
                self._interrupted = False
                return []
            if self.closed:
                raise trio.ClosedResourceError("the socket is closed")
            messages: list[list[bytes]] = []
            while len(messages) < most and int(option(_EVENTS)) & _IN:
                frames = [recv(_NOBLOCK, True, False)]
                while option(_RCVMORE):
                    frames.append(recv(_NOBLOCK, True, False))
                messages.append(frames)
            self._after_recv()
            if messages:
                self._streak = len(messages) == most
                return messages
            await self._wait(_IN)

    def interrupt(self) -> None:
        """Makes the running (or else the next) `recv_many` return without a message."""
        self._interrupted = True
        if self._leader_side == _IN:
            self._kick()
        else:
            self._wake_parked(_IN)

    def close(self) -> None:
        """Closes at once, dropping what was not sent; waiting tasks get `trio.ClosedResourceError`."""
        if self.closed:
            return
        self.closed = True
        trio.lowlevel.notify_closing(self._fd)
        for side in (_IN, _OUT):
            self._wake_parked(side)
        if self._poster is not None:
            trio.lowlevel.reschedule(self._poster)
            self._poster = None
        if self._file is not None:
            path, inode = self._file
            with suppress(FileNotFoundError):
                if os.stat(path).st_ino == inode:
                    os.unlink(path)
        self._raw.close(linger=0)

    def _after_send(self) -> None:
        if self._waiting:
            self._settle()

    def _after_recv(self) -> None:
        if self._waiting:
            self._settle()

    async def _wait(self, side: int) -> None:
        """Returns when an operation of this side is worth another try."""
        self._waiting += 1
        try:
            if not self._leader_side:
                await self._lead(side)
            else:
                await self._park(side)
        finally:
            self._waiting -= 1
            if self._waiting and not self.closed:
                self._settle()

    async def _lead(self, side: int) -> None:
        self._leader_side = side
        self._kicked = False
        try:
            await trio.lowlevel.wait_readable(self._fd)
        except trio.ClosedResourceError:
            if not self._kicked:
                raise
        finally:
            self._leader_side = 0

    async def _park(self, side: int) -> None:
        lot = self._parked[side]
        task = trio.lowlevel.current_task()
        lot.append(task)

        def abort(_: object) -> trio.lowlevel.Abort:
            lot.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _kick(self) -> None:
        """Wakes the leader by trio's own means; a cancel scope around every wait would cost a third of a call."""
        if not self._kicked:
            self._kicked = True
            trio.lowlevel.notify_closing(self._fd)

    def _settle(self) -> None:
        """Wakes every waiting task that can go on, and makes sure that somebody leads."""
        if self.closed:
            return
        events = int(self._option(_EVENTS))
        if events & self._leader_side:
            self._kick()
        for side in (_IN, _OUT):
            if events & side and self._parked[side]:
                self._wake_parked(side)
        if not self._leader_side:
            for side in (_IN, _OUT):
                if self._parked[side]:
                    trio.lowlevel.reschedule(self._parked[side].popleft())
                    return

    def _wake_parked(self, side: int) -> None:
        lot = self._parked[side]
        while lot:
            trio.lowlevel.reschedule(lot.popleft())


class SocketFactory:
    """Opens the sockets of one process with the runtime's options; `close` ends them all."""

    def __init__(self, max_message: int, high_water: int = 4096) -> None:
        self._context = zmq.Context()
        self._max_message = max_message
        self._high_water = high_water
        self._open: list[Socket] = []

    def open(self, kind: int) -> Socket:
        """A socket of this ZeroMQ type: LINGER 0, bounded queues, bounded frames, fast reconnects."""
        raw = self._context.socket(kind)
        raw.setsockopt(zmq.LINGER, 0)
        raw.setsockopt(zmq.MAXMSGSIZE, self._max_message)
        raw.setsockopt(zmq.SNDHWM, self._high_water)
        raw.setsockopt(zmq.RCVHWM, self._high_water)
        raw.setsockopt(zmq.RECONNECT_IVL, 20)
        raw.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
        if kind == zmq.ROUTER:
            raw.setsockopt(zmq.ROUTER_MANDATORY, 1)
        made = Socket(raw)
        self._open = [s for s in self._open if not s.closed]
        self._open.append(made)
        return made

    def close(self) -> None:
        """Closes every socket and the context; what was not sent is dropped."""
        for made in self._open:
            made.close()
        self._context.destroy(linger=0)
