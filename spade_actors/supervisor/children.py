"""This node's processes: started with a death pipe in sessions of their own, waited for without threads, killed as groups.

What always holds: every child inherits the read end of one pipe whose only write end is here, so the supervisor's death (by any
signal) is an end of file for all of them; a child's process group is killed before the child is reaped, so what it left behind goes
with it and its group id is not used by anyone else meanwhile. PR_SET_PDEATHSIG is never used: it follows the forking thread.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

THREADS = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}


@dataclass
class Child:
    """A running or ended process."""

    name: str
    role: str
    pid: int
    pidfd: int
    started: float
    """monotonic seconds"""
    output: Path
    """what it writes to stdout and stderr"""
    code: int | None = None
    """exit status as `subprocess` has it (negative: the signal); None while it lives"""


class Children:
    """Starts, waits for and kills processes. Use as a context manager: leaving it kills what is left."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.living: dict[str, Child] = {}
        self.death_pipe, self._held = os.pipe()

    def __enter__(self) -> "Children":
        return self

    def __exit__(self, *_: object) -> None:
        for child in list(self.living.values()):
            self.kill(child.name)
            self._reap(child)
        os.close(self._held)
        os.close(self.death_pipe)

    def start(self, name: str, role: str, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        """Starts one process; `command` names the death pipe by `self.death_pipe`. Blocks for some milliseconds.

        Raises:
            OSError: the process cannot be made.
        """
        output = self.logs / f"{name}.out"
        with output.open("ab") as sink:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env={**environment, **THREADS},
                pass_fds=(self.death_pipe,),
                start_new_session=True,
            )
        process.returncode = 0  # reaped here by pidfd: Popen must neither wait for it nor warn about it
        child = Child(name, role, process.pid, os.pidfd_open(process.pid), time.monotonic(), output)
        self.living[name] = child
        return child

    async def wait(self, child: Child) -> int:
        """Waits for the end, kills the rest of its group, and returns the exit status. Cancellable at any time, repeatable."""
        if child.code is None:
            await trio.lowlevel.wait_readable(child.pidfd)
            self._reap(child)
        assert child.code is not None
        return child.code

    def ask(self, name: str) -> None:
        """SIGTERM to the process itself: drain. Nothing if it has ended."""
        child = self.living.get(name)
        if child is not None:
            signal.pidfd_send_signal(child.pidfd, signal.SIGTERM)

    def kill(self, name: str) -> None:
        """SIGKILL to its whole process group. Nothing if it has ended."""
        child = self.living.get(name)
        if child is not None:
            _kill_group(child.pid)

    def _reap(self, child: Child) -> None:
        if child.code is not None:
            return
        os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED | os.WNOWAIT)
        _kill_group(child.pid)
        info = os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED)
        assert info is not None
        child.code = info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
        os.close(child.pidfd)
        if self.living.get(child.name) is child:
            del self.living[child.name]


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # nobody is left in it, or only processes under another identity (jails, which end with their executor)
        return
