"""Arranging steps: every request once, bounds that hold."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spade_actors.generator.embedded.plan import arrange

steps = st.lists(
    st.tuples(st.integers(0, 900), st.one_of(st.just(1), st.integers(1, 100))), min_size=1, max_size=80
).flatmap(
    lambda rows: st.permutations(range(2 * len(rows))).map(
        lambda slots: (
            np.array(slots[: len(rows)]),
            np.array([start for start, _ in rows]),
            np.array([count for _, count in rows]),
        )
    )
)


@given(steps)
def test_every_request_is_in_one_group_that_holds_it(step):
    slots, starts, counts = step
    order, groups = arrange(slots, starts, counts)
    assert sorted(order.tolist()) == list(range(len(slots)))
    assert [group.first for group in groups] == [0, *(group.last for group in groups[:-1])]
    assert groups[-1].last == len(slots)
    for group in groups:
        own = order[group.first : group.last]
        assert counts[own].max() == group.width
        assert (starts + counts)[own].max() == group.length
        if group.width == 1:
            assert (np.diff(slots[own]) > 0).all()
        else:
            assert counts[own].min() > 1
            assert group.high == 0
        if group.high:
            assert group.low <= slots[own].min()
            assert slots[own].max() < group.high
    widths = [group.width > 1 for group in groups]
    assert widths == sorted(widths)


def test_a_full_run_of_equal_requests_is_one_group_in_place():
    _, groups = arrange(np.arange(64), np.full(64, 100), np.ones(64, np.int64))
    assert groups == [(0, 64, 1, 101, 0, 64)]


def test_a_few_long_requests_do_not_make_all_others_long():
    starts = np.array([900, 900] + [20] * 62)
    _, groups = arrange(np.arange(64), starts, np.ones(64, np.int64))
    assert [(group.last - group.first, group.length) for group in groups] == [(2, 901), (62, 21)]
