"""The training loss, from token tensors to one number, to be read top to bottom.

A step trains on the tokens the policy sampled, N of them, of both roles at once. For a token with log-probability
`logp` under the weights being trained, `prox` under the weights at the start of the batch, and `recorded` under the
weights that sampled it:

    weight = min(cap, exp(prox - recorded))                       off-policy correction, no gradient (decoupled PPO)
    ratio  = exp(logp - prox)                                     how far this batch has moved the policy
    policy = -weight * min(ratio * A, clip(ratio, 1 - low, 1 + high) * A)
    loss   = sum over tokens of scale * (policy + beta * KL(policy || initial weights))

`scale` is the role's weight over the role's trained tokens in the whole optimizer step, so the loss is a token-mean per
role and cutting the step into micro-batches never changes it. With `prox` left out, prox is `logp` itself: the first
forward of a batch is at its start. Sources: SPADE, arXiv 2608.19197 (truncated weight, clip-higher .2/.28); AReaL
(decoupled proximal policy); http://joschu.net/blog/kl-approx.html (k3).
"""

from typing import NamedTuple

import torch
from torch import Tensor

# exp of anything further out is as good as infinite and would make the gradient NaN.
_FAR = 20.0


class Tokens(NamedTuple):
    """What is known of N trained tokens before the forward; all [N] float32."""

    advantage: Tensor
    recorded: Tensor
    """log-probability under the weights, and at the temperature, that sampled the token"""
    scale: Tensor
    """share of the optimizer step's loss"""
    beta: Tensor
    """KL coefficient"""
    prox: Tensor | None = None
    """log-probability at the start of the batch; None: this forward is at the start"""


class Bounds(NamedTuple):
    """Clipping: the ratio to [1 - low, 1 + high], the off-policy weight to at most `cap`."""

    low: float
    high: float
    cap: float


class PolicyTerms(NamedTuple):
    """Per token, [N]: `loss` carries the gradient, the rest is for the record."""

    loss: Tensor
    ratio: Tensor
    weight: Tensor
    clipped: Tensor
    """bool: the clip removed this token's gradient"""
    prox: Tensor


def policy_terms(logp: Tensor, tokens: Tokens, bounds: Bounds) -> PolicyTerms:
    """The clipped policy gradient of `logp` [N]."""
    prox = logp.detach() if tokens.prox is None else tokens.prox
    weight = _exp(prox - tokens.recorded).clamp(max=bounds.cap)
    ratio = _exp(logp - prox)
    free = ratio * tokens.advantage
    held = ratio.clamp(1.0 - bounds.low, 1.0 + bounds.high) * tokens.advantage
    loss = -weight * torch.minimum(free, held)
    return PolicyTerms(loss, ratio.detach(), weight, (held < free).detach(), prox)


def kl_full(logps: Tensor, reference: Tensor) -> Tensor:
    """KL(policy || reference) per token, exact, from [N, V] log-probabilities of the whole vocabulary."""
    return (logps.exp() * (logps - reference)).sum(dim=-1)


def kl_k3(logp: Tensor, reference: Tensor) -> Tensor:
    """KL(policy || reference) per token estimated from the sampled token alone, [N]; unbiased, never negative."""
    far = (reference - logp).clamp(-_FAR, _FAR)
    return far.exp() - far - 1.0


def total(policy: Tensor, kl: Tensor | None, tokens: Tokens) -> Tensor:
    """The micro-batch's part of the step's loss; the parts of a step add up to it."""
    per_token = policy if kl is None else policy + tokens.beta * kl
    return (tokens.scale * per_token).sum()


def effective_share(weight_sum: float, weight_square_sum: float, count: int) -> float:
    """Effective sample size of the off-policy weights as a share of `count`: 1 when all are equal."""
    return weight_sum**2 / (count * weight_square_sum) if count and weight_square_sum else 0.0


def _exp(difference: Tensor) -> Tensor:
    return difference.clamp(-_FAR, _FAR).exp()
