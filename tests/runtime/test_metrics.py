import time

import pytest
import trio
import trio.testing

from spade_actors.runtime.metrics import LagMonitor, Metrics, Waits
from spade_actors.runtime.timers import Timers


def test_counters_add_and_gauges_replace() -> None:
    metrics = Metrics()
    metrics.count("plays")
    metrics.count("plays", 4)
    metrics.gauge("free", 3)
    metrics.gauge("free", 2)
    assert (metrics.counters, metrics.gauges) == ({"plays": 5}, {"free": 2.0})


def test_waits_show_the_oldest_of_each_name_and_end_on_errors() -> None:
    waits = Waits()
    with waits("lease", on="hub"):
        oldest = waits.current()[0].since
        with waits("lease", on="hub"), waits("generate", on="generator-1", deadline=5.0):
            shown = waits.current()
            assert [(w.name, w.on, w.deadline) for w in shown] == [
                ("lease", "hub", 0.0),
                ("generate", "generator-1", 5.0),
            ]
            assert shown[0].since == oldest
    with pytest.raises(KeyError), waits("x", on="y"):
        raise KeyError
    assert waits.current() == []


def test_the_lag_monitor_sees_a_step_that_kept_the_loop() -> None:
    async def main() -> None:
        lag = LagMonitor()
        trio.lowlevel.add_instrument(lag)
        for _ in range(3):
            await trio.sleep(0.001)
        lag.take_ms()
        until = time.perf_counter() + 0.03
        while time.perf_counter() < until:
            pass
        await trio.lowlevel.checkpoint()
        assert lag.take_ms() >= 30.0
        assert lag.take_ms() < 30.0

    trio.run(main)


def test_timers_call_in_order_and_an_earlier_one_shortens_the_sleep() -> None:
    async def main() -> None:
        timers = Timers()
        called: list[tuple[str, float]] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            begin = trio.current_time()
            for name, after in (("late", 100.0), ("early", 5.0)):
                await trio.testing.wait_all_tasks_blocked()
                timers.at(begin + after, lambda now, name=name: called.append((name, now - begin)))
            timers.at(
                begin + 5.0, lambda now: timers.at(now + 1.0, lambda now: called.append(("chained", now - begin)))
            )
            await trio.sleep(200)
            nursery.cancel_scope.cancel()
        assert [name for name, _ in called] == ["early", "chained", "late"]
        assert [round(at) for _, at in called] == [5, 6, 100]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
