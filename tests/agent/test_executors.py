"""Choosing an executor."""

from hypothesis import given
from hypothesis import strategies as st

from spade_actors.agent.executors import PAUSE_S, Executors


def test_least_used_first_and_refusals_last_for_a_while():
    e = Executors()
    names = ["s-1", "s-2", "s-3"]
    assert e.order(names, 0.0) == names
    e.opened("s-1")
    e.opened("s-1")
    e.opened("s-2")
    assert e.order(names, 0.0) == ["s-3", "s-2", "s-1"]
    e.refused("s-3", 0.0)
    assert e.order(names, PAUSE_S / 2) == ["s-2", "s-1", "s-3"]
    assert e.order(names, PAUSE_S) == ["s-3", "s-2", "s-1"]
    e.closed("s-1")
    e.closed("s-1")
    assert e.order(names, 9.0) == ["s-1", "s-3", "s-2"]


def test_a_retry_begins_elsewhere():
    e = Executors()
    names = ["s-1", "s-2", "s-3"]
    assert [e.order(names, 0.0, attempt)[0] for attempt in (1, 2, 3, 4)] == ["s-1", "s-2", "s-3", "s-1"]
    assert e.order(["s-1"], 0.0, 2) == ["s-1"]
    assert e.order([], 0.0, 2) == []


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=20), st.integers(1, 5))
def test_the_order_is_always_of_the_names_given(ops, attempt):
    e = Executors()
    for name in ops:
        e.opened(name)
        e.refused(name, 1.0)
    assert sorted(e.order(["c", "a", "d"], 1.0, attempt)) == ["a", "c", "d"]
