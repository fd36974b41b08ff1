"""Whatever happens to the executor, nothing of its jails stays."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import trio
from jail_helpers import LIMITS, env, needs_jails, with_provider

from spade_sandbox import EnvironmentFailure
from spade_sandbox.nsjail import sweep_cgroups

pytestmark = needs_jails

_EXECUTOR = """
import sys, trio
sys.path.insert(0, sys.argv[1])
from jail_helpers import LIMITS, env
from spade_sandbox import NsjailProvider

async def main():
    async with NsjailProvider(LIMITS, warm=2, twins=1) as provider:
        await trio.sleep(1)
        environment = await provider.environment(env(step="while True: pass"))
        waiting, _ = await environment.open(1)
        looping, _ = await environment.open(2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: looping.step("x", timeout=60))
            await trio.sleep(0.2)
            print("ready", flush=True)
            await trio.sleep_forever()

trio.run(main)
"""


def _leftovers(pids) -> list[str]:
    """Control groups of these processes that are still there: nsjail names them by the jail's first process."""
    groups = Path("/sys/fs/cgroup")
    places = [groups / "memory/NSJAIL", groups / "pids/NSJAIL", groups]
    return [str(place / f"NSJAIL.{pid}") for place in places for pid in pids if (place / f"NSJAIL.{pid}").exists()]


def _files() -> set[str]:
    """What lies in /tmp in nsjail's name, beside its two empty mount points."""
    return {str(p) for p in Path("/tmp").glob("nsjail*") if p.suffix not in (".root", ".tmp") or any(p.iterdir())}


def _wait(condition, seconds=5.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def _executor() -> tuple[subprocess.Popen, list[psutil.Process]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _EXECUTOR, str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 8  # three waiting jails and one at work, each nsjail and zygote, and two episodes
    return process, children


def test_an_executor_killed_leaves_no_process_and_no_file() -> None:
    process, children = _executor()
    process.kill()
    process.wait()
    assert _wait(lambda: not any(_alive(child) for child in children))
    assert _wait(lambda: not _leftovers([child.pid for child in children]))
    assert not _files()


def test_an_executor_interrupted_leaves_nothing_either() -> None:
    process, children = _executor()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert not any(_alive(child) for child in children)
    assert not _leftovers([child.pid for child in children])
    assert not _files()


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_an_outer_process_killed_takes_its_jail_along() -> None:
    async def body(provider):
        environment = await provider.environment(env(step="while True: pass"))
        await environment.open(1)
        jail = next(iter(provider.pool.jails))
        inside = psutil.Process(jail.pid).children(recursive=True)
        assert len(inside) == 2
        os.kill(jail.pid, signal.SIGKILL)
        with trio.fail_after(5):
            while any(_alive(process) for process in inside) or provider.pool.jails:
                await trio.sleep(0.02)
            while _leftovers([process.pid for process in inside]):  # until init has reaped the orphan
                sweep_cgroups()
                await trio.sleep(0.02)

    with_provider(body)


def test_descriptors_and_processes_stay_flat_over_many_episodes() -> None:
    source = env(step="if self.seed % 7 == 0:\n    import os; os._exit(1)\nreturn 'x', 0.0, False, False, {}")
    me = psutil.Process()

    async def body(provider):
        environment = await provider.environment(source)

        async def one(seed):
            session, _ = await environment.open(seed)
            with suppress(EnvironmentFailure):
                await session.step("x")
            session.close()

        async def many(count):
            for start in range(0, count, 20):
                async with trio.open_nursery() as nursery:
                    for seed in range(start, start + 20):
                        nursery.start_soon(one, seed)
            with trio.fail_after(5):
                while provider.stats().sessions:
                    await trio.sleep(0.01)

        await many(40)
        before = (me.num_fds(), len(me.children(recursive=True)))
        await many(400)
        assert (me.num_fds(), len(me.children(recursive=True))) == before

    with_provider(body, LIMITS)


def test_a_jail_per_episode_ends_with_it() -> None:
    async def body(provider):
        environment = await provider.environment(env())
        for seed in range(3):
            session, _ = await environment.open(seed)
            session.close()
        with trio.fail_after(5):
            while provider.pool.jails:
                await trio.sleep(0.01)
        assert provider.stats().jails_total == 4

    with_provider(body, fresh="jail")
