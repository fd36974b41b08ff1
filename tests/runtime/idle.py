"""A process that was started the way the supervisor starts its own, and has nothing to do."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import trio


class IdleChild(NamedTuple):
    process: "subprocess.Popen[bytes]"
    pipe: int
    started: float


def start_idle_child(folder: str) -> IdleChild:
    """An actor that waits for a hub that is not there; `pipe` is the parent's end of its death pipe."""
    read, write = os.pipe()
    os.set_inheritable(read, True)
    script = Path(__file__).with_name("actor_process.py")

    def start() -> "subprocess.Popen[bytes]":
        command = [sys.executable, str(script), "idle", "idle", f"ipc://{folder}/no.sock", folder, folder, str(read)]
        return subprocess.Popen(command, pass_fds=(read,), start_new_session=True)

    async def from_a_worker_thread() -> "subprocess.Popen[bytes]":
        return await trio.to_thread.run_sync(start)

    process = trio.run(from_a_worker_thread)
    os.close(read)
    return IdleChild(process, write, time.monotonic())
