import time
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
import zmq
from loopback import Ends, ends

from spade_actors.runtime import calls
from spade_actors.runtime.calls import Answer, Identity
from spade_actors.runtime.errors import CallError, CallFailed, CallTimeout, PeerGone
from spade_actors.runtime.server import REMEMBERED, CallContext, Handler, Server
from spade_actors.runtime.sockets import Socket
from spade_protocols.codec import DEFAULT_LIMITS, decode, pack_body, pack_header
from spade_protocols.common import Ack, Error, Ping
from spade_protocols.play import CloseSession, SessionStepped, StepSession
from spade_protocols.queues import Leases

STEP = StepSession(session="s", turn=1, action="go")


def answer(call: CallContext) -> SessionStepped:
    assert isinstance(call.message, StepSession)
    return SessionStepped(observation=call.message.action, reward=0.5, terminated=False, truncated=False)


def run(
    test: Callable[[Ends], Awaitable[None]], handlers: dict[type, Handler], *, tasks: int = 256, backlog: int = 4096
) -> None:
    async def main() -> None:
        with trio.fail_after(30):
            async with ends(handlers, tasks=tasks, backlog=backlog) as both:
                await test(both)

    trio.run(main)


@pytest.fixture
def quick_resends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "FIRST_RESEND_S", 0.1)


def header(type_: str, id_: str = "x.1", deadline: float = 0.0, kind: str = "call", run_: str = "run") -> bytes:
    return pack_header(kind, type_, id_, run_, "", "raw", deadline)


def raw_dealer(both: Ends) -> Socket:
    socket = both.sockets.open(zmq.DEALER)
    socket.raw.connect(both.address)
    return socket


def test_plain_and_async_handlers_answer_with_buffers() -> None:
    async def with_buffers(call: CallContext) -> tuple[Ack, list[bytes]]:
        await trio.lowlevel.checkpoint()
        return Ack(), [bytes(reversed(b)) for b in call.buffers]

    async def test(both: Ends) -> None:
        reply = await both.caller.call(STEP, timeout=5)
        assert reply.message == SessionStepped(observation="go", reward=0.5, terminated=False, truncated=False)
        closed = await both.caller.call(CloseSession(session="s"), timeout=5, buffers=[b"abc", b""])
        assert closed == Answer(Ack(), [b"cba", b""])

    run(test, {StepSession: answer, CloseSession: with_buffers})


def test_many_calls_in_flight_each_get_their_own_reply() -> None:
    async def echo(call: CallContext) -> SessionStepped:
        assert isinstance(call.message, StepSession)
        await trio.sleep(0.001 * (call.message.turn % 7))
        return answer(call)

    async def test(both: Ends) -> None:
        got: dict[int, str] = {}

        async def one(n: int) -> None:
            reply = await both.caller.call(StepSession(session="s", turn=n, action=f"a{n}"), timeout=20)
            assert isinstance(reply.message, SessionStepped)
            got[n] = reply.message.observation

        async with trio.open_nursery() as nursery:
            for n in range(600):
                nursery.start_soon(one, n)
        assert got == {n: f"a{n}" for n in range(600)}
        assert both.caller.in_flight == 0

    run(test, {StepSession: echo})


def test_bad_messages_are_answered_counted_and_harm_no_other() -> None:
    async def test(both: Ends) -> None:
        raw = raw_dealer(both)
        for frames, code in [
            ([header("no.such"), b"\x80"], "unknown_type"),
            ([header("event.publish"), b"\x80"], "unhandled_type"),
            ([header("session.step"), b"\xc1"], "bad_msgpack"),
            ([header("session.step"), b"\x80"], "bad_body"),
            ([header("session.step"), b"\x91" * 2000 + b"\x01"], "bad_msgpack"),
            ([header("session.step"), b"\x91" * 20 + b"\x01"], "too_deep"),
            ([header("session.step", kind="event"), pack_body(STEP)], "bad_header"),
            ([header("session.step", run_="other"), pack_body(STEP)], "wrong_run"),
            ([header("session.step", deadline=time.time() - 1), pack_body(STEP)], "deadline"),
        ]:
            await raw.send(frames)
            reply = decode(await raw.recv())
            assert isinstance(reply.message, Error)
            assert reply.message.code == code
            assert reply.header.id == "x.1"
            assert both.server.refused[code] >= 1
        await raw.send([b"junk", b"junk"])
        await raw.send([b"junk"])
        await raw.send([header("session.step"), pack_body(STEP)])
        assert isinstance(decode(await raw.recv()).message, SessionStepped)
        assert both.server.refused["frames"] == 1
        assert isinstance((await both.caller.call(STEP, timeout=5)).message, SessionStepped)

    run(test, {StepSession: answer})


