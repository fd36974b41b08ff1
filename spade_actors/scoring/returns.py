"""Episode returns and their means. A return is always finite and within [-1, 1]."""

import math
from collections.abc import Sequence


def finite(rewards: Sequence[float]) -> bool:
    """Whether every reward is a number; an episode with another one is a failure of the environment, never a win."""
    return all(math.isfinite(reward) for reward in rewards)


def episode_return(rewards: Sequence[float], terminated: bool) -> float:
    """0 unless the environment terminated the episode, else its last reward clamped to [-1, 1].

    Source: the published `episode_reward`, except that a non-finite reward anywhere gives 0 where the published code
    lets a NaN win.
    """
    if not rewards or not terminated or not finite(rewards):
        return 0.0
    return max(-1.0, min(1.0, float(rewards[-1])))


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; 0 of nothing, as the published code has it."""
    return math.fsum(values) / len(values) if values else 0.0


def win_rate(returns: Sequence[float]) -> float:
    """Share of returns above 0 (the published memory's win rate; the reward formulas use the mean return instead)."""
    return sum(value > 0 for value in returns) / len(returns) if returns else 0.0
