"""Backoff and giving up."""

from hypothesis import given
from hypothesis import strategies as st

from spade_actors.supervisor.restarts import Policy, Restarts


def test_fast_deaths_back_off_and_then_the_run_gives_up() -> None:
    restarts = Restarts(Policy(healthy_s=20, first_s=0.5, longest_s=1.5, give_up=5))
    assert [restarts.died("agent-1", 1.0) for _ in range(5)] == [0.0, 0.5, 1.0, 1.5, None]
    assert restarts.total == {"agent-1": 4}
    assert restarts.died("agent-2", 1.0) == 0.0


def test_a_long_life_forgets() -> None:
    restarts = Restarts(Policy(give_up=3))
    for _ in range(50):
        assert restarts.died("hub", 21.0) == 0.0
    assert restarts.died("hub", 1.0) is not None


@given(st.lists(st.floats(0, 100), max_size=60))
def test_gives_up_exactly_after_so_many_fast_deaths_in_a_row(lives: list[float]) -> None:
    policy = Policy()
    restarts = Restarts(policy)
    row = 0
    for lived in lives:
        row = 1 if lived >= policy.healthy_s else row + 1
        delay = restarts.died("x", lived)
        assert (delay is None) == (row >= policy.give_up)
        assert delay is None or 0 <= delay <= policy.longest_s