def test_a_call_whose_deadline_passed_while_it_waited_is_never_worked_on() -> None:
    worked: list[int] = []
    gate = trio.Event()

    async def slow(call: CallContext) -> SessionStepped:
        assert isinstance(call.message, StepSession)
        worked.append(call.message.turn)
        await gate.wait()
        return answer(call)

    async def test(both: Ends) -> None:
        async def first() -> None:
            await both.caller.call(STEP, timeout=20)

        async def late() -> None:
            with pytest.raises(CallTimeout):
                await both.caller.call(StepSession(session="s", turn=2, action=""), timeout=0.3)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            await trio.sleep(0.1)
            nursery.start_soon(late)
            await trio.sleep(0.6)
            gate.set()
        await both.caller.call(StepSession(session="s", turn=3, action=""), timeout=5)
        assert worked == [1, 3]

    run(test, {StepSession: slow}, tasks=1)


def test_a_handler_is_cancelled_at_the_deadline_and_the_process_goes_on() -> None:
    cancelled: list[bool] = []

    async def stuck(call: CallContext) -> Ack:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.append(True)

    async def test(both: Ends) -> None:
        with pytest.raises(CallTimeout):
            await both.caller.call(CloseSession(session="s"), timeout=0.2)
        await trio.sleep(0.1)
        assert cancelled == [True]
        await both.caller.call(STEP, timeout=5)

    run(test, {CloseSession: stuck, StepSession: answer})


def test_errors_of_handlers_are_answers() -> None:
    async def raises(call: CallContext) -> Ack:
        raise ZeroDivisionError("no")

    def refuses(call: CallContext) -> SessionStepped:
        raise CallError("unknown_session", "no session s", retry=True)

    async def test(both: Ends) -> None:
        with pytest.raises(CallFailed, match=r"failed: session\.close: ZeroDivisionError: no"):
            await both.caller.call(CloseSession(session="s"), timeout=5)
        with pytest.raises(CallFailed) as caught:
            await both.caller.call(STEP, timeout=5)
        assert (caught.value.code, caught.value.text, caught.value.retry) == ("unknown_session", "no session s", True)
        with pytest.raises(CallFailed, match="unhandled_type"):
            await both.caller.call(Ping(), timeout=5)
        assert both.metrics.counters["handler_failures"] == 1

    run(test, {CloseSession: raises, StepSession: refuses})


def test_beyond_the_backlog_callers_are_told_busy() -> None:
    gate = trio.Event()

    async def slow(call: CallContext) -> SessionStepped:
        await gate.wait()
        return answer(call)

    async def test(both: Ends) -> None:
        async def one() -> None:
            await both.caller.call(STEP, timeout=10)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            nursery.start_soon(one)
            await trio.sleep(0.1)
            with pytest.raises(CallFailed) as caught:
                await both.caller.call(STEP, timeout=10)
            assert (caught.value.code, caught.value.retry) == ("busy", True)
            gate.set()
        await both.caller.call(STEP, timeout=5)

    run(test, {StepSession: slow}, tasks=1, backlog=1)


@pytest.mark.usefixtures("quick_resends")
def test_copies_of_a_call_are_worked_on_once_and_get_the_same_reply() -> None:
    worked: list[str] = []

    async def slow(call: CallContext) -> SessionStepped:
        worked.append(call.header.id)
        await trio.sleep(0.5)
        return answer(call)

    async def test(both: Ends) -> None:
        await both.caller.call(STEP, timeout=5)
        assert len(worked) == 1
        assert both.metrics.counters["resends"] >= 1
        raw = raw_dealer(both)
        frames = [header("session.step"), pack_body(STEP)]
        await raw.send(frames)
        first = await raw.recv()
        await raw.send(frames)
        assert await raw.recv() == first
        assert worked[1:] == ["x.1"]

    run(test, {StepSession: slow})


@pytest.mark.usefixtures("quick_resends")
def test_a_call_survives_a_restart_of_its_peer_on_the_same_address() -> None:
    async def never(call: CallContext) -> SessionStepped:
        await trio.sleep_forever()
        raise AssertionError

    async def test(both: Ends) -> None:
        got: list[Answer] = []

        async def one() -> None:
            got.append(await both.caller.call(STEP, timeout=10))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            await trio.sleep(0.2)
            both.server._socket.close()
            await trio.sleep(0.2)
            async with trio.open_nursery() as second:
                router = both.sockets.open(zmq.ROUTER)
                router.bind(both.address)
                server = Server(
                    router,
                    {StepSession: answer},
                    second,
                    Identity("server", "2" * 8, "run"),
                    DEFAULT_LIMITS,
                    both.metrics,
                    both.server._log,
                )
                second.start_soon(server.run)
                while not got:
                    await trio.sleep(0.02)
                second.cancel_scope.cancel()
        assert isinstance(got[0].message, SessionStepped)

    run(test, {StepSession: never})


