"""Real processes: death pipe, process groups, exit statuses, no threads."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import trio

from spade_actors.supervisor.children import Children

PYTHON = [sys.executable, "-c"]


def gone(pid: int, within: float = 5.0) -> bool:
    end = time.monotonic() + within
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
    return False


def read_pid(path: Path, within: float = 10.0) -> int:
    end = time.monotonic() + within
    while time.monotonic() < end:
        if path.exists() and path.read_text().endswith("\n"):
            return int(path.read_text())
    raise AssertionError(f"{path} never appeared")


def test_exit_statuses_output_and_environment(tmp_path: Path) -> None:
    async def main() -> tuple[int, int]:
        with Children(tmp_path) as children:
            one = children.start(
                "a", "agent", [*PYTHON, "import os; print(os.environ['OMP_NUM_THREADS']); raise SystemExit(3)"], {}
            )
            two = children.start("b", "agent", [*PYTHON, "import time; time.sleep(60)"], {})
            code = await children.wait(one)
            assert list(children.living) == ["b"]
            children.kill("b")
            return code, await children.wait(two)

    threads = threading.active_count()
    assert trio.run(main) == (3, -signal.SIGKILL)
    assert threading.active_count() == threads
    assert (tmp_path / "a.out").read_text() == "1\n"


def test_asking_is_sigterm_to_the_process(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7));"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(f'{{os.getpid()}}\\n'); signal.pause()"
    )

    async def main() -> int:
        with Children(tmp_path) as children:
            child = children.start("a", "agent", [*PYTHON, program], {})
            assert read_pid(tmp_path / "pid") == child.pid
            children.ask("a")
            children.ask("nobody")
            with trio.fail_after(10):
                return await children.wait(child)

    assert trio.run(main) == 7


def test_what_a_child_left_in_its_group_ends_with_it(tmp_path: Path) -> None:
    program = (
        "import os, subprocess, sys; p = subprocess.Popen(['sleep', '60']);"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(f'{{p.pid}}\\n'); os._exit(0)"
    )

    async def main() -> int:
        with Children(tmp_path) as children:
            return await children.wait(children.start("a", "generator", [*PYTHON, program], {}))

    assert trio.run(main) == 0
    assert gone(read_pid(tmp_path / "pid"))


def test_leaving_kills_what_is_left(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("a", "agent", ["sleep", "60"], dict(os.environ))
    assert child.code == -signal.SIGKILL
    assert gone(child.pid)


SUPERVISOR = """
import os, sys, time
from pathlib import Path
from spade_actors.supervisor.children import Children
logs = Path(sys.argv[1])
with Children(logs) as children:
    for name in ("a", "b"):
        program = f"import os; open({str(logs)!r} + '/{name}.pid', 'w').write(f'{{os.getpid()}}\\\\n'); os.read({children.death_pipe}, 1)"
        children.start(name, "agent", [sys.executable, "-c", program], {})
    time.sleep(60)
"""


def test_kill_dash_nine_of_the_supervisor_reaches_every_child_by_the_death_pipe(tmp_path: Path) -> None:
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISOR, str(tmp_path)])
    pids = [read_pid(tmp_path / f"{name}.pid") for name in ("a", "b")]
    assert all(psutil.pid_exists(pid) for pid in pids)
    supervisor.kill()
    supervisor.wait()
    assert all(gone(pid) for pid in pids)
