"""Choosing one token per row of logits, vectorised in numpy.

Always holds: the choice is a function of (logits, parameters, seed, position) of its own row only, so a request that runs with
a seed samples the same tokens whatever it is batched with; and the log-probability is that of the softmax under the
temperature alone, as SGLang reports it: top-p, top-k and min-p restrict the choice, not the number.

The noise is Gumbel noise (argmax of logits/T + g samples the softmax exactly), g a hash of (seed, position, token id).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1


class Params(Protocol):
    """What the sampler reads of a request.  ``top_k`` of -1 and ``top_p`` of 1 are off; ``temperature`` 0 is greedy."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float


class Sampled(NamedTuple):
    """One entry per row."""

    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float32]


class Sampler:
    """Holds the per-vocabulary constants."""

    def __init__(self, vocab_size: int) -> None:
        self._column = np.arange(vocab_size, dtype=np.uint32) * np.uint32(0x9E3779B1)

    def sample(
        self, logits: NDArray[np.float32], params: Sequence[Params], seeds: Sequence[int], positions: Sequence[int]
    ) -> Sampled:
        """Sample from ``logits`` [rows, vocabulary], which may be overwritten.

        ``positions`` are those that the new tokens will have in their sequences.
        """
        rows = np.arange(len(params))
        temperature = np.array([p.temperature for p in params], np.float32)
        greedy = temperature == 0
        if (temperature != 1).any():
            logits /= np.where(greedy, np.float32(1), temperature)[:, None]
        top = logits.max(axis=1)
        lse = np.log(np.exp(logits - top[:, None]).sum(axis=1)) + top
        if greedy.all():
            tokens = logits.argmax(axis=1)
            return Sampled(tokens, logits[rows, tokens] - lse)
        scores = self.gumbel(seeds, positions)
        scores[greedy] = 0
        scores += logits
        for row, p in enumerate(params):
            if (p.top_k > 0 or p.top_p < 1 or p.min_p > 0) and not greedy[row]:
                scores[row, excluded(logits[row] - lse[row], p)] = -np.inf
        tokens = scores.argmax(axis=1)
        return Sampled(tokens, logits[rows, tokens] - lse)

    def gumbel(self, seeds: Sequence[int], positions: Sequence[int]) -> NDArray[np.float32]:
        """[rows, vocabulary] of standard Gumbel noise."""
        keys = np.array([_mix(seed, position) for seed, position in zip(seeds, positions, strict=True)], np.uint64)
        low, high = keys.astype(np.uint32)[:, None], (keys >> np.uint64(32)).astype(np.uint32)[:, None]
        h = self._column ^ low
        spare = np.empty_like(h)
        for multiplier, shift in ((0x7FEB352D, 15), (0x846CA68B, 16), (0x9E3779B1, 15)):
            h *= np.uint32(multiplier)
            np.right_shift(h, np.uint32(shift), out=spare)
            h ^= spare
            h += high
        h ^= np.right_shift(h, np.uint32(16), out=spare)
        # 24 bits, centred: 0 < u < 1 holds in float32, so both logarithms are finite.
        u: NDArray[np.float32] = np.right_shift(h, np.uint32(8), out=h).astype(np.float32)
        u += np.float32(0.5)
        u *= np.float32(2**-24)
        np.minimum(u, np.float32(1 - 2**-24), out=u)
        np.log(u, out=u)
        np.negative(u, out=u)
        np.log(u, out=u)
        np.negative(u, out=u)
        return u


def excluded(logprobs: NDArray[np.float32], params: Params) -> NDArray[np.int64]:
    """Ids that top-k, top-p (of the whole distribution) or min-p take out of the choice; the likeliest always stays."""
    order = np.argsort(-logprobs, kind="stable")
    p = np.exp(logprobs[order].astype(np.float64))
    out = np.cumsum(p) - p > params.top_p
    if params.top_k > 0:
        out[params.top_k :] = True
    out |= p < p[0] * params.min_p
    out[0] = False
    return order[out]


def _mix(seed: int, position: int) -> int:
    """64 well-mixed bits of (seed, position): splitmix64's finaliser."""
    z = (seed * 0x9E3779B97F4A7C15 + position * 0xD1342543DE82EF95 + 0x2545F4914F6CDD1D) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
