"""Server processes: real ones, ended by every way their parent can go."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio

from spade_actors.generator.child import StartFailed, running
from spade_actors.generator.launch import Launch

DEATHWATCH = Path(sys.modules[Launch.__module__].__file__).with_name("deathwatch.py")
SAYS_PORT = "import json, time; print(json.dumps({'port': 4711}), flush=True); time.sleep(60)"
ENVIRONMENT = dict(os.environ)


def python(code: str, *, announces: bool = True) -> Launch:
    return Launch([sys.executable, "-c", code], ENVIRONMENT, announces)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def gone_within(pid: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > end:
            return False
        os.sched_yield()
    return True


def test_a_server_says_its_port_and_ends_with_the_block(tmp_path):
    async def main():
        async with running(python(SAYS_PORT), 0, tmp_path / "log", start_s=20) as child:
            assert child.port == 4711
            return child

    child = trio.run(main)
    assert child.code == -signal.SIGTERM


def test_one_that_ignores_sigterm_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("spade_actors.generator.child.GRACE_S", 0.2)

    async def main():
        code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SAYS_PORT
        async with running(python(code), 0, tmp_path / "log", start_s=20) as child:
            return child

    assert trio.run(main).code == -signal.SIGKILL


def test_one_that_fails_to_start_says_where_to_look(tmp_path):
    async def main():
        async with running(python("raise SystemExit('no such model')"), 0, tmp_path / "log", start_s=20):
            pass

    with pytest.raises(StartFailed, match="log"):
        trio.run(main)
    assert "no such model" in (tmp_path / "log").read_text()
    with pytest.raises(StartFailed, match="cannot be started"):
        trio.run(_start_nothing, tmp_path)


async def _start_nothing(tmp_path):
    async with running(Launch(["/nonexistent"], {}, True), 0, tmp_path / "log", start_s=1):
        pass


def test_an_end_of_its_own_is_seen(tmp_path):
    async def main():
        code = "import json; print(json.dumps({'port': 1}), flush=True); input"
        async with running(python(code), 0, tmp_path / "log", start_s=20) as child:
            with trio.fail_after(20):
                return await child.ended()

    assert trio.run(main) == 0


def test_deathwatch_ends_a_whole_group_when_its_pipe_closes(tmp_path):
    grandchild = (
        "import subprocess, sys, time; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); time.sleep(60)"
    )
    read, write = os.pipe()
    watch = subprocess.Popen(
        [sys.executable, str(DEATHWATCH), str(read), sys.executable, "-c", grandchild],
        pass_fds=(read,),
        stdout=subprocess.PIPE,
    )
    os.close(read)
    pid = int(watch.stdout.readline())
    assert alive(pid)
    os.close(write)
    assert watch.wait(timeout=10) == -signal.SIGTERM % 256 or watch.returncode != 0
    assert gone_within(pid, 5)
    watch.stdout.close()


def test_deathwatch_passes_on_the_commands_status_and_sigterm():
    read, write = os.pipe()
    done = subprocess.run(
        [sys.executable, str(DEATHWATCH), str(read), sys.executable, "-c", "raise SystemExit(3)"],
        pass_fds=(read,),
        timeout=20,
    )
    assert done.returncode == 3
    watch = subprocess.Popen(
        [
            sys.executable,
            str(DEATHWATCH),
            str(read),
            sys.executable,
            "-c",
            "import time; print(1, flush=True); time.sleep(60)",
        ],
        pass_fds=(read,),
        stdout=subprocess.PIPE,
    )
    watch.stdout.readline()
    watch.terminate()
    assert watch.wait(timeout=10) != 0
    watch.stdout.close()
    os.close(read)
    os.close(write)


def test_the_parents_sigkill_ends_the_server(tmp_path):
    server = "import os, json, sys; print(json.dumps({'port': os.getpid()}), flush=True); os.read(int(sys.argv[1]), 1)"
    parent = f"""
import trio, sys
from pathlib import Path
from spade_actors.generator.child import running
from spade_actors.generator.launch import Launch
async def main():
    start = Launch([sys.executable, "-c", {server!r}, "{{fd}}"], {{}}, True)
    async with running(start, 0, Path({str(tmp_path / "log")!r}), start_s=20) as child:
        print(child.port, flush=True)
        await trio.sleep_forever()
trio.run(main)
"""
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE)
    pid = int(process.stdout.readline())
    assert alive(pid)
    process.kill()
    process.wait()
    assert gone_within(pid, 5)
    process.stdout.close()
