"""Hint-based regret from paired plays (SPADE, arXiv 2608.19197), its standard error and its shrinkage.

A pair is one instance seed played without and with the hint; both arms ended by policy or environment rules. The
published code compares arms of different seeds and counts; pairing removes that difference.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from spade_actors.scoring.returns import mean


class Regret(NamedTuple):
    """Mean paired difference hinted - plain, its standard error over pairs, and the number of pairs."""

    value: float
    se: float
    pairs: int


def paired_regret(plain: Sequence[float], hinted: Sequence[float]) -> Regret:
    """Regret of aligned arms: `plain[i]` and `hinted[i]` are the returns of one seed.

    The standard error is sqrt(s^2 / n) with the sample variance s^2 of the differences (n - 1), infinite for one pair,
    since one difference says nothing about its spread.
    """
    if len(plain) != len(hinted):
        raise ValueError(f"{len(plain)} plain and {len(hinted)} hinted returns, expected pairs")
    differences = [h - p for p, h in zip(plain, hinted, strict=True)]
    n = len(differences)
    if n == 0:
        return Regret(0.0, math.inf, 0)
    centre = mean(differences)
    if n == 1:
        return Regret(centre, math.inf, 1)
    variance = math.fsum((d - centre) ** 2 for d in differences) / (n - 1)
    return Regret(centre, math.sqrt(variance / n), n)


def shrunk(regret: Regret, prior: float) -> float:
    """r * s0^2 / (s0^2 + SE^2): the posterior mean of a normal prior N(0, s0^2).

    Floor and clip of the published blend pay for noise (at true regret 0 and p = .5 the scaled term averages .37 with
    8 + 8 plays); the shrunk estimate pays for evidence.
    """
    if not math.isfinite(regret.se):
        return 0.0
    return regret.value * prior**2 / (prior**2 + regret.se**2)


def scaled(value: float, scale: float) -> float:
    """Floored and clipped: min(1, max(0, value / scale)) (published, scale .15)."""
    return min(1.0, max(0.0, value / scale))