def test_a_late_reply_goes_to_on_late_once_and_never_for_a_call_that_ended() -> None:
    gate = trio.Event()

    async def slow(call: CallContext) -> SessionStepped:
        await gate.wait()
        return answer(call)

    async def test(both: Ends) -> None:
        late: list[Answer] = []
        with trio.move_on_after(0.1):
            await both.caller.call(STEP, timeout=10, on_late=late.append)
        assert both.caller.in_flight == 0
        gate.set()
        with trio.fail_after(5):
            while not late:
                await trio.sleep(0.01)
        await both.caller.call(STEP, timeout=10, on_late=late.append)
        both.caller._receive([header("session.stepped", "gone", kind="reply"), b"\x80"])
        assert len(late) == 1
        assert both.metrics.counters["late_replies"] == 2

    run(test, {StepSession: slow})


def test_a_reply_of_another_type_is_refused() -> None:
    async def test(both: Ends) -> None:
        with pytest.raises(CallFailed, match="bad_reply"):
            await both.caller.call(STEP, timeout=5)

    run(test, {StepSession: lambda call: Leases(items=[])})


def test_a_hung_peer_slows_only_its_own_callers() -> None:
    async def test(both: Ends) -> None:
        hung = both.sockets.open(zmq.ROUTER)
        hung.bind(both.address + "2")
        deaf = raw_dealer(both)
        for _ in range(3000):
            await deaf.send([header("session.step"), pack_body(STEP)])

        async def to_hung() -> None:
            with pytest.raises(CallTimeout):
                await both.callers.get(both.address + "2").call(STEP, timeout=1.0)

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(to_hung)
            began = trio.current_time()
            for _ in range(100):
                await both.caller.call(STEP, timeout=5)
            assert trio.current_time() - began < 4

    run(test, {StepSession: answer})


def test_dropping_a_peer_ends_its_calls_at_once() -> None:
    async def test(both: Ends) -> None:
        gone = both.callers.get(both.address + "3")

        async def one() -> None:
            with pytest.raises(PeerGone, match="silent"):
                await gone.call(STEP, timeout=30)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            await trio.testing.wait_all_tasks_blocked()
            both.callers.drop(both.address + "3", "silent")
        with pytest.raises(PeerGone):
            await gone.call(STEP, timeout=30)

    run(test, {StepSession: answer})


def test_a_deferred_call_is_answered_later_and_only_once() -> None:
    waiting: list[CallContext] = []

    def park(call: CallContext) -> None:
        call.defer()
        waiting.append(call)

    async def test(both: Ends) -> None:
        async def one() -> None:
            assert (await both.caller.call(CloseSession(session="s"), timeout=5)).message == Ack()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            while not waiting:
                await trio.sleep(0.01)
            waiting[0].answer(Ack())
            waiting[0].fail(CallError("failed", "too late"))

    run(test, {CloseSession: park})


def test_nothing_is_kept_of_calls_that_ended() -> None:
    async def slow(call: CallContext) -> Ack:
        await trio.lowlevel.checkpoint()
        return Ack()

    async def test(both: Ends) -> None:
        async def some(n: int) -> None:
            for _ in range(n):
                await both.caller.call(CloseSession(session="s"), timeout=60)
                await both.caller.call(STEP, timeout=60)

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(some, 60)
        assert both.caller.in_flight == 0
        assert not both.caller._abandoned
        assert not both.server._working
        assert not both.server._backlog
        assert both.server._active == 0
        assert len(both.server._remembered) == REMEMBERED

    run(test, {CloseSession: slow, StepSession: answer})


def test_alone_or_together_every_call_is_received_by_somebody() -> None:
    async def slow(call: CallContext) -> SessionStepped:
        assert isinstance(call.message, StepSession)
        await trio.sleep(call.message.turn / 1000)
        return answer(call)

    async def test(both: Ends) -> None:
        async def one(after: float, turn: int) -> None:
            await trio.sleep(after / 1000)
            await both.caller.call(StepSession(session="s", turn=turn, action=""), timeout=10)

        async def given_up(after: float) -> None:
            await trio.sleep(after / 1000)
            with trio.move_on_after(0.003):
                await both.caller.call(StepSession(session="s", turn=30, action=""), timeout=10)

        for shape in range(40):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one, 0, shape % 7)
                nursery.start_soon(given_up, shape % 5)
                nursery.start_soon(one, shape % 4, 5)
                nursery.start_soon(one, shape % 9, 1)
        with pytest.raises(CallTimeout):
            await both.caller.call(StepSession(session="s", turn=900, action=""), timeout=0.1)
        await both.caller.call(STEP, timeout=5)

    run(test, {StepSession: slow})
