"""How hard an environment is for the policy: the plateau of the reward, and the probability of lying in the band."""

import math


def plateau(rate: float, lo: float = 0.4, hi: float = 0.6, ramp: float = 0.25) -> float:
    """1 within [lo, hi], falling linearly to 0 over `ramp` on both sides (published)."""
    if rate < lo:
        return max(0.0, 1.0 - (lo - rate) / ramp)
    if rate > hi:
        return max(0.0, 1.0 - (rate - hi) / ramp)
    return 1.0


def in_band(wins: int, plays: int, lo: float, hi: float) -> float:
    """Probability that the win rate lies in [lo, hi] under the posterior Beta(1 + wins, 1 + plays - wins).

    An expected probability, so that different numbers of plays are comparable; with no plays it is hi - lo.
    """
    if not 0 <= wins <= plays:
        raise ValueError(f"{wins} wins of {plays} plays")
    return _beta_cdf(wins + 1, plays - wins + 1, hi) - _beta_cdf(wins + 1, plays - wins + 1, lo)


def _beta_cdf(a: int, b: int, x: float) -> float:
    """I_x(a, b) for integers, as the binomial tail P(Bin(a + b - 1, x) >= a)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    n = a + b - 1
    log_x, log_y = math.log(x), math.log1p(-x)
    terms = (
        math.exp(
            math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1) + j * log_x + (n - j) * log_y,
        )
        for j in range(a, n + 1)
    )
    return min(1.0, math.fsum(terms))
