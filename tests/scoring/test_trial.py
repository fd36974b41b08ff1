"""Whole trials, the scorer's loader and the refusal of nonsense."""

import math
import sys
import types

import msgspec
import pytest

from spade_actors.scoring import score_trial
from spade_actors.scoring.load import ScorerError, check_score, load_scorer
from spade_protocols.play import PlayScore, ScoreTrial, TrialScore


def play(index: int, arm: str, value: float, *, version: float = 3.0, terminated: bool = True) -> PlayScore:
    return PlayScore(
        play=f"t.{index}.{arm[0]}", arm=arm, index=index, rewards=[0.0, value], terminated=terminated,
        ending="terminated", turns=2, version=version,
    )  # fmt: skip


def trial(plain: list[float], hinted: list[float], **settings: object) -> ScoreTrial:
    plays = [play(i, "plain", v) for i, v in enumerate(plain)] + [play(i, "hinted", v) for i, v in enumerate(hinted)]
    return ScoreTrial(trial="t", environment="e", skill="s", plays=plays, settings=settings)


def test_published_blend_examples() -> None:
    # floored, clipped, at scale .15: mean .5 -> plateau 1, regret .3 -> 1
    score = score_trial(trial([1, 0, 1, 0], [1, 1, 0.6, 0.6], regret_shrink=False))
    assert score.scores["regret"] == pytest.approx(0.3)
    assert score.designer_reward == pytest.approx(1.0)
    # all zeros, hinted mean .05 -> .4 * .05 / .15
    assert score_trial(trial([0] * 4, [0.2, 0, 0, 0], regret_shrink=False)).designer_reward == pytest.approx(
        0.133333, abs=1e-6
    )
    assert score_trial(trial([1] * 4, [1] * 4, regret_shrink=False)).designer_reward == 0.0
    # mean .375, negative regret -> .6 * .9
    score = score_trial(trial([0, 0, 0, 1, 0, 0, 1, 1], [0.2] * 8, regret_shrink=False))
    assert score.scores["win_rate"] == pytest.approx(0.375)
    assert score.designer_reward == pytest.approx(0.54)


def test_default_reward_is_the_shrunk_blend_and_both_are_reported() -> None:
    score = score_trial(trial([1, 0, 1, 0], [1, 1, 1, 1]))
    assert score.designer_reward == score.scores["blend"]
    assert score.scores["blend_published"] == pytest.approx(1.0)
    se = math.sqrt((4 * 0.25 / 3) / 4)
    expected = 0.6 + 0.4 * min(1.0, 0.5 * 0.15**2 / (0.15**2 + se**2) / 0.15)
    assert score.scores["blend"] == pytest.approx(expected)


def test_only_the_plain_arm_has_advantages_unless_hinted_plays_train() -> None:
    given = trial([1, 0, 0, 0], [1, 1, 0, 0])
    assert score_trial(given).advantages == pytest.approx(
        {"t.0.p": 0.75, "t.1.p": -0.25, "t.2.p": -0.25, "t.3.p": -0.25}
    )
    both = score_trial(msgspec.structs.replace(given, settings={"train_hinted": True, "advantage": "zscore"}))
    assert len(both.advantages) == 8
    assert both.advantages["t.0.h"] == pytest.approx(1.0)


def test_a_play_without_partner_counts_for_the_mean_but_not_for_regret() -> None:
    score = score_trial(trial([1, 0, 1], [1, 1]))
    assert score.scores["pairs"] == 2
    assert score.scores["regret"] == pytest.approx(0.5)
    assert score.scores["mean_return"] == pytest.approx(2 / 3)


def test_version_gap_of_the_arms() -> None:
    plays = [play(0, "plain", 1, version=3.0), play(0, "hinted", 1, version=3.5), play(1, "hinted", 1, version=9.0)]
    score = score_trial(ScoreTrial(trial="t", environment="e", skill="s", plays=plays))
    assert score.scores["version_gap"] == pytest.approx(0.5)


def test_a_trial_without_plays_still_gives_finite_numbers() -> None:
    empty = ScoreTrial(trial="t", environment="e", skill="s", plays=[])
    check_score(empty, score_trial(empty))


def test_scorers_are_found_by_name_and_path() -> None:
    assert load_scorer("spade_actors.scoring:score_trial") is score_trial
    for name, text in [
        ("nonsense", "nonsense"),
        ("no.such.module:f", "imported"),
        ("math:nothing", "imported"),
        ("math:pi", "function"),
    ]:
        with pytest.raises(ScorerError, match=text):
            load_scorer(name)
    module = types.ModuleType("own_scorer")
    module.score = lambda t: score_trial(t)  # type: ignore[attr-defined]
    sys.modules["own_scorer"] = module
    try:
        assert load_scorer("own_scorer:score") is module.score
    finally:
        del sys.modules["own_scorer"]


def test_nonsense_scores_are_refused() -> None:
    given = trial([1, 0], [1, 1])
    good = score_trial(given)
    assert check_score(given, good) is good
    replace = msgspec.structs.replace
    bad: list[tuple[object, str]] = [
        (None, "NoneType"),
        (replace(good, returns={**good.returns, "x": 0.0}), "x"),
        (replace(good, returns={}), "no return"),
        (replace(good, advantages={"x": 1.0}), "x"),
        (replace(good, advantages={"t.0.p": math.inf}), "finite"),
        (replace(good, designer_reward=math.nan), "designer_reward"),
        (replace(good, scores={"regret": math.nan}), "regret"),
    ]
    for score, text in bad:
        with pytest.raises(ScorerError, match=text):
            check_score(given, score)
    assert isinstance(good, TrialScore)
