"""The bus: typed calls, events, leased queues and the journal, with bare pyzmq and bare SQLite beside them.

Every pair that is compared alternates in one run with a process on each end, so that a busy machine is unkind to both.
"""

import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import trio
import zmq

from spade_actors.runtime.calls import Caller, Callers, Identity
from spade_actors.runtime.context import Context, ipc_address
from spade_actors.runtime.metrics import Metrics
from spade_actors.runtime.sockets import SocketFactory
from spade_actors.runtime.testing import context
from spade_actors.runtime.timers import Timers
from spade_bench.rows import Row, row
from spade_protocols.codec import DEFAULT_LIMITS, pack_body, pack_header
from spade_protocols.play import StepSession
from spade_protocols.queues import Completion, Item
from spade_protocols.sample import LearnerStarted

IN_FLIGHT = 256
STEP = StepSession(session="s-000123", turn=3, action="open the door")
ROUNDS = 4


@contextmanager
def _process(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-m", "spade_bench.bus_process", *arguments])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def run(seconds: float = 3.0) -> list[Row]:
    """All rows, about this many seconds for each."""
    folder = Path(tempfile.mkdtemp(prefix="spade-b-"))
    try:
        with (
            _process("bare", f"ipc://{folder}/bare.sock"),
            _process("typed", f"ipc://{folder}/typed.sock"),
            _process("task", f"ipc://{folder}/task.sock"),
        ):
            rows = trio.run(_calls, folder, seconds)
        hub = ipc_address(folder, "hub")
        with _process("hub", hub, str(folder)) as hub_process, _process("idle", hub, str(folder)) as idle:
            rows += trio.run(_hub, hub, folder, hub_process.pid, idle.pid, seconds)
        return rows
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _bare_echo(address: str) -> "zmq.Socket[bytes]":
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(address)
    return socket


def _bare_round_trip(socket: "zmq.Socket[bytes]", seconds: float) -> float:
    """Median microseconds of one round trip of the same bytes."""
    frames = [
        pack_header("call", "session.step", "0123456789.123456", "bench", "", "client", time.time()),
        pack_body(STEP),
    ]
    times = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        socket.send_multipart(frames)
        socket.recv_multipart()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


async def _round_trip(caller: Caller, seconds: float) -> float:
    times = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        await caller.call(STEP, timeout=10)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


async def _throughput(caller: Caller, seconds: float) -> float:
    """Calls per second with `IN_FLIGHT` at once."""
    done = 0
    began = time.perf_counter()
    until = began + seconds

    async def work() -> None:
        nonlocal done
        while time.perf_counter() < until:
            await caller.call(STEP, timeout=30)
            done += 1

    async with trio.open_nursery() as nursery:
        for _ in range(IN_FLIGHT):
            nursery.start_soon(work)
    return done / (time.perf_counter() - began)


async def _calls(folder: Path, seconds: float) -> list[Row]:
    sockets = SocketFactory(DEFAULT_LIMITS.buffer)
    timers = Timers()
    slot = seconds / ROUNDS
    bare, ours, rates, task_rates = [], [], [], []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run)
        who = Identity("client", "1" * 10, "bench")
        callers = Callers(nursery, sockets, who, timers, DEFAULT_LIMITS, Metrics())
        typed, task = (callers.get(f"ipc://{folder}/{kind}.sock") for kind in ("typed", "task"))
        for caller in (typed, task):
            await caller.call(STEP, timeout=30)
        echo = _bare_echo(f"ipc://{folder}/bare.sock")
        _bare_round_trip(echo, 0.1)
        for _ in range(ROUNDS):
            bare.append(_bare_round_trip(echo, slot))
            ours.append(await _round_trip(typed, slot))
            rates.append(await _throughput(typed, slot))
            task_rates.append(await _throughput(task, slot))
        echo.close()
        nursery.cancel_scope.cancel()
    sockets.close()
    ratio = statistics.median(b / a for a, b in zip(bare, ours, strict=True))
    return [
        row("bare pyzmq echo, round trip", statistics.median(bare), "us"),
        row("typed call, round trip", statistics.median(ours), "us"),
        row("typed call / bare echo", ratio, "x", at_most=3.0),
        row(f"typed calls, {IN_FLIGHT} in flight", max(rates), "calls/s", at_least=25_000),
        row(f"typed calls, {IN_FLIGHT} in flight, a task per call", max(task_rates), "calls/s"),
    ]


