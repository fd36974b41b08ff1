from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spade_actors.hub.queues import Parked, Queue
from spade_actors.hub.ready import Entry


def entry(id_: str, order: int, group: str = "", priority: int = 0, attempts: int = 3, **body: str) -> Entry:
    return Entry(id=id_, body=dict(body), group=group, priority=priority, attempts=attempts, order=order, put_at=order)


def ids(entries: list[Entry]) -> list[str]:
    return [e.id for e in entries]


def test_priority_then_first_in_first_out() -> None:
    queue: Queue[None] = Queue("q")
    for order, (id_, priority) in enumerate([("a", 0), ("b", 5), ("c", 0), ("d", 5)]):
        queue.add(entry(id_, order, priority=priority))
    assert ids(queue.lease(4, (), "L", "h", "i")) == ["b", "d", "a", "c"]


def test_a_group_comes_whole_even_if_larger_than_asked_for() -> None:
    queue: Queue[None] = Queue("q")
    for order, id_ in enumerate("abcd"):
        queue.add(entry(id_, order, group="g" if id_ != "d" else ""))
    assert ids(queue.lease(1, (), "L1", "h", "i")) == ["a", "b", "c"]
    assert ids(queue.lease(1, (), "L2", "h", "i")) == ["d"]


def test_a_second_group_that_does_not_fit_waits() -> None:
    queue: Queue[None] = Queue("q")
    for order, id_ in enumerate("abcd"):
        queue.add(entry(id_, order, group=(id_ in "ab" and "g1") or "g2"))
    assert ids(queue.lease(3, (), "L1", "h", "i")) == ["a", "b"]


def test_filter_takes_only_matching_bodies_in_order() -> None:
    queue: Queue[None] = Queue("q")
    for order, id_ in enumerate("abcdef"):
        queue.add(entry(id_, order, role="agent" if id_ in "bdf" else "designer"))
    where = (("role", "agent"),)
    assert ids(queue.lease(2, where, "L1", "h", "i")) == ["b", "d"]
    queue.add(entry("g", 9, role="agent"))
    assert ids(queue.lease(5, where, "L2", "h", "i")) == ["f", "g"]
    assert ids(queue.lease(9, (), "L3", "h", "i")) == ["a", "c", "e"]


def test_a_mixed_group_matches_a_filter_once_the_odd_one_is_cancelled() -> None:
    queue: Queue[None] = Queue("q")
    queue.add(entry("a", 0, group="g", role="agent"))
    queue.add(entry("b", 1, group="g", role="designer"))
    where = (("role", "agent"),)
    assert queue.lease(2, where, "L1", "h", "i") == []
    queue.end(queue.entries["b"], "cancelled")
    assert ids(queue.lease(2, where, "L2", "h", "i")) == ["a"]


def test_same_lease_id_again_gives_the_same_items() -> None:
    queue: Queue[None] = Queue("q")
    for order, id_ in enumerate("abc"):
        queue.add(entry(id_, order))
    assert ids(queue.lease(2, (), "L", "h", "i")) == ids(queue.lease(2, (), "L", "h", "i")) == ["a", "b"]
    assert queue.entries["a"].leases == 1


def test_failures_up_to_attempts_then_dead_and_unused_returns_do_not_count() -> None:
    queue: Queue[None] = Queue("q")
    queue.add(entry("a", 0, attempts=2))
    (item,) = queue.lease(1, (), "L1", "h", "i")
    assert queue.give_back(item, counts=False)
    (item,) = queue.lease(1, (), "L2", "h", "i")
    assert (item.leases, item.failures) == (2, 0)
    assert queue.give_back(item, counts=True)
    (item,) = queue.lease(1, (), "L3", "h", "i")
    assert not queue.give_back(item, counts=True)
    assert queue.ended == {"completed": 0, "cancelled": 0, "dead": 1}
    assert not queue.entries


