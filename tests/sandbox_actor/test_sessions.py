"""The session table over a scripted provider."""

from collections import Counter

import pytest
import trio
import trio.testing

from spade_sandbox.errors import EnvironmentFailure, Fault, InfrastructureFailure, Reason
from spade_sandbox.replies import Reset, Step
from spade_sandbox.sessions import BadTurn, Busy, SessionTable, UnknownSession


class FakeEpisode:
    def __init__(self, log: Counter):
        self.log = log
        self.actions: list[str] = []
        self.log["open"] += 1

    async def step(self, action, *, timeout=None):
        await trio.lowlevel.checkpoint()
        self.actions.append(action)
        self.log["step"] += 1
        if action == "raise":
            raise EnvironmentFailure(Reason.EXCEPTION, "step", "ValueError: no")
        if action == "lose":
            raise InfrastructureFailure(Fault.JAIL_LOST, "gone")
        if action == "hang":
            await trio.sleep_forever()
        return Step(f"saw {action}", 0.5, action == "end", False, {})

    def close(self):
        self.log["close"] += 1


class FakeHandle:
    def __init__(self, log: Counter, how: str):
        self.log, self.how = log, how
        self.log["handle"] += 1

    async def open(self, seed, *, max_turns=0, deadline=None):
        await trio.sleep(1)
        if self.how == "reset-fails":
            raise EnvironmentFailure(Reason.CONTRACT, "reset", "observation is empty")
        if self.how == "jail-fails":
            raise InfrastructureFailure(Fault.JAIL_START, "no")
        return FakeEpisode(self.log), Reset(f"seed {seed}", {}, max_turns)

    def close(self):
        self.log["release"] += 1


def table(log: Counter, *, slots: int = 2, backlog: int = 2) -> SessionTable:
    async def environment(name):
        if name == "broken":
            raise EnvironmentFailure(Reason.SYNTAX, "compile", "line 1")
        return FakeHandle(log, name)

    return SessionTable(environment, slots=slots, backlog=backlog, session_s=100.0)


def run(body):
    log: Counter = Counter()

    async def main():
        await body(table(log), log)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert log["handle"] == log["release"]
    assert log["open"] == log["close"]


async def opened(t: SessionTable, play: str = "p", holder: str = "agent-1", environment: str = "ok"):
    return await t.open(play, 1, environment, 7, holder, 5)


def test_an_episode_from_open_to_close():
    async def body(t, log):
        o = await opened(t)
        assert (o.observation, o.failure, t.free) == ("seed 7", "", 1)
        assert (await t.step(o.session, 0, "a")).observation == "saw a"
        assert (await t.step(o.session, 1, "end")).terminated
        t.close(o.session)
        t.close(o.session)
        t.close("never")
        assert t.free == 2
        with pytest.raises(UnknownSession):
            await t.step(o.session, 2, "a")

    run(body)


def test_opens_and_steps_are_idempotent_also_at_once():
    async def body(t, log):
        answers = []

        async def open_it():
            answers.append(await opened(t))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_it)
            nursery.start_soon(open_it)
        answers.append(await opened(t))
        assert len({a.session for a in answers}) == 1
        assert log["open"] == 1
        session = answers[0].session
        stepped = []

        async def step_it():
            stepped.append(await t.step(session, 0, "a"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(step_it)
            nursery.start_soon(step_it)
        stepped.append(await t.step(session, 0, "another"))
        assert len(set(stepped)) == 1
        assert log["step"] == 1
        for turn in (2, -1):
            with pytest.raises(BadTurn):
                await t.step(session, turn, "a")
        t.close_all()

    run(body)


def test_a_full_table_queues_in_order_then_refuses():
    async def body(t, log):
        first = [await opened(t, f"p{i}") for i in range(2)]
        order = []

        async def wait_for(i):
            o = await opened(t, f"q{i}")
            order.append(i)
            t.close(o.session)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for, 0)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(wait_for, 1)
            await trio.testing.wait_all_tasks_blocked()
            assert t.waiting == 2
            with pytest.raises(Busy):
                await opened(t, "r")
            t.close(first[0].session)
        assert order == [0, 1]
        t.close(first[1].session)

    run(body)


def test_environment_failures_are_answers_and_free_the_slot():
    async def body(t, log):
        assert (await opened(t, environment="broken")).failure.startswith("syntax: ")
        assert (await opened(t, environment="reset-fails")).failure == "contract: observation is empty"
        assert t.free == 2
        o = await opened(t)
        s = await t.step(o.session, 0, "raise")
        assert (s.failure, s.evidence) == ("exception", "step: ValueError: no")
        assert await t.step(o.session, 0, "raise") == s
        with pytest.raises(BadTurn):
            await t.step(o.session, 1, "a")
        t.close(o.session)

    run(body)


def test_infrastructure_failures_are_raised_and_end_the_episode():
    async def body(t, log):
        with pytest.raises(InfrastructureFailure):
            await opened(t, environment="jail-fails")
        o = await opened(t)
        with pytest.raises(InfrastructureFailure):
            await t.step(o.session, 0, "lose")
        with pytest.raises(UnknownSession):
            await t.step(o.session, 0, "lose")
        assert t.free == 2

    run(body)


def test_a_holders_end_ends_its_episodes_open_opening_and_waiting():
    async def body(t, log):
        other = await opened(t, "other", holder="agent-2")
        mine = await opened(t, "mine")
        ends = []

        async def opening():
            try:
                await opened(t, "late")
            except UnknownSession:
                ends.append("late")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(opening)
            await trio.testing.wait_all_tasks_blocked()
            assert t.waiting == 1
            assert t.end_holder("agent-1", opened_before=trio.current_time()) == 2
        assert ends == ["late"]
        with pytest.raises(UnknownSession):
            await t.step(mine.session, 0, "a")
        await t.step(other.session, 0, "a")
        t.close(other.session)

    run(body)


def test_the_clock_ends_episodes():
    async def body(t, log):
        await opened(t)
        assert t.expire() == 0
        await trio.sleep(101)
        assert t.expire() == 1
        assert t.free == 2

    run(body)


def test_a_cancelled_open_and_a_cancelled_step_leave_nothing():
    async def body(t, log):
        with trio.move_on_after(0.5):
            await opened(t)
        assert t.free == 2
        o = await opened(t)
        with trio.move_on_after(5):
            await t.step(o.session, 0, "hang")
        assert t.free == 2
        with pytest.raises(UnknownSession):
            await t.step(o.session, 0, "hang")

    run(body)


def test_an_ended_episode_wakes_the_step_that_waits_behind_another():
    async def body(t, log):
        o = await opened(t)
        outcomes = []

        async def step(turn, action):
            try:
                outcomes.append(await t.step(o.session, turn, action))
            except (UnknownSession, BadTurn) as error:
                outcomes.append(type(error).__name__)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(step, 0, "hang")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(step, 1, "a")
            await trio.testing.wait_all_tasks_blocked()
            t.close(o.session)
            nursery.cancel_scope.deadline = trio.current_time() + 1
        assert t.free == 2

    run(body)
