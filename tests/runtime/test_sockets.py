import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing
import zmq
from loopback import folder

from spade_actors.runtime.sockets import HOT, Socket, SocketFactory, Unreachable

IN_FLIGHT = 256
ECHO = Path(__file__).with_name("echo_process.py")


class ForgetsAfterSending(Socket):
    """The fault this layer exists to avoid: EVENTS is read again only on the receiving side."""

    def _after_send(self) -> None:
        pass


def _run_calls(make: Callable[["zmq.Socket[bytes]"], Socket], seconds: float, stall_s: float) -> tuple[int, bool]:
    """256 echoes in flight against another process: (answers, whether it ever stalled for `stall_s`)."""

    async def main() -> tuple[int, bool]:
        async with folder() as path:
            address = f"ipc://{path}/echo.sock"
            echo = subprocess.Popen([sys.executable, str(ECHO), address])  # noqa: ASYNC220
            context = zmq.Context()
            raw = context.socket(zmq.DEALER)
            raw.setsockopt(zmq.LINGER, 0)
            raw.connect(address)
            socket = make(raw)
            waiting: dict[bytes, trio.lowlevel.Task] = {}
            answers = 0
            stalled = False

            async def receive() -> None:
                nonlocal answers
                while True:
                    (frame,) = await socket.recv()
                    answers += 1
                    task = waiting.pop(frame, None)
                    if task is not None:
                        trio.lowlevel.reschedule(task)

            async def call(n: int) -> None:
                turn = 0
                while True:
                    turn += 1
                    frame = b"%d.%d" % (n, turn)
                    waiting[frame] = trio.lowlevel.current_task()
                    await socket.send([frame])
                    await trio.lowlevel.wait_task_rescheduled(lambda _, f=frame: forget(f))  # type: ignore[misc]

            def forget(frame: bytes) -> trio.lowlevel.Abort:
                waiting.pop(frame, None)
                return trio.lowlevel.Abort.SUCCEEDED

            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(receive)
                    for n in range(IN_FLIGHT):
                        nursery.start_soon(call, n)
                    until = trio.current_time() + seconds
                    while trio.current_time() < until and not stalled:
                        before = answers
                        await trio.sleep(stall_s)
                        stalled = answers == before and len(waiting) == IN_FLIGHT and before > 0
                    nursery.cancel_scope.cancel()
            finally:
                socket.close()
                context.destroy(linger=0)
                echo.kill()
                echo.wait()
            return answers, stalled

    return trio.run(main)


def test_a_loop_that_checks_again_only_after_receiving_loses_a_wake_up() -> None:
    _, stalled = _run_calls(ForgetsAfterSending, seconds=30.0, stall_s=1.0)
    assert stalled


def test_ours_never_stalls_with_256_calls_in_flight() -> None:
    answers, stalled = _run_calls(Socket, seconds=6.0, stall_s=2.0)
    assert not stalled
    assert answers > 10 * IN_FLIGHT


def _pair(test: Callable[[Socket, Socket], object]) -> None:
    async def main() -> None:
        async with folder() as path:
            factory = SocketFactory(1 << 20, high_water=4)
            left, right = factory.open(zmq.PAIR), factory.open(zmq.PAIR)
            right.bind(f"ipc://{path}/pair.sock")
            left.raw.connect(f"ipc://{path}/pair.sock")
            try:
                await test(left, right)  # type: ignore[misc]
            finally:
                factory.close()

    trio.run(main)


def test_a_cancelled_receive_takes_no_message() -> None:
    async def test(left: Socket, right: Socket) -> None:
        got: list[bytes] = []
        for n in range(200):
            with trio.move_on_after(0.0 if n % 2 else 0.0005):
                got.extend(await right.recv())
            await left.send([b"%d" % n])
        while len(got) < 200:
            got.extend(await right.recv())
        assert got == [b"%d" % n for n in range(200)]

    _pair(test)


def test_many_receivers_and_senders_share_one_descriptor() -> None:
    async def test(left: Socket, right: Socket) -> None:
        got: list[bytes] = []

        async def receive() -> None:
            while True:
                got.extend(await right.recv())

        async def send(n: int) -> None:
            for turn in range(50):
                await left.send([b"%d.%d" % (n, turn)])

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(receive)
            async with trio.open_nursery() as senders:
                for n in range(5):
                    senders.start_soon(send, n)
            with trio.fail_after(20):
                while len(got) < 250:
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert sorted(got) == sorted(b"%d.%d" % (n, turn) for n in range(5) for turn in range(50))

    _pair(test)


def test_a_sender_waits_at_the_high_water_mark_and_a_leaving_leader_passes_the_lead_on() -> None:
    async def test(left: Socket, right: Socket) -> None:
        payload = b"x" * 500_000
        sent = 0

        async def send() -> None:
            nonlocal sent
            while sent < 60:
                await left.send([payload])
                sent += 1

        async with trio.open_nursery() as nursery:
            leader = trio.CancelScope()

            async def receive_then_leave() -> None:
                with leader:
                    await left.recv()

            nursery.start_soon(receive_then_leave)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(send)
            await trio.sleep(0.2)
            assert sent < 60
            leader.cancel()
            with trio.fail_after(20):
                for _ in range(60):
                    assert len((await right.recv())[0]) == len(payload)
        assert sent == 60

    _pair(test)


def test_closing_wakes_everyone_who_waits() -> None:
    async def test(left: Socket, right: Socket) -> None:
        ended: list[str] = []

        async def receive() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await right.recv()
            ended.append("closed")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            right.close()
        assert ended == ["closed", "closed"]
        with pytest.raises(trio.ClosedResourceError):
            right.try_send([b"x"])

    _pair(test)


def test_a_hot_socket_lets_other_tasks_run() -> None:
    async def test(left: Socket, right: Socket) -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        def always() -> list[bytes]:
            return [b"x"]

        right.try_recv = always  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            for _ in range(HOT * 5):
                await right.recv()
            nursery.cancel_scope.cancel()
        assert turns >= 4

    _pair(test)


def test_a_router_says_when_a_peer_is_not_there() -> None:
    async def main() -> None:
        factory = SocketFactory(1 << 20)
        router = factory.open(zmq.ROUTER)
        with pytest.raises(Unreachable):
            router.try_send([b"nobody", b"x"])
        factory.close()

    trio.run(main)


def test_socket_files_go_away_with_the_factory() -> None:
    async def main() -> None:
        async with folder() as path:
            factory = SocketFactory(1 << 20)
            factory.open(zmq.ROUTER).bind(f"ipc://{path}/a.sock")
            assert os.listdir(path) == ["a.sock"]
            factory.close()
            assert os.listdir(path) == []

    trio.run(main)
