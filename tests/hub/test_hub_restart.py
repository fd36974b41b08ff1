"""A hub process killed with -9 at random moments: it comes back from its journal and nobody loses or doubles anything."""

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from loopback import folder

from spade_actors.runtime.context import Context, ipc_address
from spade_actors.runtime.testing import context
from spade_protocols.queues import Completion, Item, ItemEnded, PutTo
from spade_protocols.sample import LearnerStarted

HUB = Path(__file__).with_name("hub_process.py")


class HubProcess:
    def __init__(self, run_dir: Path, sockets: Path, ttl: float = 8.0) -> None:
        self.address = ipc_address(sockets, "hub")
        self._command = [sys.executable, str(HUB), str(run_dir), str(sockets), str(ttl)]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def bounded(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        with trio.fail_after(60):
            await main()

    trio.run(limited)


@asynccontextmanager
async def hub_process(run_dir: Path, ttl: float = 8.0) -> AsyncIterator[HubProcess]:
    async with folder() as sockets:
        hub = HubProcess(run_dir, sockets, ttl)
        try:
            yield hub
        finally:
            hub.kill()


def test_leases_queues_events_and_peers_survive_kill_9(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            hub_process(tmp_path) as hub,
            context("agent-1", role="agent", hub=hub.address) as agent,
            context("judge", role="judge", hub=hub.address) as judge,
        ):
            await judge.hub.put("plays", [Item(id=f"p{n}", body={"n": n}, group=f"g{n // 2}") for n in range(6)])
            leased = await agent.hub.lease("plays", 2, wait_s=5)
            await agent.hub.complete("plays", [Completion(id="p0", lease=leased[0].lease, result={"ok": True})])
            async with judge.events(LearnerStarted) as events:
                await judge.hub.publish(LearnerStarted(step=1, version=1), key="x", retain=True)
                assert (await anext(events)).seq
                hub.kill()
                hub.start()
                again = Completion(id="p0", lease=leased[0].lease, result={"ok": True})
                assert (await agent.hub.complete("plays", [again])).done == ["p0"]
                status = await judge.hub.status()
                assert {p.peer.name for p in status.peers} == {"hub", "agent-1", "judge"}
                (queue,) = status.queues
                assert (queue.ready, queue.leased, queue.completed) == (4, 1, 1)
                assert (await agent.hub.complete("plays", [Completion(id="p1", lease=leased[1].lease)])).done == ["p1"]
                snapshot = await judge.hub.snapshot(["learner.started"])
                assert [stored.key for stored in snapshot.events] == ["x"]
                await judge.hub.publish(LearnerStarted(step=2, version=2))
                event = await anext(events)
                assert event.message == LearnerStarted(step=2, version=2)
            assert (await judge.hub.put("plays", [Item(id="p0", body={})])).duplicates == 1

    bounded(main)


def test_a_holder_that_died_during_the_hubs_absence_is_declared_dead_one_ttl_after_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with hub_process(tmp_path, ttl=1.0) as hub, context("judge", role="judge", hub=hub.address) as judge:
            async with context("agent-1", role="agent", hub=hub.address, leave=False) as agent:
                await judge.hub.put("plays", [Item(id="a", body={})])
                await agent.hub.lease("plays", 1, wait_s=5)
                hub.kill()
            hub.start()
            began = trio.current_time()
            (leased,) = await judge.hub.lease("plays", 1, wait_s=10)
            assert leased.attempt == 2
            assert trio.current_time() - began >= 0.9

    bounded(main)


def test_a_parked_lease_call_and_a_lease_whose_reply_was_lost_survive(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            hub_process(tmp_path) as hub,
            context("agent-1", role="agent", hub=hub.address) as agent,
            context("judge", role="judge", hub=hub.address) as judge,
        ):
            got: list[str] = []

            async def lease() -> None:
                got.extend(item.id for item in await agent.hub.lease("plays", 2, wait_s=20))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(lease)
                await trio.sleep(0.3)
                hub.kill()
                hub.start()
                await judge.hub.put("plays", [Item(id="a", body={}), Item(id="b", body={})])
            assert got == ["a", "b"]

    bounded(main)


def test_work_goes_through_exactly_once_while_the_hub_is_killed_again_and_again(tmp_path: Path) -> None:
    total = 400

    async def main() -> None:
        ended: list[str] = []
        async with (
            hub_process(tmp_path) as hub,
            context("agent-1", role="agent", hub=hub.address) as one,
            context("agent-2", role="agent", hub=hub.address) as two,
            context("judge", role="judge", hub=hub.address) as judge,
        ):

            async def put() -> None:
                for n in range(0, total, 10):
                    await judge.hub.put("plays", [Item(id=f"p{k}", body={}, attempts=99) for k in range(n, n + 10)])

            async def work(ctx: Context) -> None:
                while True:
                    for item in await ctx.hub.lease("plays", 3, wait_s=1):
                        completion = Completion(id=item.id, lease=item.lease, result={"by": ctx.name})
                        follow = PutTo(queue="samples", items=[Item(id=f"s-{item.id}", body={})])
                        await ctx.hub.complete("plays", [completion], puts=[follow])

            async def follow() -> None:
                async with judge.events(ItemEnded) as events:
                    async for event in events:
                        assert isinstance(event.message, ItemEnded)
                        ended.append(event.message.id)
                        if len(ended) == total:
                            nursery.cancel_scope.cancel()

            async def kill() -> None:
                for pause in (0.5, 0.8, 0.3, 0.6):
                    await trio.sleep(pause)
                    hub.kill()
                    hub.start()

            async with trio.open_nursery() as nursery:
                for task in (follow, put, kill):
                    nursery.start_soon(task)
                nursery.start_soon(work, one)
                nursery.start_soon(work, two)
            assert sorted(ended) == sorted(f"p{n}" for n in range(total))
            queues = {q.queue: q for q in (await judge.hub.status()).queues}
            assert (queues["plays"].completed, queues["plays"].ready, queues["plays"].leased) == (total, 0, 0)
            assert queues["samples"].ready == total

    bounded(main)


def test_a_drained_hub_leaves_no_socket_behind(tmp_path: Path) -> None:
    async def main() -> None:
        async with folder() as sockets:
            hub = HubProcess(tmp_path, sockets)
            async with context("judge", role="judge", hub=hub.address) as judge:
                await judge.hub.put("plays", [Item(id="a", body={})])
                hub.process.send_signal(signal.SIGTERM)
                await judge.hub.put("plays", [Item(id="b", body={})])
            with trio.fail_after(10):
                while hub.process.poll() is None:
                    await trio.sleep(0.02)
            assert hub.process.returncode == 0
            assert [path.name for path in sockets.iterdir()] == ["logs"]

    bounded(main)
