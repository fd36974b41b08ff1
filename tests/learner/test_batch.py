"""Choosing and cutting batches."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from spade_actors.learner.batch import Held, Pool, Rules, microbatches, minibatches, staleness

RULES = Rules(batch=24, designer_share=0.25, min_batch=8, max_wait_s=30.0, max_staleness={"agent": 4, "designer": 8})


def group(name: str, role: str, size: int, *, oldest: int = 0, at: float = 0.0) -> list[Held]:
    return [Held(f"{name}.{i}", f"l-{name}.{i}", name, role, oldest, at) for i in range(size)]


def pool(*groups: list[Held]) -> Pool:
    made = Pool()
    for members in groups:
        made.add(members)
    return made


def test_a_full_batch_has_the_wanted_share_oldest_first():
    p = pool(
        *(group(f"a{i}", "agent", 6, at=i) for i in range(5)), *(group(f"d{i}", "designer", 3, at=i) for i in range(4))
    )
    batch = p.take_batch(RULES, 0.0)
    assert Counter(m.role for m in batch) == {"agent": 18, "designer": 6}
    assert {m.group for m in batch} == {"a0", "a1", "a2", "d0", "d1"}
    assert p.count() == 12 + 6


def test_what_one_role_lacks_comes_from_the_other_at_once():
    p = pool(*(group(f"a{i}", "agent", 6, at=i) for i in range(4)))
    assert Counter(m.role for m in p.take_batch(RULES, 0.0)) == {"agent": 24}


def test_it_waits_for_a_full_batch_then_takes_what_is_there():
    p = pool(group("a", "agent", 9))
    assert p.take_batch(RULES, 29.9) == []
    assert len(p.take_batch(RULES, 30.0)) == 9


def test_it_never_starts_below_min_batch():
    p = pool(group("a", "agent", 7))
    assert p.take_batch(RULES, 1e9) == []


def test_stale_groups_go_as_a_whole_by_their_role_bound():
    p = pool(
        group("old", "agent", 2, oldest=5) + group("old", "agent", 3, oldest=9)[2:],
        group("fresh", "agent", 2, oldest=6),
        group("design", "designer", 2, oldest=2),
    )
    assert {m.group for m in p.take_stale(10, RULES)} == {"old"}
    assert p.count() == 4
    assert {m.group for m in p.take_stale(11, RULES)} == {"fresh", "design"}


def test_a_sample_granted_again_replaces_itself():
    p = pool(group("a", "agent", 2))
    p.add([group("a", "agent", 1)[0]._replace(lease="new")])
    assert p.count() == 2
    assert "new" in {m.lease for m in p.groups["a"]}
    p.remove({"a.0", "a.1"})
    assert p.groups == {}


def test_staleness_histogram():
    assert staleness(group("a", "agent", 2, oldest=3) + group("b", "agent", 1, oldest=5), 5) == {"0": 1, "2": 2}


GROUPS = st.lists(
    st.tuples(st.sampled_from(["agent", "designer"]), st.integers(1, 9), st.integers(0, 12), st.integers(0, 50)),
    max_size=30,
)


@given(GROUPS, st.floats(0, 60), st.integers(0, 14))
def test_nothing_is_lost_or_doubled_and_groups_stay_whole(drawn, waited, version):
    groups = [group(f"g{i}", role, size, oldest=old, at=at) for i, (role, size, old, at) in enumerate(drawn)]
    everything = sorted(m.id for g in groups for m in g)
    p = pool(*groups)
    stale = p.take_stale(version, RULES)
    assert all(version - m.oldest <= RULES.max_staleness[m.role] for g in p.groups.values() for m in g)
    before = p.count()
    batch = p.take_batch(RULES, waited)
    left = [m for g in p.groups.values() for m in g]
    assert sorted(m.id for m in [*stale, *batch, *left]) == everything
    assert not {m.group for m in batch} & {m.group for m in left}
    assert not {m.group for m in stale} & {m.group for m in [*batch, *left]}
    if before >= RULES.batch:
        assert RULES.batch <= len(batch) < RULES.batch + 9
    else:
        assert len(batch) == (before if waited >= RULES.max_wait_s and before >= RULES.min_batch else 0)


@given(st.lists(st.sampled_from(["agent", "designer"]), min_size=1, max_size=60), st.integers(1, 6), st.integers(0, 9))
def test_minibatches_share_every_role_evenly(roles, count, seed):
    cut = minibatches(roles, count, random.Random(seed))
    assert sorted(i for part in cut for i in part) == list(range(len(roles)))
    assert all(cut)
    assert cut == minibatches(roles, count, random.Random(seed))
    for role in set(roles):
        per = [sum(roles[i] == role for i in part) for part in cut]
        assert max(per) - min(per) <= 1


@given(st.lists(st.integers(1, 300), max_size=50), st.integers(1, 512))
def test_microbatches_keep_the_budget_and_every_sequence(lengths, budget):
    rows = microbatches(lengths, budget)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(len(row) == 1 or sum(lengths[i] for i in row) <= budget for row in rows)
