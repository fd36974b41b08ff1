"""Whole sessions of the supervisor: a real hub, real processes, stand-in roles."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from spade_actors.record.folder import RunFolder

HERE = Path(__file__).parent
SMALL = ("sandbox.count=0", "generator.count=0")

SESSION = """
import sys
from pathlib import Path
import trio
from spade_actors.config import load
from spade_actors.record.folder import RunFolder
from spade_actors.supervisor.actor import Supervisor, supervise
from spade_actors.supervisor.restarts import Policy, Restarts
from spade_actors.supervisor.show import Lines

class Session(Supervisor):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.keeper.restarts = Restarts(Policy(give_up=3))

    def command(self, planned):
        command = super().command(planned)
        if planned.role != "hub":
            command[4:5] = ["fake_roles:make", "--role", planned.role]
        return command

folder = RunFolder(Path(sys.argv[1]))
outcome = trio.run(supervise, folder, load(None, sys.argv[2:]), Lines(sys.argv[1], sys.stdout), Session)
print("OUTCOME", outcome.state, outcome.reason, outcome.log)
sys.exit(outcome.exit_code)
"""


STARTED: list["subprocess.Popen[str]"] = []


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    for session in STARTED:
        session.kill()  # its processes follow it by the death pipe
        session.wait()
    STARTED.clear()


def start(run_dir: Path, *overrides: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    command = [sys.executable, "-c", SESSION, str(run_dir), "run.steps=3", *overrides]
    session = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    STARTED.append(session)
    return session


def finish(session: "subprocess.Popen[str]", within: float = 60.0) -> str:
    try:
        return session.communicate(timeout=within)[0]
    except subprocess.TimeoutExpired:
        session.kill()
        raise AssertionError(session.communicate()[0]) from None


def wait_until(condition: Any, within: float = 30.0) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "never came true"
        time.sleep(0.05)


def of_run(run_dir: Path) -> list[psutil.Process]:
    """Living processes that have the run folder on their command line."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if str(run_dir) in (process.info["cmdline"] or []) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def nothing_left(run_dir: Path) -> None:
    assert of_run(run_dir) == []
    assert not (run_dir / "sockets").exists()


def running(run_dir: Path) -> bool:
    """Every role has registered and the designer is waiting."""
    path = run_dir / "metrics.jsonl"
    return path.exists() and any("designer-1" in line.get("lag_ms", {}) for line in lines(path))


def top_in_a_terminal(run_dir: Path) -> str:
    """What `top` draws until every role is shown; then Ctrl-C, which it must obey."""
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "spade_actors", "top", str(run_dir)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "50"}
    top = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment)
    os.close(its)
    drawn = ""
    end = time.monotonic() + 30
    while "designer-1" not in drawn and time.monotonic() < end:
        if select.select([ours], [], [], 1.0)[0]:
            drawn += os.read(ours, 65536).decode(errors="replace")
    top.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # the terminal ends with its last user
        while os.read(ours, 65536):
            pass
    os.close(ours)
    assert top.wait(timeout=30) == 0
    return drawn


def test_a_complete_run_restarts_what_died_and_drains_in_order(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    said = finish(session := start(run_dir))
    assert session.returncode == 0, said
    assert "OUTCOME complete" in said
    assert "update 3/3" in said
    assert "agent-1 ended (killed by SIGKILL)" in said
    order = (run_dir / "order.txt").read_text().split()
    assert order == ["designer-1", "agent-1", "sandbox-1", "learner", "generator-1", "judge", "memory"]
    nothing_left(run_dir)
    summary = json.loads((run_dir / "summary.json").read_text())
    assert (summary["steps"], summary["exit"], summary["restarts"]) == (3, "complete", {"agent-1": 1})
    kinds = [line["kind"] for line in lines(run_dir / "metrics.jsonl")]
    assert kinds.count("learner.stepped") == 3
    assert "death" in kinds
    assert "status" in kinds
    info = RunFolder(run_dir).info()
    assert info is not None
    assert (info.state, info.sessions) == ("complete", 1)

    # The same folder again: the end of the first session does not end the second.
    said = finish(session := start(run_dir, "run.steps=5"))
    assert session.returncode == 0, said
    assert "update 5/5" in said
    assert "update 3/5" not in said
    info = RunFolder(run_dir).info()
    assert info is not None
    assert info.sessions == 2


def test_interrupt_drains_and_a_second_up_is_refused_meanwhile(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    session = start(run_dir, "run.seed=99", *SMALL)
    wait_until(lambda: running(run_dir))
    second = subprocess.run(
        [sys.executable, "-m", "spade_actors", "up", str(run_dir)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 2
    assert f"in use by process {session.pid}" in second.stderr
    status = subprocess.run(
        [sys.executable, "-m", "spade_actors", "status", str(run_dir)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert status.returncode == 0, status.stderr
    assert "designer-1" in status.stdout
    assert "designer-1" in top_in_a_terminal(run_dir)
    session.send_signal(signal.SIGINT)
    said = finish(session)
    assert session.returncode == 130, said
    assert "OUTCOME interrupted SIGINT" in said
    assert (run_dir / "order.txt").read_text().split()[-1] == "memory"
    nothing_left(run_dir)
    assert json.loads((run_dir / "summary.json").read_text())["exit"] == "interrupted"


def test_kill_dash_nine_of_the_supervisor_leaves_nothing_running(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    session = start(run_dir, "run.seed=99", *SMALL)
    wait_until(lambda: running(run_dir))
    assert len(of_run(run_dir)) == 7
    session.kill()
    session.wait()
    wait_until(lambda: of_run(run_dir) == [], within=5.0)
    # The folder can be continued, and ended from another terminal.
    session = start(run_dir, "run.seed=99", *SMALL)
    wait_until(lambda: (info := RunFolder(run_dir).running()) is not None and info.sessions == 2)
    command = [sys.executable, "-m", "spade_actors", "down", str(run_dir)]
    down = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (down.returncode, down.stdout) == (
        0,
        f"{run_dir} is down; continue it with `spade-actors up {run_dir}`\n",
    ), down.stderr
    assert session.wait(timeout=10) == 130
    nothing_left(run_dir)


def test_a_run_that_cannot_work_fails_and_says_what_and_where(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    said = finish(session := start(run_dir, "run.seed=13", *SMALL))
    assert session.returncode == 1, said
    outcome = said.strip().splitlines()[-1]
    assert outcome.startswith(
        "OUTCOME failed memory died again and again, last: ValueError: run.model: there is no such folder"
    )
    assert outcome.endswith("logs/memory.log")
    nothing_left(run_dir)
