"""The breaker's life, by hand-made time."""

from spade_sandbox.breaker import Breaker, State


def opened(at: float = 0.0) -> Breaker:
    b = Breaker(after=3, pause_s=2.0, longest_s=5.0)
    assert [b.failure("no jail", at) for _ in range(3)] == [False, False, True]
    return b


def test_only_failures_in_a_row_open_it():
    b = Breaker(after=3)
    for _ in range(5):
        b.failure("x", 0.0)
        b.failure("x", 0.0)
        b.success()
    assert b.state is State.CLOSED
    assert b.allow(0.0)


def test_open_it_refuses_then_lets_one_probe_through():
    b = opened()
    assert not b.allow(1.9)
    assert b.wait_s(0.5) == 1.5
    assert b.allow(2.0)
    assert b.state is State.PROBING
    assert not b.allow(2.0)
    assert b.success()
    assert b.allow(2.1)
    assert b.allow(2.1)
    assert b.wait_s(2.1) == 0.0


def test_failed_probes_double_the_pause_up_to_the_bound():
    b = opened()
    now, pauses = 0.0, []
    for _ in range(4):
        pauses.append(b.wait_s(now))
        now += pauses[-1]
        assert b.allow(now)
        assert b.failure("still", now)
    assert pauses == [2.0, 4.0, 5.0, 5.0]
    b.success()
    for _ in range(3):
        b.failure("again", 100.0)
    assert b.wait_s(100.0) == 2.0


def test_late_failures_of_work_begun_before_do_not_prolong_it():
    b = opened()
    assert not b.failure("late", 1.9)
    assert b.allow(2.0)


def test_a_probe_that_vanished_makes_room_for_another():
    b = opened()
    assert b.allow(2.0)
    assert not b.allow(6.9)
    assert b.allow(7.0)
