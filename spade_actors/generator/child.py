"""A server as a child process: started with a death pipe of its own, waited for without threads, its output in a log.

Always holds: the child's pipe has its only write end here, so this process's death by any signal ends the child; leaving
`running` ends it too, with force after a grace.
"""

import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from spade_actors.generator.launch import Launch

GRACE_S = 8.0


class StartFailed(Exception):
    """The server did not come up; the text says why and where its log is."""


class Child:
    """A started server."""

    def __init__(self, process: "subprocess.Popen[bytes]", pidfd: int, log: Path) -> None:
        self.pid = process.pid
        self.log = log
        self.port = 0
        self.code: int | None = None
        self._process = process
        self._pidfd = pidfd

    async def ended(self) -> int:
        """Waits for the exit and returns its status; may be cancelled and repeated."""
        if self.code is None:
            await trio.lowlevel.wait_readable(self._pidfd)
            self.code = self._process.wait()
        return self.code

    def ask(self) -> None:
        """SIGTERM."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the whole group."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.code is None:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                return  # reaped in the next `ended`


@asynccontextmanager
async def running(start: Launch, port: int, log: Path, *, start_s: float) -> AsyncIterator[Child]:
    """The server for the length of the block, listening (not necessarily healthy) from its start on.

    Raises `StartFailed` when it exits, or does not name its port, within `start_s`. Cancelled at any moment, nothing is left.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    death, held = os.pipe()
    said, says = os.pipe()
    try:
        process = _spawn(start, death, says, log)
    except OSError as error:
        for descriptor in (death, held, said, says):
            os.close(descriptor)
        raise StartFailed(f"{start.command[0]}: cannot be started ({error.strerror})") from None
    os.close(death)
    os.close(says)
    child = Child(process, os.pidfd_open(process.pid), log)
    try:
        child.port = await _port(child, said, start_s) if start.announces_port else port
        yield child
    finally:
        with trio.CancelScope(shield=True):
            await _end(child)
        os.close(child._pidfd)
        os.close(held)
        os.close(said)


def _spawn(start: Launch, death: int, says: int, log: Path) -> "subprocess.Popen[bytes]":
    """Blocks for some milliseconds; on the loop's own thread, since a worker's end must not matter to the child."""
    with log.open("ab") as sink:
        return subprocess.Popen(
            [part.replace("{fd}", str(death)) for part in start.command],
            stdin=subprocess.DEVNULL,
            stdout=says if start.announces_port else sink,
            stderr=sink,
            env=start.environment,
            pass_fds=(death,),
            start_new_session=True,
        )


def free_port() -> int:
    """A port that was free a moment ago, for servers that must be told one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _port(child: Child, said: int, start_s: float) -> int:
    """The port from the child's first line."""
    os.set_blocking(said, False)
    line = b""
    with trio.move_on_after(start_s):
        while not line.endswith(b"\n"):
            await trio.lowlevel.wait_readable(said)
            got = os.read(said, 4096)
            if not got:
                break
            line += got
    try:
        return int(json.loads(line)["port"])
    except (ValueError, KeyError, TypeError):
        raise StartFailed(f"the server did not say its port within {start_s:g} s; see {child.log}") from None


async def _end(child: Child) -> None:
    child.ask()
    with trio.move_on_after(GRACE_S):
        await child.ended()
    if child.code is None:
        child.kill()
        await child.ended()
    else:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # nothing of its group is left
