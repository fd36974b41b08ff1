"""The hub through real sockets, in one loop."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from spade_actors.config.schema import Config, HubConfig
from spade_actors.runtime.context import Context
from spade_actors.runtime.errors import CallFailed
from spade_actors.runtime.testing import context, running_hub
from spade_protocols.directory import PeerDown, PeerUp
from spade_protocols.events import Publish
from spade_protocols.queues import Completion, Item, ItemEnded, ItemReturned, PutTo, Return
from spade_protocols.sample import LearnerStarted, RunState

QUICK = Config(hub=HubConfig(heartbeat_s=0.1, ttl_s=1.0))


def run(tmp_path: Path, test: Callable[[Context, Context], Awaitable[None]], config: Config | None = None) -> None:
    async def main() -> None:
        with trio.fail_after(30):
            async with (
                running_hub(tmp_path, config=config) as hub,
                context("agent-1", role="agent", hub=hub) as agent,
                context("judge", role="judge", hub=hub) as judge,
            ):
                await test(agent, judge)

    trio.run(main)


def item(id_: str, group: str = "", attempts: int = 3, **body: object) -> Item:
    return Item(id=id_, body=dict(body), group=group, attempts=attempts)


def test_put_lease_complete_publishes_one_end_with_its_result(tmp_path: Path) -> None:
    async def test(agent: Context, judge: Context) -> None:
        accepted = await judge.hub.put("plays", [item("a", "g"), item("b", "g"), item("a", "g")])
        assert (accepted.new, accepted.duplicates) == (2, 1)
        async with judge.events(ItemEnded) as events:
            leased = await agent.hub.lease("plays", 1, wait_s=0)
            assert [(x.id, x.attempt, x.group) for x in leased] == [("a", 1, "g"), ("b", 1, "g")]
            completion = Completion(id="a", lease=leased[0].lease, result={"outcome": "finished"})
            for _ in range(2):
                ends = await agent.hub.complete("plays", [completion], puts=[PutTo(queue="samples", items=[item("s")])])
                assert (ends.done, ends.lost) == (["a"], [])
            event = await anext(events)
            assert isinstance(event.message, ItemEnded)
            assert (event.message.id, event.message.state, event.message.result) == (
                "a",
                "completed",
                {"outcome": "finished"},
            )
            assert (event.key, event.message.attempt, event.message.holder) == ("plays", 1, "agent-1")
        found = await judge.hub.find("plays", ["a", "b", "never"])
        assert found.states == {"a": "completed", "b": "leased"}
        assert found.results == {"a": {"outcome": "finished"}}
        assert [x.id for x in await agent.hub.lease("samples", 5, wait_s=0)] == ["s"]
        assert (await judge.hub.put("plays", [item("a")])).duplicates == 1
        assert await agent.hub.lease("plays", 5, wait_s=0) == []

    run(tmp_path, test)


def test_nothing_follows_a_lost_lease_unless_partial(tmp_path: Path) -> None:
    async def test(agent: Context, judge: Context) -> None:
        await judge.hub.put("plays", [item("a"), item("b")])
        leased = await agent.hub.lease("plays", 2, wait_s=0)
        await judge.hub.cancel("plays", ids=["b"], reason="trial withdrawn")
        completions = [Completion(id=x.id, lease=x.lease) for x in leased]
        follow = [PutTo(queue="samples", items=[item("s")])]
        ends = await agent.hub.complete("plays", completions, puts=follow, partial=False)
        assert (ends.done, ends.lost) == ([], ["b"])
        assert await agent.hub.lease("samples", 1, wait_s=0) == []
        ends = await agent.hub.complete("plays", completions, puts=follow)
        assert (ends.done, ends.lost) == (["a"], ["b"])
        assert len(await agent.hub.lease("samples", 1, wait_s=0)) == 1

    run(tmp_path, test)


def test_cancel_by_group_ends_ready_and_leased_items_and_is_idempotent(tmp_path: Path) -> None:
    async def test(agent: Context, judge: Context) -> None:
        await judge.hub.put("plays", [item("a", "g1"), item("b", "g1"), item("c", "g2")])
        await agent.hub.lease("plays", 2, wait_s=0)
        ends = await judge.hub.cancel("plays", groups=["g1", "none"], ids=["zz"], reason="stale")
        assert (sorted(ends.done), ends.lost) == (["a", "b"], ["zz"])
        assert (await judge.hub.cancel("plays", ids=["a"], reason="stale")).done == ["a"]
        (status,) = (await judge.hub.status()).queues
        assert (status.ready, status.leased, status.cancelled) == (1, 0, 2)

    run(tmp_path, test)


def test_parked_lease_calls_are_answered_in_order_when_items_come(tmp_path: Path) -> None:
    async def test(agent: Context, judge: Context) -> None:
        got: list[tuple[str, list[str]]] = []

        async def lease(name: str, ctx: Context) -> None:
            got.append((name, [x.id for x in await ctx.hub.lease("plays", 1, wait_s=10)]))

        async with trio.open_nursery() as nursery:
            for name, ctx in (("first", agent), ("second", judge)):
                nursery.start_soon(lease, name, ctx)
                await trio.sleep(0.2)
            status = await judge.hub.status()
            assert [(w.name, w.on) for w in status.waiters] == [
                ("agent-1 leases plays", "plays"),
                ("judge leases plays", "plays"),
            ]
            assert [w.name for w in agent.waits.current()] == ["lease plays"]
            await judge.hub.put("plays", [item("a"), item("b")])
        assert sorted(got) == [("first", ["a"]), ("second", ["b"])]
        began = trio.current_time()
        assert await agent.hub.lease("plays", 1, wait_s=0.2) == []
        assert trio.current_time() - began >= 0.15

    run(tmp_path, test)


def test_a_cancelled_lease_call_loses_no_item(tmp_path: Path) -> None:
    async def test(agent: Context, judge: Context) -> None:
        with trio.move_on_after(0.1):
            await agent.hub.lease("plays", 1, wait_s=20)
        await judge.hub.put("plays", [item("a", attempts=1)])
        (leased,) = await judge.hub.lease("plays", 1, wait_s=5)
        assert (leased.id, leased.attempt) == ("a", 2)
        assert agent.metrics.counters["late_leases"] == 1

    run(tmp_path, test)


def test_returns_count_up_to_the_attempts(tmp_path: Path) -> None:
    async def test(agent: Context, judge: Context) -> None:
        await judge.hub.put("plays", [item("a", attempts=2)])
        async with judge.events(ItemReturned, ItemEnded) as events:
            for attempt in (1, 2):
                (leased,) = await agent.hub.lease("plays", 1, wait_s=5)
                assert leased.attempt == attempt
                ends = await agent.hub.release("plays", [Return(id="a", lease=leased.lease, reason="busy")])
                assert ends.done == ["a"]
            assert (await anext(events)).message == ItemReturned(
                queue="plays", id="a", attempt=1, reason="busy", holder="agent-1"
            )
            ended = (await anext(events)).message
            assert isinstance(ended, ItemEnded)
            assert (ended.state, ended.reason, ended.attempt) == ("dead", "busy", 2)
        (status,) = (await judge.hub.status()).queues
        assert (status.dead, status.ready) == (1, 0)

    run(tmp_path, test)


def test_a_silent_holders_leases_return_and_count(tmp_path: Path) -> None:
    async def test(agent: Context, judge: Context) -> None:
        await judge.hub.put("plays", [item("a")])
        async with judge.events(PeerDown) as events:
            async with context("agent-2", role="agent", hub=agent.hub_address, config=QUICK, leave=False) as doomed:
                assert len(await doomed.hub.lease("plays", 1, wait_s=5)) == 1
            down = (await anext(events)).message
            assert isinstance(down, PeerDown)
            assert (down.peer.name, down.reason) == ("agent-2", "silent")
        (leased,) = await agent.hub.lease("plays", 1, wait_s=5)
        assert leased.attempt == 2
        assert judge.peers.get("agent-2") is None

    run(tmp_path, test, QUICK)


def test_a_new_incarnation_takes_over_and_the_old_one_is_refused(tmp_path: Path) -> None:
    async def test(agent: Context, judge: Context) -> None:
        await judge.hub.put("plays", [item("a")])
        async with context("agent-2", role="agent", hub=agent.hub_address, leave=False) as old:
            await old.hub.lease("plays", 1, wait_s=5)
            async with context("agent-2", role="agent", hub=agent.hub_address) as new:
                (leased,) = await new.hub.lease("plays", 1, wait_s=5)
                assert leased.attempt == 2
                with pytest.raises(CallFailed, match="replaced"):
                    await old.hub.lease("plays", 1, wait_s=0)
        (leased,) = await agent.hub.lease("plays", 1, wait_s=5)
        assert leased.attempt == 3

    run(tmp_path, test)


def test_events_snapshot_then_follow_and_after(tmp_path: Path) -> None:
    async def test(agent: Context, judge: Context) -> None:
        await judge.hub.publish(RunState(state="running"), retain=True)
        await judge.hub.publish(LearnerStarted(step=0, version=0))
        async with agent.events(RunState, LearnerStarted) as events:
            assert (await anext(events)).message == RunState(state="running")
            seq = await judge.hub.publish(LearnerStarted(step=1, version=1), key="k")
            event = await anext(events)
            assert (event.message, event.seq, event.key, event.sender) == (
                LearnerStarted(step=1, version=1),
                seq,
                "k",
                "judge",
            )
        async with agent.events(LearnerStarted, after=0) as events:
            assert [(await anext(events)).message for _ in range(2)] == [
                LearnerStarted(step=0, version=0),
                LearnerStarted(step=1, version=1),
            ]
        async with agent.events(LearnerStarted, snapshot=False) as events:
            await judge.hub.publish(LearnerStarted(step=2, version=2))
            assert (await anext(events)).message == LearnerStarted(step=2, version=2)

    run(tmp_path, test)


def test_an_event_id_is_committed_once(tmp_path: Path) -> None:
    async def test(agent: Context, judge: Context) -> None:
        first = await judge.hub.publish(LearnerStarted(step=1, version=1), id="start-1")
        again = await judge.hub.publish(LearnerStarted(step=1, version=1), id="start-1")
        assert first == again
        replay = await judge.hub.replay(0, ["learner.started"])
        assert [stored.seq for stored in replay.events] == [first]

    run(tmp_path, test)


def test_a_follower_that_lost_frames_fetches_exactly_what_it_missed(tmp_path: Path) -> None:
    async def test(agent: Context, judge: Context) -> None:
        async with agent.events(LearnerStarted) as events:
            await judge.hub.publish(LearnerStarted(step=0, version=0))
            assert (await anext(events)).message == LearnerStarted(step=0, version=0)
            socket = events._socket
            assert socket is not None
            for step in (1, 2, 3):
                await judge.hub.publish(LearnerStarted(step=step, version=0))
            for _ in range(2):
                await socket.recv()
            got = [(await anext(events)).message for _ in range(3)]
            assert got == [LearnerStarted(step=step, version=0) for step in (1, 2, 3)]
            await judge.hub.publish(LearnerStarted(step=4, version=0))
            await socket.recv()
            with trio.fail_after(10):
                assert (await anext(events)).message == LearnerStarted(step=4, version=0)
        assert agent.metrics.counters["replays"] >= 1

    run(tmp_path, test, QUICK)


def test_everything_can_be_followed_without_naming_types(tmp_path: Path) -> None:
    async def test(agent: Context, judge: Context) -> None:
        async with agent.events(after=0) as events:
            await judge.hub.publish(LearnerStarted(step=1, version=1))
            seqs = []
            async for event in events:
                seqs.append(event.seq)
                if isinstance(event.message, LearnerStarted):
                    break
            assert seqs == list(range(1, seqs[-1] + 1))

    run(tmp_path, test)


def test_peer_table_follows_attributes_and_departures(tmp_path: Path) -> None:
    async def test(agent: Context, judge: Context) -> None:
        async with context("generator-1", role="generator", hub=agent.hub_address) as generator:
            await generator.advertise(url="http://127.0.0.1:1")
            while not (judge.peers.of("generator") and judge.peers.of("generator")[0].attributes):
                await judge.peers.changed()
            assert judge.peers.of("generator")[0].attributes == {"url": "http://127.0.0.1:1"}
        while judge.peers.of("generator"):
            await judge.peers.changed()
        snapshot = await judge.hub.snapshot(["peer.up"])
        assert {stored.key for stored in snapshot.events} == {"agent-1", "judge"}
        assert sorted(p.name for p in await judge.hub.lookup()) == ["agent-1", "judge"]

    run(tmp_path, test)


def test_a_draining_run_tells_everyone(tmp_path: Path) -> None:
    async def test(agent: Context, judge: Context) -> None:
        await judge.hub.publish(RunState(state="draining"), retain=True)
        with trio.fail_after(5):
            await agent.draining.wait()
        async with context("late", role="agent", hub=agent.hub_address) as late:
            with trio.fail_after(5):
                await late.draining.wait()

    run(tmp_path, test)


def test_bulk_and_strangers_are_refused(tmp_path: Path) -> None:
    async def test(agent: Context, judge: Context) -> None:
        with pytest.raises(CallFailed, match="too_large: item big has 9"):
            await judge.hub.put("plays", [item("ok"), item("big", text="x" * 9000)])
        assert await agent.hub.lease("plays", 1, wait_s=0) == []
        big = judge.hub.outgoing(RunState(state="x" * 9000))
        with pytest.raises(CallFailed, match="too_large"):
            await judge.hub.call(Publish(events=[big]))
        agent._who.incarnation = "nobody"
        with pytest.raises(CallFailed, match="unknown_peer"):
            await agent.hub.lease("plays", 1, wait_s=0, timeout=0.5)
        assert (await judge.hub.status()).errors["unknown_peer"] >= 1

    run(tmp_path, test)


def test_peer_up_is_an_event_of_the_journal(tmp_path: Path) -> None:
    async def test(agent: Context, judge: Context) -> None:
        replay = await judge.hub.replay(0, ["peer.up"])
        assert [stored.key for stored in replay.events] == ["agent-1", "judge"]
        async with judge.events(PeerUp) as events:
            names = {(await anext(events)).message.peer.name for _ in range(2)}  # type: ignore[attr-defined]
            assert names == {"agent-1", "judge"}

    run(tmp_path, test)
