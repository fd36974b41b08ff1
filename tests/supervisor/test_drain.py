"""Order and bounds of a drain."""

from hypothesis import given
from hypothesis import strategies as st

from spade_actors.supervisor.drain import ORDER, Drain, Orders, bounds

EVERYONE = [("hub", "hub"), ("judge", "judge"), ("agent-1", "agent"), ("agent-2", "agent"), ("designer-1", "designer")]


def test_one_role_at_a_time_and_the_hub_last() -> None:
    drain = Drain()
    alive = list(EVERYONE)
    order = []
    while alive:
        asked = drain.step(alive, 0.0).ask
        order.append(asked)
        assert drain.step(alive, 0.1) == Orders()
        alive = [process for process in alive if process[0] not in asked]
    assert order == [("designer-1",), ("agent-1", "agent-2"), ("judge",), ("hub",)]
    assert drain.killed == []


def test_what_is_late_is_killed_once() -> None:
    drain = Drain()
    alive = [("agent-1", "agent"), ("hub", "hub")]
    assert drain.next_check(alive, 0.0) == float("inf")
    assert drain.step(alive, 0.0).ask == ("agent-1",)
    assert drain.next_check(alive, 5.0) == 15.0
    assert drain.step(alive, 20.0).kill == ("agent-1",)
    assert drain.step(alive, 21.0) == Orders()
    assert drain.step([("hub", "hub")], 21.0).ask == ("hub",)
    assert drain.killed == ["agent-1"]


def test_configured_drain_times_are_never_cut_short() -> None:
    allowed = dict(bounds(designer_s=100.0, agent_s=33.0))
    assert (allowed["designer"], allowed["agent"]) == (110.0, 43.0)
    assert [role for role, _ in bounds(1.0, 1.0)] == [role for role, _ in ORDER]
    assert allowed["judge"] == dict(ORDER)["judge"]


def test_the_second_interrupt_kills_everything() -> None:
    drain = Drain()
    drain.step(EVERYONE, 0.0)
    drain.now_or_never = True
    assert set(drain.step(EVERYONE, 0.1).kill) == {name for name, _ in EVERYONE}


def test_a_role_of_somebody_elses_drains_first() -> None:
    assert Drain().step([("x", "scorer"), ("designer-1", "designer")], 0.0).ask == ("x",)


@given(st.lists(st.sampled_from([role for role, _ in ORDER]), min_size=1, max_size=20), st.data())
def test_every_drain_ends_within_the_sum_of_the_bounds(roles: list[str], data: st.DataObject) -> None:
    alive = {f"{role}-{number}": role for number, role in enumerate(roles)}
    drain, now, ended = Drain(), 0.0, []
    while alive:
        orders = drain.step(list(alive.items()), now)
        stuck = data.draw(st.booleans())
        for name in orders.kill if stuck else (*orders.ask, *orders.kill):
            ended.append(alive.pop(name))
        if stuck and not orders.kill:
            now += drain.next_check(list(alive.items()), now)
    ranks = [next(i for i, (role, _) in enumerate(ORDER) if role == r) for r in ended]
    assert ranks == sorted(ranks)
    assert now <= sum(bound for _, bound in ORDER)
