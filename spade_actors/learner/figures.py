"""What a learner step reports of itself: sums over its tokens and minibatches, turned into plain numbers at the end.

Always holds: every number is finite; a figure nothing was counted for is left out.
"""

import math
from collections import defaultdict

import torch
from torch import Tensor

from spade_actors.learner.batch import AGENT, DESIGNER
from spade_actors.learner.loss import PolicyTerms, Tokens, effective_share, kl_k3


class Figures:
    """One step's sums. Per role: policy loss, KL and entropy as means over the role's tokens, without role weights."""

    def __init__(self) -> None:
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._ratio_max = 0.0
        self._count = {AGENT: 0, DESIGNER: 0}
        self._losses: list[float] = []
        self._norms: list[float] = []
        self.skipped = 0

    @torch.no_grad()
    def tokens(self, designer: Tensor, terms: PolicyTerms, tokens: Tokens, entropy: Tensor, kl: Tensor | None) -> None:
        """Adds a micro-batch; `designer` [N] bool says whose token it is."""
        for role, chosen in ((AGENT, ~designer), (DESIGNER, designer)):
            self._count[role] += int(chosen.sum())
            self._add(f"policy_{role}", terms.loss[chosen])
            self._add(f"entropy_{role}", entropy[chosen])
            if kl is not None:
                self._add(f"kl_{role}", kl[chosen])
        self._add("ratio", terms.ratio)
        self._add("clipped", terms.clipped.float())
        self._add("weight", terms.weight)
        self._add("weight_square", terms.weight**2)
        self._add("drift", kl_k3(tokens.recorded, terms.prox))
        self._ratio_max = max(self._ratio_max, float(terms.ratio.max()))

    def minibatch(self, loss: float, norm: float, finite: bool) -> None:
        """Ends a minibatch: one optimizer step, or none when the gradient was not finite."""
        if finite:
            self._losses.append(loss)
            self._norms.append(norm)
        else:
            self.skipped += 1

    def metrics(self) -> dict[str, float]:
        """Names and values; `ess` is a share, `k3_sampler_trainer` is in nats per token."""
        everything = sum(self._count.values())
        out = {
            "loss": _mean(self._losses),
            "grad_norm": _mean(self._norms),
            "skipped_minibatches": float(self.skipped),
            "trained_tokens": float(everything),
        }
        for role, count in self._count.items():
            for name in ("policy", "kl", "entropy"):
                if count and f"{name}_{role}" in self._sums:
                    out[f"{name}_{role}"] = self._sums[f"{name}_{role}"] / count
        if everything:
            out["ratio_max"] = self._ratio_max
            out["ratio_mean"] = self._sums["ratio"] / everything
            out["clipped_share"] = self._sums["clipped"] / everything
            out["weight_mean"] = self._sums["weight"] / everything
            out["ess"] = effective_share(self._sums["weight"], self._sums["weight_square"], everything)
            out["k3_sampler_trainer"] = self._sums["drift"] / everything
        return {name: value for name, value in out.items() if math.isfinite(value)}

    def _add(self, name: str, values: Tensor) -> None:
        self._sums[name] += float(values.sum())


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