async def _hub(hub: str, folder: Path, hub_pid: int, idle_pid: int, seconds: float) -> list[Row]:
    async with context("bench", role="bench", hub=hub, run_dir=folder) as ctx:
        await ctx.peer("agent")
        rows = [*await _idle(hub_pid, idle_pid, max(seconds, 2.0))]
        rows += await _events(ctx, seconds)
        rows.append(await _leases(ctx, seconds))
        rows += _commits(folder, seconds / 2)
        rows.append(row("publish through the hub, one at a time", await _publishes(ctx, seconds / 2), "ms"))
    return rows


async def _idle(hub_pid: int, idle_pid: int, seconds: float) -> list[Row]:
    """CPU share of a process that only is there, and of the hub."""
    processes = {"an idle actor": psutil.Process(idle_pid), "an idle hub": psutil.Process(hub_pid)}
    await trio.sleep(0.5)
    before = {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}
    began = time.perf_counter()
    await trio.sleep(seconds)
    wall = time.perf_counter() - began
    return [
        row(f"CPU of {name}", 100 * (sum(process.cpu_times()[:2]) - before[name]) / wall, "%", at_most=1.0)
        for name, process in processes.items()
    ]


async def _events(ctx: Context, seconds: float) -> list[Row]:
    """Four followers of every event: events per second published, and the time from commit to the last follower."""
    followers = 4
    lags: list[float] = []
    published = 0
    expected = -1
    complete = trio.Event()

    async def follow(task_status: trio.TaskStatus[None]) -> None:
        async with ctx.events(LearnerStarted, snapshot=False) as events:
            task_status.started()
            async for event in events:
                lags.append(time.time() - event.at)
                if len(lags) == expected:
                    complete.set()

    async def publish(until: float) -> None:
        nonlocal published
        while time.perf_counter() < until:
            published += 8
            await ctx.hub.publish_all([ctx.hub.outgoing(LearnerStarted(step=n, version=n)) for n in range(8)])

    async with trio.open_nursery() as nursery:
        for _ in range(followers):
            await nursery.start(follow)
        began = time.perf_counter()
        async with trio.open_nursery() as publishers:
            for _ in range(16):
                publishers.start_soon(publish, began + seconds)
        wall = time.perf_counter() - began
        expected = published * followers
        with trio.move_on_after(10):
            if len(lags) < expected:
                await complete.wait()
        nursery.cancel_scope.cancel()
    if len(lags) < expected:
        raise RuntimeError(f"{expected - len(lags)} of {expected} events did not arrive")
    return [
        row(f"events published, {followers} followers", published / wall, "events/s"),
        row("commit to follower, median", statistics.median(lags) * 1e3, "ms"),
    ]


async def _leases(ctx: Context, seconds: float) -> Row:
    """Items that go through put, lease and complete, durable at each step, 64 workers."""
    done = 0
    until = time.perf_counter() + seconds

    async def work(n: int) -> None:
        nonlocal done
        turn = 0
        while time.perf_counter() < until:
            turn += 1
            await ctx.hub.put("bench", [Item(id=f"{n}-{turn}", body={"seed": turn})])
            for item in await ctx.hub.lease("bench", 1, wait_s=5):
                await ctx.hub.complete("bench", [Completion(id=item.id, lease=item.lease, result={"ok": True})])
                done += 1

    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for n in range(64):
            nursery.start_soon(work, n)
    return row("items put, leased and completed, 64 workers", done / (time.perf_counter() - began), "items/s")


async def _publishes(ctx: Context, seconds: float) -> float:
    times = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        await ctx.hub.publish(LearnerStarted(step=0, version=0))
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def _commits(folder: Path, seconds: float) -> list[Row]:
    """What a bare SQLite commit (WAL, FULL) of one row costs here."""
    db = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, x BLOB)")
    times = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        db.execute("INSERT INTO t (x) VALUES (zeroblob(100))")
        times.append(time.perf_counter() - began)
    db.close()
    return [row("bare SQLite commit, WAL and FULL", statistics.median(times) * 1e3, "ms")]
