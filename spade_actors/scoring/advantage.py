"""Group-relative advantages of agents, and the centring of design groups.

Agents: the group is (environment, arm). `center` (default) subtracts the group's mean, as the micro runs did; dividing
by the standard deviation (`zscore`, the published GRPO form) gives nearly solved and nearly hopeless groups the largest
steps, and at eight plays their deviation is mostly noise.
"""

import math
from collections.abc import Mapping, Sequence

from spade_actors.scoring.returns import mean

EPSILON = 1e-8
"""published GRPO denominator; also the spread below which a group counts as constant"""


def agent_advantages(returns: Sequence[float], mode: str = "center") -> list[float] | None:
    """Advantages of one group, in order; None when the group is constant or has one member: nothing to learn from.

    `mode`: "center" = r - mean, "zscore" = (r - mean) / (population standard deviation + 1e-8).
    """
    if len(returns) < 2 or max(returns) - min(returns) <= EPSILON:
        return None
    centre = mean(returns)
    if mode == "center":
        return [value - centre for value in returns]
    if mode == "zscore":
        deviation = math.sqrt(mean([(value - centre) ** 2 for value in returns]))
        return [(value - centre) / (deviation + EPSILON) for value in returns]
    raise ValueError(f"advantage {mode!r}, expected center or zscore")


def design_advantages(rewards: Mapping[str, float], negative_scale: float = 1.0) -> dict[str, float] | None:
    """Leave-one-out centred rewards of a design group's resolved members, by design id; None with fewer than two.

    r_i - mean of the others, so that a member's own reward is not in its baseline; withdrawn members are not passed.
    Negative advantages are multiplied by `negative_scale`. A constant group gives zeros.
    """
    n = len(rewards)
    if n < 2:
        return None
    total = math.fsum(rewards.values())
    centred = {name: reward - (total - reward) / (n - 1) for name, reward in rewards.items()}
    return {
        name: 0.0 if abs(value) <= EPSILON else value * (negative_scale if value < 0 else 1.0)
        for name, value in centred.items()
    }
