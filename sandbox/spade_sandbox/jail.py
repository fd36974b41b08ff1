"""One jail on the host's side: its process, its control socket, the episodes in it.

A jail belongs to one source. It ends when its control socket is closed (also by the death of this process): the
zygote, process 1 of the namespace, exits and takes everything along. A zygote that does not confirm a kill within
`_CONFIRM_S` gets its whole jail killed.
"""

from __future__ import annotations

import array
import os
import signal
import socket
import struct
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog
import trio

from .errors import EnvironmentFailure, Fault, InfrastructureFailure, Reason
from .limits import JailLimits
from .mux import Mux
from .replies import Facts, Reset, parse_compiled, parse_reset
from .session import Ended, Session, request

_log = structlog.get_logger(__name__)
_CHUNK = 48 * 1024
_CONFIRM_S = 5.0
_START_S = 20.0
_DONE = struct.Struct("<iQQ")


@dataclass(slots=True)
class Totals:
    """Counted over a provider's life. Processor seconds are those of ended episodes."""

    jails: int = 0
    sessions: int = 0
    cpu_s: float = 0.0
    peak_kib: int = 0
    lost: int = 0


class Jail:
    """A started jail. `start` returns at once; `ready` waits for the zygote."""

    def __init__(self, mux: Mux, limits: JailLimits, totals: Totals, on_end: Callable[[Jail], None]) -> None:
        self.limits = limits
        self.single_use = False  # ends with its episode
        self.facts: Facts | None = None
        self.sessions: dict[bytes, Session] = {}
        self.deadline = float("inf")
        self._mux = mux
        self._totals = totals
        self._on_end = on_end
        self._killed: dict[bytes, float] = {}
        self._unsent: deque[tuple[bytes, int | None]] = deque()
        self._ready = trio.Event()
        self._ended = trio.Event()
        self._next = 0
        self._closing = False
        self._log = b""

    def start(self, command: Callable[[int], Sequence[str]], environment: dict[str, str]) -> None:
        """Start the process; `command(descriptor)` gives the argument list. Blocks for about a millisecond (vfork and exec)."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    command(theirs.fileno()),
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise InfrastructureFailure(Fault.JAIL_START, f"cannot start the jail's process: {error}") from error
        ours.setblocking(False)
        self._control = ours
        assert self._process.stderr is not None
        self._stderr = self._process.stderr.fileno()
        os.set_blocking(self._stderr, False)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._mux.add(ours.fileno(), self._on_control)
        self._mux.add(self._pidfd, self._on_exit)
        self._mux.add(self._stderr, self._on_log)
        self._totals.jails += 1

    @property
    def alive(self) -> bool:
        """Whether new episodes can be opened."""
        return not self._closing and not self._ended.is_set()

    @property
    def pid(self) -> int:
        """Process id, on the host, of the jail's outermost process."""
        return self._process.pid

    async def ready(self) -> None:
        """Wait for the zygote. Raises `InfrastructureFailure` when it does not come; the jail is then closed."""
        with trio.move_on_after(_START_S):
            await self._ready.wait()
        if not self._ready.is_set() or self._ended.is_set():
            self.kill()
            raise InfrastructureFailure(Fault.JAIL_START, f"the jail did not get ready: {self._story()}")

    def warm_up(self) -> None:
        """Let the zygote import what most environments need."""
        self._send(b"P")

    async def compile(self, source: str) -> tuple[Facts, bytes]:
        """Give the jail its source, have a child of its own compile it, and leave the byte code with the zygote.

        Raises `EnvironmentFailure` when it does not compile. No generated code runs in it.
        """
        if len(source) > self.limits.source_chars:
            detail = f"the source has {len(source)} characters, at most {self.limits.source_chars} are taken"
            raise EnvironmentFailure(Reason.OUTPUT, "compile", detail)
        try:
            data = source.encode()
        except UnicodeEncodeError as error:
            raise EnvironmentFailure(Reason.SYNTAX, "compile", f"the source is no valid text: {error}") from None
        self._give(data, b"S")
        session = self._fork(request(1, b"C", b""))
        try:
            payload = await session.reply(self.limits.load_s, "compile", 64 + 16 * len(data) + self.limits.reply_bytes)
        finally:
            session.close()
        facts, code = parse_compiled(payload)
        self.use(facts, code)
        return facts, code

    def use(self, facts: Facts, code: bytes, source: bytes = b"") -> None:
        """Give the jail byte code that another jail of the same interpreter compiled (with the source, unless it has it)."""
        if source:
            self._give(source, b"S")
        self.facts = facts
        self._give(code, b"X")

    async def open(self, seed: int, max_turns: int, timeout: float) -> tuple[Session, Reset]:
        """Fork an episode, load the environment in it and reset it.

        Raises `EnvironmentFailure` or `InfrastructureFailure`; on these, and on cancellation, the episode's process is killed.
        """
        session = self._fork(request(1, b"R", struct.pack("<qI", seed, max_turns)))
        try:
            payload = await session.reply(timeout, "reset", self.limits.reply_bytes)
            return session, parse_reset(payload, self.limits)
        except BaseException:
            session.close()
            raise

    def _give(self, data: bytes, last: bytes) -> None:
        self._send(b"R")
        for start in range(0, len(data), _CHUNK):
            self._send(b"B" + data[start : start + _CHUNK])
        self._send(last)

    def _fork(self, first: bytes) -> Session:
        """A new child; its first request is in its socket before it exists, so opening takes one round trip."""
        if not self.alive:
            raise InfrastructureFailure(Fault.JAIL_LOST, f"the jail has ended: {self._story()}")
        if len(self.sessions) >= self.limits.sessions:
            raise InfrastructureFailure(Fault.BUSY, f"the jail serves its {self.limits.sessions} episodes")
        self._next = (self._next + 1) & 0xFFFFFFFF
        identity = self._next.to_bytes(4, "little")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        ours.send(first)
        self._send(b"F" + identity, theirs.detach())
        session = Session(self, identity, ours, self._mux, self.limits)
        self.sessions[identity] = session
        self._totals.sessions += 1
        return session

    def end_session(self, session: Session) -> None:
        """Kill and reap a child. The zygote confirms; if it does not, the jail is killed."""
        if self._ended.is_set() or session.identity in self._killed:
            return
        self._killed[session.identity] = self.deadline = trio.current_time() + _CONFIRM_S
        self._mux.wait_for(self)
        self._send(b"K" + session.identity)

    def expired(self) -> None:
        """The zygote owes a confirmation for too long."""
        _log.warning("jail does not confirm a kill; killing the jail", pid=self.pid)
        self._mux.waiting.discard(self)
        self.kill()

    def _send(self, data: bytes, descriptor: int | None = None) -> None:
        """Send, or queue when the socket is full. The descriptor is ours to close."""
        if self._unsent or not self._send_now(data, descriptor):
            self._unsent.append((data, descriptor))
            if len(self._unsent) == 1:
                self._mux.want_write(self._control.fileno(), True)

    def _send_now(self, data: bytes, descriptor: int | None) -> bool:
        try:
            if descriptor is None:
                self._control.send(data)
            else:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (descriptor,)))
                self._control.sendmsg((data,), (rights,))
        except BlockingIOError:
            return False
        except OSError:
            pass  # the jail is gone: its end is reported by the exit of its process
        if descriptor is not None:
            os.close(descriptor)
        return True

    def _on_control(self, events: int) -> None:
        while self._unsent and self._send_now(*self._unsent[0]):
            self._unsent.popleft()
            if not self._unsent:
                self._mux.want_write(self._control.fileno(), False)
        while True:
            try:
                data = self._control.recv(256)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._mux.remove(self._control.fileno())
                self.kill()
                return
            self._obey(data)

    def _obey(self, data: bytes) -> None:
        """One message of the zygote."""
        identity = data[1:5]
        if data[:1] == b"H":
            self._ready.set()
        elif data[:1] == b"D":
            status, cpu_us, peak_kib = _DONE.unpack_from(data, 5)
            self._killed.pop(identity, None)
            if self._killed:
                self.deadline = next(iter(self._killed.values()))
            else:
                self._mux.waiting.discard(self)
            self._totals.cpu_s += cpu_us / 1e6
            self._totals.peak_kib = max(self._totals.peak_kib, peak_kib)
            session = self.sessions.pop(identity, None)
            if session is not None:
                session.reaped(Ended(status, cpu_us / 1e6, peak_kib))
            if self.single_use and not self.sessions:
                self.close()
        elif data[:1] == b"E":
            (errno,) = struct.unpack_from("<i", data, 5)
            session = self.sessions.pop(identity, None)
            if session is not None:
                session.lost(Fault.JAIL_LOST, f"the jail cannot fork: {os.strerror(errno)}")

    def _on_log(self, events: int) -> None:
        try:
            data = os.read(self._stderr, 4096)
        except BlockingIOError:
            return
        if not data:
            self._mux.remove(self._stderr)
        self._log = (self._log + data)[-2000:]

    def _on_exit(self, events: int) -> None:
        """The jail's process has ended: reap it and fail what it served."""
        self._process.wait()
        self._on_log(0)
        for descriptor in (self._pidfd, self._control.fileno(), self._stderr):
            self._mux.remove(descriptor)
        os.close(self._pidfd)
        self._control.close()
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._mux.waiting.discard(self)
        for _, descriptor_left in self._unsent:
            if descriptor_left is not None:
                os.close(descriptor_left)
        self._unsent.clear()
        self._ended.set()
        self._ready.set()
        if not self._closing:
            self._totals.lost += 1
        sessions, self.sessions = list(self.sessions.values()), {}
        for session in sessions:
            session.lost(Fault.CLOSED if self._closing else Fault.JAIL_LOST, f"the jail ended: {self._story()}")
        self._on_end(self)

    def _story(self) -> str:
        text = self._log.decode(errors="replace").strip()
        return text.splitlines()[0][:300] if text else f"status {self._process.returncode}"

    def close(self) -> None:
        """Ask the zygote to end by closing the control socket's sending side; returns at once."""
        if not self._closing and not self._ended.is_set():
            self._closing = True
            with suppress(OSError):  # already disconnected: the process is on its way out
                self._control.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """End the jail now: nsjail kills all inside on SIGTERM and removes its control groups."""
        if not self._ended.is_set():
            self._process.send_signal(signal.SIGTERM)

    async def aclose(self) -> None:
        """Close, wait for the process to be reaped, with force where needed. Not cancelled half-way."""
        with trio.CancelScope(shield=True):
            self.close()
            for patience, force in ((2.0, signal.SIGTERM), (2.0, signal.SIGKILL), (5.0, None)):
                with trio.move_on_after(patience):
                    await self._ended.wait()
                    return
                if force is not None:
                    self._process.send_signal(force)