def test_parked_calls_are_served_in_order_and_filters_do_not_block_others() -> None:
    queue: Queue[str] = Queue("q")
    for n, where in enumerate([(("role", "x"),), (), ()]):
        queue.park(Parked(1, where, f"L{n}", "h", "i", 0.0, 10.0, f"call{n}"))
    queue.add(entry("a", 0, role="y"))
    assert [(p.token, ids(got)) for p, got in queue.serve()] == [("call1", ["a"])]
    queue.add(entry("b", 1, role="x"))
    assert [(p.token, ids(got)) for p, got in queue.serve()] == [("call0", ["b"])]
    assert [p.token for p in queue.overdue(10.0)] == ["call2"]
    assert queue.parked() == []


class QueueMachine(RuleBasedStateMachine):
    """Random lives of items against a plain model: an item is ready, or leased once, or ended once; none is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: Queue[None] = Queue("q")
        self.model: dict[str, str] = {}
        self.failures: dict[str, int] = {}
        self.leases: dict[str, str] = {}
        self.stale: list[tuple[str, str]] = []
        self.n = 0

    @rule(group=st.sampled_from(["", "", "g1", "g2"]), priority=st.integers(0, 2), role=st.sampled_from("xy"))
    def put(self, group: str, priority: int, role: str) -> None:
        self.n += 1
        id_ = f"i{self.n}"
        assert self.queue.add(entry(id_, self.n, group, priority, 2, role=role))
        assert not self.queue.add(entry(id_, self.n + 1000))
        self.model[id_] = "ready"
        self.failures[id_] = 0

    @rule(count=st.integers(1, 4), role=st.sampled_from(["", "x", "y"]), holder=st.sampled_from("ABC"))
    def lease(self, count: int, role: str, holder: str) -> None:
        self.n += 1
        where = (("role", role),) if role else ()
        ready_groups: dict[str, set[str]] = {}
        for id_, state in self.model.items():
            if state == "ready" and self.queue.entries[id_].group:
                ready_groups.setdefault(self.queue.entries[id_].group, set()).add(id_)
        taken = self.queue.lease(count, where, f"L{self.n}", holder, holder)
        got = {e.id for e in taken}
        assert all(self.model[id_] == "ready" for id_ in got)
        assert all(e.body["role"] == role for e in taken if role)
        for members in ready_groups.values():
            assert not (members & got) or members <= got
        if not role and any(state == "ready" for state in self.model.values()):
            assert taken
        for e in taken:
            self.model[e.id] = "leased"
            self.leases[e.id] = e.lease

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), what=st.sampled_from(["complete", "fail", "return"]))
    def finish(self, data: st.DataObject, what: str) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.leases)))
        lease = self.leases.pop(id_)
        item = self.queue.holds(id_, lease)
        assert item is not None
        self.stale.append((id_, lease))
        if what == "complete":
            self.queue.end(item, "completed")
            self.model[id_] = "completed"
        else:
            self.failures[id_] += what == "fail"
            alive = self.queue.give_back(item, what == "fail")
            assert alive == (self.failures[id_] < 2)
            self.model[id_] = "ready" if alive else "dead"

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        open_ = sorted(self.queue.entries)
        if open_:
            id_ = data.draw(st.sampled_from(open_))
            self.queue.end(self.queue.entries[id_], "cancelled")
            self.model[id_] = "cancelled"
            if id_ in self.leases:
                self.stale.append((id_, self.leases.pop(id_)))

    @rule(holder=st.sampled_from("ABC"))
    def holder_dies(self, holder: str) -> None:
        for item in self.queue.of_incarnation(holder):
            self.stale.append((item.id, self.leases.pop(item.id)))
            self.failures[item.id] += 1
            self.model[item.id] = "ready" if self.queue.give_back(item, True) else "dead"
        assert self.queue.of_incarnation(holder) == []

    @invariant()
    def every_item_is_in_exactly_one_place(self) -> None:
        states = list(self.model.values())
        assert self.queue.ready.count == states.count("ready")
        assert self.queue.leased == states.count("leased")
        assert self.queue.ended == {s: states.count(s) for s in ("completed", "cancelled", "dead")}
        for id_, lease in self.leases.items():
            assert self.queue.holds(id_, lease) is not None

    @invariant()
    def an_old_lease_holds_nothing(self) -> None:
        assert all(self.queue.holds(id_, lease) is None for id_, lease in self.stale)


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueueMachine = QueueMachine.TestCase
