"""One episode on the host's side: a stream to a process that may be running hostile code.

At most one request is under way. Every request has a wall-clock deadline; whatever fails, the process is killed and
the failure is typed. Sending is done at once without waiting (a request fits the socket's buffer, or the rest follows
when there is room).
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

import outcome
import trio

from .errors import EnvironmentFailure, Fault, InfrastructureFailure, Reason, SandboxError
from .limits import JailLimits
from .mux import Mux
from .replies import Inspection, Step, parse_inspection, parse_step

if TYPE_CHECKING:
    from .jail import Jail

_NEVER = float("inf")
_HEADER = struct.Struct("<II")
_REAP_S = 30.0  # an end that nobody reports; `reaped` or `lost` comes first, since the jail watches its zygote
ACTION_BYTES = 400_000  # of one action; longer ones are cut (100,000 characters, as published)


class Ended(NamedTuple):
    """How an episode's process ended."""

    status: int  # as of wait4
    cpu_s: float
    peak_kib: int


def request(sequence: int, order: bytes, body: bytes) -> bytes:
    """A request frame."""
    return _HEADER.pack(1 + len(body), sequence) + order + body


class Session:
    """An open episode. `step` and `inspect` raise `EnvironmentFailure` or `InfrastructureFailure`; after that only `close` is left."""

    # fmt: off
    __slots__ = (
        "_buffer", "_closing", "_failure", "_jail", "_leaving", "_limit", "_mux", "_phase", "_sequence", "_socket", "_task",
        "_unsent", "cpu_s", "deadline", "identity", "limits",
    )
    # fmt: on

    def __init__(self, jail: Jail, identity: bytes, sock: socket.socket, mux: Mux, limits: JailLimits) -> None:
        self.identity = identity
        self.limits = limits
        self.deadline = _NEVER  # of the request under way
        self.cpu_s: float | None = None  # processor seconds, once reaped
        self._jail = jail
        self._socket: socket.socket | None = sock
        self._mux = mux
        self._task: trio.lowlevel.Task | None = None
        self._buffer = b""
        self._sequence = 1
        self._limit = limits.reply_bytes
        self._phase = "reset"
        self._failure: SandboxError | None = None
        self._unsent = memoryview(b"")
        self._leaving = False
        self._closing: socket.socket | None = (
            None  # closed once the process is reaped: it would wake up only to be killed
        )
        mux.add(sock.fileno(), self._on_ready)
        mux.wait_for(self)

    async def step(self, action: str, *, timeout: float | None = None) -> Step:
        """Send an action, wait for the result, at most `timeout` seconds (default: the limits' `step_s`).

        Cancellation kills the episode: its answer could no longer be told from the next one's.
        """
        self._put(b"S", action.encode("utf-8", "replace")[:ACTION_BYTES])
        payload = await self.reply(self.limits.step_s if timeout is None else timeout, "step", self.limits.reply_bytes)
        try:
            return parse_step(payload, self.limits)
        except EnvironmentFailure as failure:
            self._fail(failure)
            raise

    async def inspect(self, *, timeout: float | None = None) -> Inspection:
        """What `solution()` says and what was printed, after the play. Runs generated code: same rules as `step`."""
        self._put(b"Q", b"")
        payload = await self.reply(
            self.limits.step_s if timeout is None else timeout, "inspect", self.limits.reply_bytes
        )
        return parse_inspection(payload, self.limits)

    def close(self) -> None:
        """Kill the episode's process and free everything. Never blocks; closing twice does nothing."""
        if self._failure is None:
            self._failure = InfrastructureFailure(Fault.CLOSED, "the episode is closed")
        self._drop()

    def _drop(self) -> None:
        """Let go of the socket and have the zygote kill and reap the process."""
        if self._socket is not None:
            self._mux.remove(self._socket.fileno())
            self._closing, self._socket = self._socket, None
            self._jail.end_session(self)

    def _put(self, order: bytes, body: bytes) -> None:
        """Start a request."""
        if self._failure is not None:
            raise self._failure
        if self._task is not None:
            raise RuntimeError("a request of this episode is under way")
        if self._socket is None:
            return  # the process has ended and is being reaped: `reply` says how
        if self._buffer:
            failure = EnvironmentFailure(Reason.BAD_REPLY, "step", "bytes on the channel that nobody asked for")
            self._fail(failure)
            raise failure
        self._sequence += 1
        data = request(self._sequence, order, body)
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the process is gone: `reply` finds out how
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]
            self._mux.want_write(self._socket.fileno(), True)

    async def reply(self, timeout: float, phase: str, limit: int) -> bytes:
        """Wait for the payload of the request under way."""
        self._phase = phase
        self._limit = limit
        if self._failure is not None:
            raise self._failure
        self.deadline = trio.current_time() + (_REAP_S if self._leaving else timeout)
        self._task = trio.lowlevel.current_task()
        payload: bytes = await trio.lowlevel.wait_task_rescheduled(self._abort)
        return payload

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        self.deadline = _NEVER
        self._failure = InfrastructureFailure(Fault.CLOSED, "the request was cancelled")
        self._drop()
        return trio.lowlevel.Abort.SUCCEEDED

    def _wake(self, result: outcome.Outcome[bytes]) -> None:
        task, self._task = self._task, None
        self.deadline = _NEVER
        if task is not None:
            trio.lowlevel.reschedule(task, result)

    def _fail(self, failure: SandboxError) -> None:
        """The episode is over: remember why, kill the process, tell who waits."""
        if self._failure is None:
            self._failure = failure
        self._drop()
        self._wake(outcome.Error(failure))

    def _on_ready(self, events: int) -> None:
        assert self._socket is not None
        if events & select.EPOLLOUT:
            self._send_rest()
        if not events & ~select.EPOLLOUT:
            return
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._gone()
            return
        buffer = self._buffer + data if self._buffer else data
        if self._task is None:  # nobody asked: keep a little as evidence, do not read more
            self._buffer = buffer[:64]
            self._mux.remove(self._socket.fileno())
            return
        if len(buffer) < 8:
            self._buffer = buffer
            return
        size, sequence = _HEADER.unpack_from(buffer)
        if size > self._limit or sequence != self._sequence or len(buffer) > 8 + size:
            what = f"a reply of {size} bytes" if size > self._limit else "bytes on the channel that are no reply"
            reason = Reason.OUTPUT if size > self._limit and sequence == self._sequence else Reason.BAD_REPLY
            self._fail(EnvironmentFailure(reason, self._phase, what))
        elif len(buffer) == 8 + size:
            self._buffer = b""
            self._wake(outcome.Value(buffer[8:]))
        else:
            self._buffer = buffer

    def _send_rest(self) -> None:
        assert self._socket is not None
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = self._unsent[:0]
        if not self._unsent:
            self._mux.want_write(self._socket.fileno(), False)

    def _gone(self) -> None:
        """The process closed its channel: have it reaped, and judge by how it ended."""
        self._leaving = True
        self.deadline = trio.current_time() + _REAP_S
        self._drop()

    def expired(self) -> None:
        """The deadline of the request has passed."""
        if self._leaving:
            self._fail(InfrastructureFailure(Fault.JAIL_LOST, "the end of the episode's process was not reported"))
            return
        seconds = f"no answer to {self._phase} within its time"
        self._fail(EnvironmentFailure(Reason.HANG, self._phase, seconds))

    def reaped(self, ended: Ended) -> None:
        """The zygote reports how the process ended."""
        self.cpu_s = ended.cpu_s
        self._release()
        if self._failure is None:
            self._fail(self._verdict(ended))

    def lost(self, fault: Fault, detail: str) -> None:
        """The jail is gone, and the process with it."""
        self._fail(InfrastructureFailure(fault, detail))
        self._release()

    def _release(self) -> None:
        self._mux.waiting.discard(self)
        if self._closing is not None:
            self._closing.close()
            self._closing = None

    def _verdict(self, ended: Ended) -> SandboxError:
        """Why a process ended that was not asked to."""
        if os.WIFEXITED(ended.status):
            code = os.WEXITSTATUS(ended.status)
            if code == 97:
                return InfrastructureFailure(Fault.JAIL_LOST, "an episode's process could not confine itself")
            return EnvironmentFailure(Reason.EXIT, self._phase, f"the process was ended with status {code}")
        number = os.WTERMSIG(ended.status)
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        if number == signal.SIGXCPU or ended.cpu_s >= self.limits.cpu_s:
            return EnvironmentFailure(Reason.CPU, self._phase, f"used {ended.cpu_s:.1f} processor seconds")
        if number == signal.SIGKILL:
            if ended.peak_kib >= self.limits.memory_mb * 512:
                return EnvironmentFailure(Reason.MEMORY, self._phase, f"killed at {ended.peak_kib // 1024} MiB")
            return EnvironmentFailure(Reason.EXIT, self._phase, "the process closed its channel or was killed")
        return EnvironmentFailure(Reason.CRASH, self._phase, f"the process died of {name}")
