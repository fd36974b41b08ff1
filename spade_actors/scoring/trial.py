"""`score_trial`: everything a trial says about its environment, its designer and its plays."""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from spade_actors.scoring.advantage import agent_advantages
from spade_actors.scoring.difficulty import in_band, plateau
from spade_actors.scoring.regret import paired_regret, scaled, shrunk
from spade_actors.scoring.returns import episode_return, mean, win_rate
from spade_protocols.play import HINTED, PLAIN, PlayScore, ScoreTrial, TrialScore


class ScorerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `ScoreTrial.settings` may carry for this scorer; names as in `[judge]`."""

    plateau_lo: float = 0.4
    plateau_hi: float = 0.6
    plateau_ramp: float = 0.25
    plateau_weight: float = 0.6
    regret_weight: float = 0.4
    regret_scale: float = 0.15
    regret_shrink: bool = True
    regret_prior: float = 0.15
    train_hinted: bool = False
    advantage: Literal["center", "zscore"] = "center"


def score_trial(trial: ScoreTrial) -> TrialScore:
    """Scores a trial whose plays all ended by policy or environment rules.

    The designer's reward is the blend plateau_weight * plateau(mean plain return) + regret_weight * scaled regret
    (published .6 / .4 at scale .15), the regret shrunk by its standard error unless `regret_shrink` is off. Advantages
    exist for the plain arm, and for the hinted one with `train_hinted`; constant groups have none.

    Raises:
        msgspec.ValidationError: the settings have a wrong type.
    """
    s = msgspec.convert(trial.settings, ScorerSettings)
    returns = {play.play: episode_return(play.rewards, play.terminated) for play in trial.plays}
    plain = [play for play in trial.plays if play.arm == PLAIN]
    hinted = [play for play in trial.plays if play.arm == HINTED]
    plain_returns = [returns[play.play] for play in plain]
    hinted_returns = [returns[play.play] for play in hinted]

    pairs = pair_up(plain, hinted)
    regret = paired_regret([returns[p.play] for p, _ in pairs], [returns[h.play] for _, h in pairs])
    mean_return = mean(plain_returns)
    flat = plateau(mean_return, s.plateau_lo, s.plateau_hi, s.plateau_ramp) if plain else 0.0
    shrunk_regret = shrunk(regret, s.regret_prior)
    published = s.plateau_weight * flat + s.regret_weight * scaled(regret.value, s.regret_scale)
    evidence = s.plateau_weight * flat + s.regret_weight * scaled(shrunk_regret, s.regret_scale)

    advantages: dict[str, float] = {}
    for arm in (plain, hinted) if s.train_hinted else (plain,):
        group = agent_advantages([returns[play.play] for play in arm], s.advantage)
        if group is not None:
            advantages |= {play.play: advantage for play, advantage in zip(arm, group, strict=True)}

    wins = sum(value > 0 for value in plain_returns)
    scores = {
        "mean_return": mean_return,
        "mean_return_hinted": mean(hinted_returns),
        "win_rate": win_rate(plain_returns),
        "win_rate_hinted": win_rate(hinted_returns),
        "regret": regret.value,
        "regret_se": regret.se if math.isfinite(regret.se) else 1.0,
        "regret_shrunk": shrunk_regret,
        "pairs": float(regret.pairs),
        "plateau": flat,
        "blend": evidence,
        "blend_published": published,
        "in_band": in_band(wins, len(plain), s.plateau_lo, s.plateau_hi),
        "in_band_n": float(len(plain)),
        "version_gap": version_gap(pairs),
        "turns": mean([float(play.turns) for play in plain]),
    }
    return TrialScore(
        returns=returns,
        advantages=advantages,
        designer_reward=evidence if s.regret_shrink else published,
        scores=scores,
    )


def pair_up(plain: Sequence[PlayScore], hinted: Sequence[PlayScore]) -> list[tuple[PlayScore, PlayScore]]:
    """(plain, hinted) plays of the same seed, by pair index; a play without its partner is left out."""
    by_index = {play.index: play for play in hinted}
    return [(play, by_index[play.index]) for play in sorted(plain, key=lambda p: p.index) if play.index in by_index]


def version_gap(pairs: Sequence[tuple[PlayScore, PlayScore]]) -> float:
    """Mean weight version of the hinted minus the plain arm. Away from 0, learning is booked as regret."""
    return mean([h.version - p.version for p, h in pairs])
