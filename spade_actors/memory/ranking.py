"""Which earlier environments a brief shows: exemplars by a lower confidence bound of regret, and one negative.

Pure: the archive's recent judged environments come in, newest first. The published memory ranks by the raw estimate and
so shows what was lucky; the bound regret - z * SE shows what is likely to teach.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

TOO_EASY = 0.9
TOO_HARD = 0.1


class Judged(NamedTuple):
    """A scored environment as ranking sees it."""

    environment: str
    skill: str
    title: str
    regret: float
    regret_se: float
    win_rate: float


def bound(judged: Judged, confidence: float) -> float:
    """Lower confidence bound of its regret."""
    return judged.regret - confidence * judged.regret_se


def exemplars(
    recent: Sequence[Judged], *, best: int, count: int, confidence: float, rng: random.Random
) -> list[Judged]:
    """Up to `count` different ones of the `best` by lower confidence bound; too easy and too hard ones are no model.

    Source: the published memory samples 2 of the top max(3n, 10) by regret among win rates within [.15, .85]; the micro
    runs took the best 8 of the last 40 per skill.
    """
    distinct = {judged.environment: judged for judged in reversed(recent) if TOO_HARD <= judged.win_rate <= TOO_EASY}
    ranked = sorted(distinct.values(), key=lambda j: (-bound(j, confidence), j.environment))[:best]
    return rng.sample(ranked, min(count, len(ranked)))


def negative(recent: Sequence[Judged], rng: random.Random) -> str:
    """One line on an environment whose win rate was above .9 or below .1 (published), or nothing."""
    extreme = [judged for judged in recent if judged.win_rate > TOO_EASY or judged.win_rate < TOO_HARD]
    if not extreme:
        return ""
    chosen = rng.choice(extreme)
    verdict = "too easy" if chosen.win_rate > TOO_EASY else "too hard"
    return f"{chosen.title or 'an earlier environment'} was {verdict}: {chosen.win_rate:.0%} of plays were won"
