"""Log-probabilities of given tokens, chunked over tokens so that logits are never all in memory at once.

Always holds: results are float32 and equal ``log_softmax(logits / temperature)`` at the targets, whatever the chunk
size; the backward pass recomputes each chunk's logits instead of keeping them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class TokenLogprobs(NamedTuple):
    """``logprobs`` [N] float32 of the targets; ``entropy`` [N] float32 of the same distributions, in nats."""

    logprobs: Tensor
    entropy: Tensor


def token_logprobs(
    hidden: Tensor, output_weight: Tensor, targets: Tensor, *, temperature: Tensor | float = 1.0, chunk: int = 1024
) -> TokenLogprobs:
    """Score ``targets`` [N] by ``hidden`` [N, D] (the states that predict them) and ``output_weight`` [V, D].

    ``temperature``: one number, or [N], above 0; it divides the logits, as the sampler did, and gets no gradient.  Both
    results carry gradients; one that the loss does not use costs nothing backwards.
    """
    scale = torch.as_tensor(temperature, dtype=torch.float32, device=hidden.device).expand(targets.numel())
    scored = _Score.apply(hidden, output_weight, targets, 1.0 / scale, chunk)  # type: ignore[no-untyped-call]
    return TokenLogprobs(*scored)


class _Score(torch.autograd.Function):
    # With x the scaled logits, p = softmax(x), H its entropy:
    #   d logp[target] / dx = onehot(target) - p        dH / dx = -p * (log p + H)
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, scale: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        count = targets.numel()
        lse, chosen, entropy = (torch.empty(count, dtype=torch.float32, device=hidden.device) for _ in range(3))
        for part in _parts(count, chunk):
            x = _scaled_logits(hidden[part], weight, scale[part])
            torch.gather(x, 1, targets[part, None], out=chosen[part, None])
            top = x.max(dim=1, keepdim=True).values
            e = torch.exp(x - top)
            total = e.sum(dim=1)
            lse[part] = total.log() + top[:, 0]
            entropy[part] = lse[part] - e.mul_(x).sum(dim=1) / total
        ctx.save_for_backward(hidden, weight, targets, scale, lse, entropy)
        ctx.chunk = chunk
        ctx.set_materialize_grads(False)
        return chosen - lse, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grad_logp, grad_entropy = grads
        hidden, weight, targets, scale, lse, entropy = ctx.saved_tensors
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight)
        for part in _parts(targets.numel(), ctx.chunk):
            logp = _scaled_logits(hidden[part], weight, scale[part]).sub_(lse[part, None])
            p = torch.exp(logp)
            # The pull on every logit through p; the target's own follows below.
            pull = torch.zeros_like(lse[part])[:, None] if grad_logp is None else -grad_logp[part, None]
            if grad_entropy is not None:
                pull = pull - grad_entropy[part, None] * (logp + entropy[part, None])
            grad = p.mul_(pull)
            if grad_logp is not None:
                grad.scatter_add_(1, targets[part, None], grad_logp[part, None])
            grad = grad.mul_(scale[part, None]).to(hidden.dtype)
            torch.mm(grad, weight, out=grad_hidden[part])
            grad_weight.addmm_(grad.t(), hidden[part])
        return grad_hidden, grad_weight, None, None, None


def _parts(count: int, chunk: int) -> list[slice]:
    return [slice(start, min(start + chunk, count)) for start in range(0, count, chunk)]


def _scaled_logits(hidden: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    return torch.mm(hidden, weight.t()).float().mul_(scale[:, None])
