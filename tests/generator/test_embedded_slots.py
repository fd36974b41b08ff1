"""Slot bookkeeping against a plain model of it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_actors.generator.embedded.slots import SlotTable


def ids(*tokens):
    return np.array(tokens, np.int32)


def filled(table, tokens, key):
    """Acquire, pretend to compute everything, release; the slot."""
    grant = table.acquire(tokens, key)
    table.computed[grant.slot] = len(tokens)
    table.release(grant.slot)
    return grant.slot


def test_the_least_recently_used_slot_goes_first():
    table = SlotTable(3, 16)
    used = [filled(table, ids(i, i, i), "k") for i in range(3)]
    assert used == [0, 1, 2]
    assert table.acquire(ids(0, 0, 0, 5), "k")[:2] == (0, 3)
    assert table.acquire(ids(9, 9), "k")[:2] == (1, 0)


def test_no_slot_when_all_run():
    table = SlotTable(1, 16)
    grant = table.acquire(ids(1, 2), "k")
    assert table.acquire(ids(1, 2), "k") is None
    table.release(grant.slot)
    assert table.acquire(ids(1, 2), "k") is not None


def test_a_branch_is_copied_and_a_continuation_taken_over():
    table = SlotTable(2, 16)
    source = filled(table, ids(1, 2, 3, 4, 5, 6), "k")
    branch = table.acquire(ids(1, 2, 3, 4, 9, 9), "k")
    assert branch == (1 - source, 4, source)
    assert table.acquire(ids(1, 2, 3, 4, 5, 6, 7), "k") == (source, 6, None)


def test_many_keys_do_not_pile_up():
    table = SlotTable(2, 16)
    for i in range(100):
        filled(table, ids(1, 2), f"key {i}")
    assert len(table._keys) <= 9
    assert table.acquire(ids(1, 2, 3), "key 99").reused == 2


def test_a_key_kept_for_long_is_never_taken_for_a_new_one():
    table = SlotTable(2, 16)
    for i in range(7):
        filled(table, ids(1, 2), f"early {i}")
    held = table.acquire(ids(1, 2, 3), "held")
    table.computed[held.slot] = 3
    for i in range(40):
        grant = table.acquire(ids(1, 2, 3), f"late {i}")
        assert grant.reused == 0
        table.release(grant.slot)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_granted_is_really_cached(data):
    """Each slot's cache is modelled by the tokens written to it; every grant must be covered by it."""
    table = SlotTable(3, 12)
    cache = [[] for _ in range(3)]  # (token, key) really computed
    running = {}
    for _ in range(data.draw(st.integers(1, 30))):
        action = data.draw(st.sampled_from(["acquire", "acquire", "feed", "release", "flush"]))
        if action == "acquire":
            tokens = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=12))
            key = data.draw(st.sampled_from("ab"))
            grant = table.acquire(ids(*tokens), key)
            assert (grant is None) == (len(running) == 3)
            if grant is None:
                continue
            assert grant.slot not in running
            assert grant.reused < len(tokens)
            held = cache[grant.slot if grant.copy_from is None else grant.copy_from]
            assert held[: grant.reused] == [(token, key) for token in tokens[: grant.reused]]
            cache[grant.slot] = held[: grant.reused]
            running[grant.slot] = (tokens, key)
        elif action == "feed" and running:
            slot = data.draw(st.sampled_from(sorted(running)))
            tokens, key = running[slot]
            done = data.draw(st.integers(int(table.computed[slot]), len(tokens)))
            cache[slot] = [(token, key) for token in tokens[:done]]
            table.computed[slot] = done
        elif action == "release" and running:
            slot = data.draw(st.sampled_from(sorted(running)))
            del running[slot]
            table.release(slot)
        elif action == "flush":
            table.flush()
            assert all(table.computed[slot] == 0 for slot in range(3) if slot not in running)
        assert table.running == len(running)
