"""Real processes: signals, the death pipe, crashes, and an idle child that lives."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from idle import IdleChild

from spade_actors.config.schema import Config, HubConfig
from spade_actors.runtime.context import Context
from spade_actors.runtime.errors import PeerGone
from spade_actors.runtime.testing import context, running_hub
from spade_protocols.common import Ping
from spade_protocols.directory import PeerDown

CHILD = Path(__file__).with_name("actor_process.py")
QUICK = Config(hub=HubConfig(heartbeat_s=0.2, ttl_s=2.0))


class World:
    def __init__(self, hub: str, run_dir: Path, ctx: Context) -> None:
        self.hub = hub
        self.run_dir = run_dir
        self.sockets = Path(hub.removeprefix("ipc://")).parent
        self.ctx = ctx

    async def start(self, kind: str, name: str = "agent-1", *, pipe: bool = False) -> "Child":
        command = [sys.executable, str(CHILD), kind, name, self.hub, str(self.run_dir), str(self.sockets)]
        read = write = -1
        if pipe:
            read, write = os.pipe()
            os.set_inheritable(read, True)
            command.append(str(read))
        process = await trio.lowlevel.open_process(
            command, start_new_session=True, pass_fds=(read,) if pipe else (), stderr=subprocess.DEVNULL
        )
        if pipe:
            os.close(read)
        await self.ctx.peer("agent", deadline=time.time() + 20)
        return Child(process, write)

    def log(self, name: str = "agent-1") -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.run_dir / "logs" / f"{name}.log").read_text().splitlines()]


class Child:
    def __init__(self, process: trio.Process, pipe: int) -> None:
        self.process = process
        self.pipe = pipe

    async def ends(self, within: float) -> int:
        with trio.fail_after(within):
            code = await self.process.wait()
        return code


def run(tmp_path: Path, test: Callable[[World], Awaitable[None]], limit: float = 45) -> None:
    async def main() -> None:
        with trio.fail_after(limit):
            async with (
                running_hub(tmp_path, config=QUICK) as hub,
                context("judge", role="judge", hub=hub) as ctx,
            ):
                await test(World(hub, tmp_path, ctx))

    trio.run(main)


def test_the_first_signal_drains_and_the_process_says_goodbye(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        child = await world.start("idle")
        await (await world.ctx.peer("agent")).call(Ping(), timeout=5)
        async with world.ctx.events(PeerDown, snapshot=False) as events:
            child.process.send_signal(signal.SIGINT)
            assert await child.ends(5) == 0
            down = (await anext(events)).message
            assert isinstance(down, PeerDown)
            assert down.reason == "left"
        assert not (world.sockets / "agent-1.sock").exists()
        assert [line["event"] for line in world.log()][-1] == "end"

    run(tmp_path, test)


def test_the_second_signal_stops_at_once(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        child = await world.start("stuck")
        child.process.terminate()
        await trio.sleep(0.3)
        assert child.process.poll() is None
        child.process.terminate()
        assert await child.ends(5) == 130
        assert not (world.sockets / "agent-1.sock").exists()

    run(tmp_path, test)


@pytest.mark.parametrize("kind", ["idle", "blocked"])
def test_a_process_stops_when_the_death_pipe_closes(tmp_path: Path, kind: str) -> None:
    async def test(world: World) -> None:
        child = await world.start(kind, pipe=True)
        os.close(child.pipe)
        assert await child.ends(5) == 70

    run(tmp_path, test)


def test_a_crash_is_exit_code_1_with_the_reason_in_the_log_and_no_goodbye(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        child = await world.start("crash")
        assert await child.ends(5) == 1
        failed = [line for line in world.log() if line["event"] == "failed"]
        assert "RuntimeError: as asked" in str(failed[0]["exception"])
        async with world.ctx.events(PeerDown, snapshot=False) as events:
            down = (await anext(events)).message
            assert isinstance(down, PeerDown)
            assert down.reason == "silent"

    run(tmp_path, test)


def test_calls_to_a_killed_process_end_when_the_directory_says_so(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        child = await world.start("blocked")
        caller = await world.ctx.peer("agent")
        await trio.sleep(0.3)
        child.process.kill()
        with pytest.raises(PeerGone, match="silent"):
            await caller.call(Ping(), timeout=30)

    run(tmp_path, test)


def test_a_child_started_from_a_worker_thread_lives_while_idle(idle_child: IdleChild) -> None:
    """A spawning thread exits after ten idle seconds; whoever ties a child's life to that thread kills the child.

    The child was started before the first test of this folder, so that the 31 s pass beside the others.
    """

    async def main() -> None:
        await trio.sleep(max(idle_child.started + 31 - time.monotonic(), 0))
        assert idle_child.process.poll() is None
        os.close(idle_child.pipe)
        with trio.fail_after(5):
            assert await trio.to_thread.run_sync(idle_child.process.wait) == 70

    trio.run(main)
