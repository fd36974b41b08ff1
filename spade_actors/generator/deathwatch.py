"""Runs a command that knows nothing of death pipes: `deathwatch.py FD COMMAND...`. Standard library only.

Always holds: when the pipe reaches its end (the parent has died, however) or SIGTERM comes, the command's whole process
group gets SIGTERM and, after a grace, SIGKILL; the command's own end ends its group too, and its exit status is ours.
"""

import os
import select
import signal
import subprocess
import sys

GRACE_S = 5.0


def main(arguments: list[str]) -> int:
    """Watches until the command has ended."""
    pipe, command = int(arguments[0]), arguments[1:]
    told, tell = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(tell, b"t"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = subprocess.Popen(command, start_new_session=True)
    ended = os.pidfd_open(process.pid)
    poll = select.poll()
    for descriptor in (pipe, told, ended):
        poll.register(descriptor, select.POLLIN)
    if ended not in (descriptor for descriptor, _ in poll.poll()):
        _signal(process.pid, signal.SIGTERM)
        for descriptor in (pipe, told):
            poll.unregister(descriptor)
        poll.poll(GRACE_S * 1000)
    _signal(process.pid, signal.SIGKILL)
    return process.wait()


def _signal(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return  # nobody is left


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
