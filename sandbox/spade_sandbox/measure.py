"""Measurements of the sandbox beside what it is built on, in one run: `rows = await measure()`.

Wall times are what a user waits on this machine as loaded as it is; processor times (host, zygote, children, nsjail, all
reaped) compare across loads. Ratios take both sides in the same run.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import subprocess
from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter
from typing import NamedTuple

import trio

from . import gate
from .limits import JailLimits
from .nsjail import Identity, arguments, find_cgroups, locate
from .provider import Environment, NsjailProvider
from .rootfs import ensure_rootfs
from .session import Session

_SESSIONS = 64
_TURNS = 11
SAMPLE = '''
class HuntEnv:
    """Find a hidden number by higher and lower."""

    def __init__(self):
        self.max_turns = 12

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.low = 10 * rng.randint(2, 5)
        self.goal = self.low + rng.randint(0, 30)
        self.turn = 0
        return f"from {self.low} to {self.low + 30}", {}

    def step(self, action):
        self.turn += 1
        text = action.strip()
        if text == str(self.goal):
            return "yes", 1.0, True, False, {}
        seen = "number"
        if text[:4].isdecimal():
            seen = "up" if int(text[:4]) < self.goal else "down"
        return seen, 0.0, False, self.turn >= self.max_turns, {}
'''


class Row(NamedTuple):
    """One figure. `met` is None where there is no target."""

    name: str
    value: float
    unit: str
    target: str = ""
    met: bool | None = None


async def measure(*, quick: bool = False) -> list[Row]:
    """Run everything, about 20 s (`quick`: 5 s). Needs nsjail. Call it from `trio.run`."""
    share = 0.2 if quick else 1.0
    rows = await _cold(max(5, int(20 * share)))
    rows += await _open(int(500 * share))
    rows += await _steps(int(400 * share))
    rows += await _episodes(int(40 * share))
    rows += await _gate(max(5, int(20 * share)))
    return rows


async def _cold(count: int) -> list[Row]:
    """A cold jail, ready to step, against the same nsjail command around a Python that does nothing."""
    root = ensure_rootfs()
    bare = arguments(
        locate(),
        root,
        JailLimits(),
        Identity.of_caller(),
        cgroups=find_cgroups(),
        hash_seed="0",
        control=0,
        seccomp_policy="",
    )
    bare[bare.index("-m") :] = ["-c", "pass"]
    waits = await trio.to_thread.run_sync(_start_to_end, bare, count)
    cold: list[float] = []
    async with _provider(warm=0) as provider:
        for number in range(count):
            mark = perf_counter()
            environment = await provider.environment(f"{SAMPLE}# {number}")
            session, _ = await environment.open(1)
            cold.append(perf_counter() - mark)
            session.close()
            environment.close()
    ratio = median(cold) / median(waits)
    return [
        Row("bare nsjail + python, start to end", median(waits) * 1e3, "ms"),
        Row("cold jail, ready to step", median(cold) * 1e3, "ms"),
        Row("cold jail over bare", ratio, "x", "<= 1.5", ratio <= 1.5),
    ]


def _start_to_end(command: list[str], count: int) -> list[float]:
    waits: list[float] = []
    for _ in range(count):
        mark = perf_counter()
        subprocess.run(command, env={}, check=True, stdin=subprocess.DEVNULL)
        waits.append(perf_counter() - mark)
    return waits


async def _open(count: int) -> list[Row]:
    waits: list[float] = []
    async with _provider() as provider:
        environment = await provider.environment(SAMPLE)
        for seed in range(count):
            mark = perf_counter()
            session, _ = await environment.open(seed)
            waits.append(perf_counter() - mark)
            session.close()
    return [Row("session open, p50", median(waits) * 1e3, "ms", "<= 2", median(waits) <= 2e-3)]


async def _steps(turns: int) -> list[Row]:
    """Steps of sessions that are open already; processor time less that of the same run without steps."""
    source = SAMPLE.replace("self.max_turns = 12", "self.max_turns = 900_000")
    walls: list[float] = []
    spent: list[float] = []
    for count in (0, turns):
        before = _cpu()
        async with _provider(warm=0) as provider:
            environment = await provider.environment(source)
            sessions = [(await environment.open(1))[0] for _ in range(_SESSIONS)]
            mark = perf_counter()
            async with trio.open_nursery() as nursery:
                for session in sessions:
                    nursery.start_soon(_step_on, session, count)
            walls.append(perf_counter() - mark)
        spent.append(_cpu() - before)
    wall, cpu = walls[1], spent[1] - spent[0]
    raw_wall, raw_cpu = await trio.to_thread.run_sync(_raw_echo, turns)
    total = _SESSIONS * turns
    return [
        Row("steps, 64 sessions", total / wall, "1/s"),
        Row("steps per processor second, both sides", total / cpu, "1/s", ">= 20000", total / cpu >= 20_000),
        Row("raw socket echo of the same bytes, 64 processes", total / raw_wall, "1/s"),
        Row("raw socket echo per processor second", total / raw_cpu, "1/s"),
        Row("steps over raw echo", raw_wall / wall, "x", ">= 0.5", raw_wall / wall >= 0.5),
        Row("steps over raw echo, processor time", raw_cpu / cpu, "x"),
    ]


async def _step_on(session: Session, turns: int) -> None:
    for _ in range(turns):
        await session.step("0")


async def _episodes(count: int) -> list[Row]:
    async def body(environment: Environment) -> None:
        for seed in range(count):
            session, _ = await environment.open(seed, max_turns=_TURNS + 1)
            for _ in range(_TURNS):
                await session.step("0")
            session.close()

    wall, cpu = await _load(SAMPLE, body, _SESSIONS)
    total = count * _SESSIONS
    return [
        Row("episodes of 11 turns, a fresh process each", total / wall, "1/s", ">= 600", total / wall >= 600),
        Row("processor time of such an episode, all processes", cpu / total * 1e3, "ms"),
        Row("steps in them", total * _TURNS / wall, "1/s", ">= 8000", total * _TURNS / wall >= 8000),
    ]


async def _gate(count: int) -> list[Row]:
    """The gate on environments whose two jails are warm; what starting those costs is a row of its own."""
    waits: list[float] = []
    spent: list[float] = []
    for judge in (False, True):
        before = _cpu()
        async with _provider(warm=count, twins=count) as provider:
            await provider.pool.full()
            for number in range(count if judge else 0):
                report = await gate.run(provider, f"{SAMPLE}# {number}")
                assert report.admitted, report.reason
                waits.append(report.ms)
        spent.append(_cpu() - before)
    start = spent[0] / (2 * count) * 1e3
    # Each jail taken from the pool is replaced: those starts are not the gate's.
    gates = (spent[1] - spent[0]) / count * 1e3 - 2 * start
    return [
        Row("starting a warm jail, processor time", start, "ms"),
        Row("gate, p50", median(waits), "ms"),
        Row("gate, processor time", gates, "ms", "<= 150", gates <= 150),
    ]


async def _load(source: str, body: Callable[[Environment], Awaitable[None]], workers: int) -> tuple[float, float]:
    """Wall and processor seconds of `workers` bodies at once, without starting the jail."""
    idle = _cpu()
    async with _provider(warm=0) as provider:
        (await provider.environment(source)).close()
    before = _cpu()
    overhead = before - idle
    async with _provider(warm=0) as provider:
        environment = await provider.environment(source)
        mark = perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(workers):
                nursery.start_soon(body, environment)
        wall = perf_counter() - mark
    return wall, _cpu() - before - overhead


def _provider(warm: int = 1, twins: int = 0) -> NsjailProvider:
    return NsjailProvider(warm=warm, twins=twins, keep_idle=0)


def _cpu() -> float:
    """Processor seconds of this process and all it has reaped."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def _raw_echo(turns: int) -> tuple[float, float]:
    """As many processes that echo frames of a step's size, driven by one epoll loop without any checking."""
    call, answer = b"x" * 10, b"y" * 40
    before = _cpu()
    code = (
        "import os, sys\nfd = int(sys.argv[1])\nos.write(fd, b'r')\n"
        f"while os.read(fd, 65536): os.write(fd, {answer!r})\n"
    )
    processes: list[subprocess.Popen[bytes]] = []
    ends: dict[int, socket.socket] = {}
    for _ in range(_SESSIONS):
        ours, theirs = socket.socketpair()
        command = [os.path.realpath("/proc/self/exe"), "-I", "-S", "-c", code, str(theirs.fileno())]
        processes.append(subprocess.Popen(command, pass_fds=(theirs.fileno(),)))
        theirs.close()
        ends[ours.fileno()] = ours
    for end in ends.values():
        end.recv(1)
    started = _cpu() - before
    left = dict.fromkeys(ends, turns)
    poll = select.epoll()
    mark = perf_counter()
    for descriptor, end in ends.items():
        end.setblocking(False)
        poll.register(descriptor, select.EPOLLIN)
        end.send(call)
    while left:
        for descriptor, _ in poll.poll():
            ends[descriptor].recv(65536)
            left[descriptor] -= 1
            if left[descriptor]:
                ends[descriptor].send(call)
            else:
                del left[descriptor]
    wall = perf_counter() - mark
    for end in ends.values():
        end.close()
    for process in processes:
        process.wait()
    poll.close()
    # The echoing processes' start-up is only known once they are reaped: measured apart, by as many that echo nothing.
    total = _cpu() - before - started
    mark_cpu = _cpu()
    for _ in range(8):
        subprocess.run([os.path.realpath("/proc/self/exe"), "-I", "-S", "-c", "import os, sys"], check=True)
    return wall, max(total - (_cpu() - mark_cpu) / 8 * _SESSIONS, 1e-6)
