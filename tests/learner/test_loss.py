"""The loss's terms, by hand."""

import math

import pytest
import torch

from spade_actors.learner.loss import Bounds, Tokens, effective_share, kl_full, kl_k3, policy_terms, total

BOUNDS = Bounds(0.2, 0.28, 2.0)


def one(
    *, logp: float, prox: float | None, recorded: float, advantage: float
) -> tuple[float, float, float, bool, float]:
    """loss, ratio, weight, clipped, gradient of one token."""
    x = torch.tensor([logp], requires_grad=True)
    tokens = Tokens(
        torch.tensor([advantage]),
        torch.tensor([recorded]),
        torch.ones(1),
        torch.zeros(1),
        None if prox is None else torch.tensor([prox]),
    )
    terms = policy_terms(x, tokens, BOUNDS)
    terms.loss.sum().backward()
    assert x.grad is not None
    return (
        float(terms.loss.detach()),
        float(terms.ratio),
        float(terms.weight),
        bool(terms.clipped),
        float(x.grad),
    )


def test_at_the_start_of_a_batch_the_ratio_is_one_and_the_gradient_is_the_plain_policy_gradient():
    loss, ratio, weight, clipped, gradient = one(logp=-1.0, prox=None, recorded=-1.0, advantage=0.5)
    assert (loss, ratio, weight, clipped) == (-0.5, 1.0, 1.0, False)
    assert gradient == pytest.approx(-0.5)


@pytest.mark.parametrize(
    ("ratio", "advantage", "clipped"),
    [
        (1.5, 1.0, True),
        (1.25, 1.0, False),
        (0.5, 1.0, False),
        (0.5, -1.0, True),
        (1.5, -1.0, False),
        (0.85, -1.0, False),
    ],
)
def test_the_clip_removes_the_gradient_only_where_the_policy_has_gone_far_enough_already(ratio, advantage, clipped):
    loss, got, _, was, gradient = one(logp=-1.0 + math.log(ratio), prox=-1.0, recorded=-1.0, advantage=advantage)
    assert got == pytest.approx(ratio)
    assert was is clipped
    bound = min(max(ratio, 0.8), 1.28)
    assert loss == pytest.approx(-min(ratio * advantage, bound * advantage))
    assert gradient == pytest.approx(0.0 if clipped else -ratio * advantage)


def test_the_off_policy_weight_is_capped_detached_and_multiplies_the_loss():
    loss, _, weight, _, gradient = one(logp=-1.0, prox=-1.0, recorded=-1.0 - math.log(1.5), advantage=1.0)
    assert weight == pytest.approx(1.5)
    assert (loss, gradient) == (pytest.approx(-1.5), pytest.approx(-1.5))
    assert one(logp=-1.0, prox=-1.0, recorded=-4.0, advantage=1.0)[2] == 2.0
    assert one(logp=-4.0, prox=-4.0, recorded=-1.0, advantage=1.0)[2] == pytest.approx(math.exp(-3))


def test_absurd_distances_stay_finite():
    loss, _, weight, _, gradient = one(logp=-500.0, prox=-1.0, recorded=-900.0, advantage=-1.0)
    assert math.isfinite(loss)
    assert math.isfinite(gradient)
    assert weight == 2.0


def test_both_kl_forms_are_zero_at_the_reference_and_agree_in_expectation():
    torch.manual_seed(1)
    ours, theirs = (torch.log_softmax(torch.randn(1, 6), -1) for _ in range(2))
    assert float(kl_full(ours, ours)) == pytest.approx(0.0, abs=1e-7)
    assert float(kl_k3(ours[0, :1], ours[0, :1])) == 0.0
    expected = sum(float(ours[0, v].exp() * kl_k3(ours[0, v], theirs[0, v])) for v in range(6))
    assert float(kl_full(ours, theirs)) == pytest.approx(expected, rel=1e-5)
    assert float(kl_full(ours, theirs)) > 0


def test_total_scales_each_token_and_adds_kl_inside():
    tokens = Tokens(torch.zeros(2), torch.zeros(2), torch.tensor([0.5, 3.0]), torch.tensor([0.1, 0.2]))
    policy = torch.tensor([1.0, 2.0])
    assert float(total(policy, None, tokens)) == pytest.approx(0.5 + 6.0)
    assert float(total(policy, torch.tensor([10.0, 5.0]), tokens)) == pytest.approx(0.5 * 2.0 + 3.0 * 3.0)


def test_effective_share():
    assert effective_share(4.0, 4.0, 4) == 1.0
    assert effective_share(1.0, 1.0, 4) == 0.25
    assert effective_share(0.0, 0.0, 0) == 0.0
