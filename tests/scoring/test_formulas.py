"""The formulas against numbers the published functions gave, and against what was mended in them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_actors.scoring.advantage import agent_advantages, design_advantages
from spade_actors.scoring.difficulty import in_band, plateau
from spade_actors.scoring.regret import Regret, paired_regret, scaled, shrunk
from spade_actors.scoring.returns import episode_return, mean, win_rate


@pytest.mark.parametrize(
    ("rate", "value"),
    [
        (0, 0), (0.15, 0), (0.2, 0.2), (0.25, 0.4), (0.3, 0.6), (0.375, 0.9), (0.4, 1), (0.5, 1), (0.6, 1),
        (0.625, 0.9), (0.7, 0.6), (0.75, 0.4), (0.8, 0.2), (0.85, 0), (1, 0), (-0.5, 0),
    ],
)  # fmt: skip
def test_plateau(rate: float, value: float) -> None:
    assert plateau(rate) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(("rate", "value"), [(0, 0), (0.1, 0.5), (0.2, 1), (0.4, 1), (0.5, 0.5), (0.6, 0)])
def test_plateau_of_another_band(rate: float, value: float) -> None:
    assert plateau(rate, 0.2, 0.4, 0.2) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(
    ("rewards", "terminated", "value"),
    [
        ([], True, 0), ([1], False, 0), ([0.2, 2], True, 1), ([-2], True, -1), ([0.5, 0.5, 0], True, 0),
        ([1, 0.3], True, 0.3), ([0, -0.1], True, -0.1),
    ],
)  # fmt: skip
def test_episode_return(rewards: list[float], terminated: bool, value: float) -> None:
    assert episode_return(rewards, terminated) == pytest.approx(value)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_a_non_finite_reward_is_never_a_win(reward: float) -> None:
    assert episode_return([reward], True) == 0.0
    assert episode_return([reward, 1.0], True) == 0.0


def test_win_rate_counts_returns_above_zero_and_the_mean_does_not() -> None:
    assert win_rate([0.5, 0.0, -1.0, 0.1]) == 0.5
    assert mean([0.5, 0.0, -1.0, 0.1]) == pytest.approx(-0.1)
    assert win_rate([]) == mean([]) == 0.0


def test_regret_is_paired() -> None:
    regret = paired_regret([0, 0, 1, 0], [1, 0, 1, 1])
    assert regret.value == pytest.approx(0.5)
    assert regret.se == pytest.approx(math.sqrt(1 / 3 / 4))
    assert regret.pairs == 4
    assert paired_regret([0], [1]) == Regret(1.0, math.inf, 1)
    with pytest.raises(ValueError, match="pairs"):
        paired_regret([0, 1], [1])


@pytest.mark.parametrize(("regret", "value"), [(0, 0), (0.075, 0.5), (0.15, 1), (0.4, 1), (-0.2, 0)])
def test_scaled_regret(regret: float, value: float) -> None:
    assert scaled(regret, 0.15) == pytest.approx(value)


def test_shrinking_halves_a_regret_whose_error_equals_the_prior() -> None:
    assert shrunk(Regret(0.3, 0.15, 8), 0.15) == pytest.approx(0.15)
    assert shrunk(Regret(0.3, 0.0, 8), 0.15) == pytest.approx(0.3)
    assert shrunk(Regret(0.3, math.inf, 1), 0.15) == 0.0


def test_in_band_probability() -> None:
    assert in_band(0, 0, 0.4, 0.6) == pytest.approx(0.2)
    assert in_band(1, 1, 0.4, 0.6) == pytest.approx(0.6**2 - 0.4**2)
    # Beta(2, 2) has the distribution function 3x^2 - 2x^3
    assert in_band(1, 2, 0.4, 0.6) == pytest.approx(3 * 0.36 - 2 * 0.216 - (3 * 0.16 - 2 * 0.064))
    assert in_band(0, 8, 0.4, 0.6) == pytest.approx(0.6**9 - 0.4**9)
    assert in_band(4, 8, 0.4, 0.6) > in_band(3, 8, 0.4, 0.6) > in_band(2, 8, 0.4, 0.6)


@given(st.integers(0, 400), st.integers(0, 400))
def test_in_band_is_a_probability_and_symmetric(wins: int, losses: int) -> None:
    value = in_band(wins, wins + losses, 0.4, 0.6)
    assert -1e-12 <= value <= 1 + 1e-12
    assert value == pytest.approx(in_band(losses, wins + losses, 0.4, 0.6), abs=1e-9)
    assert in_band(wins, wins + losses, 0.0, 1.0) == 1.0


@pytest.mark.parametrize(
    ("returns", "advantages"),
    [
        ([0, 1], [-0.99999998, 0.99999998]),
        ([0, 0, 0, 1], [-0.57735026, -0.57735026, -0.57735026, 1.73205077]),
        ([0, 0.5, 1], [-1.22474484, 0, 1.22474484]),
        ([-1, 1, 1, 1], [-1.73205079, 0.57735026, 0.57735026, 0.57735026]),
        ([0] * 7 + [1], [-0.37796446] * 7 + [2.64575123]),
    ],
)
def test_zscore_is_the_published_grpo(returns: list[float], advantages: list[float]) -> None:
    assert agent_advantages(returns, "zscore") == pytest.approx(advantages, abs=2e-8)


def test_constant_groups_have_no_advantage() -> None:
    for mode in ("center", "zscore"):
        assert agent_advantages([1, 1, 1, 1], mode) is None
        assert agent_advantages([1], mode) is None
        assert agent_advantages([], mode) is None
    assert agent_advantages([0, 0, 0, 1]) == pytest.approx([-0.25, -0.25, -0.25, 0.75])
    with pytest.raises(ValueError, match="center or zscore"):
        agent_advantages([0, 1], "rank")


def test_design_groups_are_centred_leave_one_out() -> None:
    advantages = design_advantages({"a": 1.0, "b": 0.0, "c": -0.1})
    assert advantages == pytest.approx({"a": 1.05, "b": -0.45, "c": -0.6})
    halved = design_advantages({"a": 1.0, "b": 0.0, "c": -0.1}, negative_scale=0.5)
    assert halved == pytest.approx({"a": 1.05, "b": -0.225, "c": -0.3})
    assert design_advantages({"a": 1.0}) is None
    assert design_advantages({"a": 0.3, "b": 0.3}) == {"a": 0.0, "b": 0.0}


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=9))
def test_centred_groups_sum_to_zero(returns: list[float]) -> None:
    group = agent_advantages(returns)
    if group is not None:
        assert sum(group) == pytest.approx(0, abs=1e-9)
    design = design_advantages({str(i): r for i, r in enumerate(returns)})
    assert design is not None
    assert sum(design.values()) == pytest.approx(0, abs=1e-6)
