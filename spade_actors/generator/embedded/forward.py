"""One forward step over a ragged batch: every running request contributes its next tokens, one when decoding, more when its
prompt is being read.

Projections run over one flat row of tokens.  Attention runs in groups of requests (``plan``) against the static cache.

Always holds: a step writes only the cache rows of its own requests, and a row's result does not depend on which other
requests are in the step (beyond float rounding).
"""

from __future__ import annotations

import math
import mmap
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from spade_actors.generator.embedded.plan import Group, Ints, arrange
from spade_actors.generator.embedded.weights import Weights
from spade_actors.model.config import ModelConfig
from spade_actors.model.qwen3 import rope_tables


class Cache:
    """Static keys and values, [layer, key or value, slot, kv head, position, head_dim], zero where never written.

    Zero matters: masked positions get weight 0, and 0 times a stray NaN would not be 0.
    """

    def __init__(self, config: ModelConfig, slots: int, max_len: int) -> None:
        shape = (config.num_hidden_layers, 2, slots, config.num_key_value_heads, max_len, config.head_dim)
        # Anonymous memory is zero and takes no room until it is written; small pages, since a short sequence in every slot
        # would otherwise make the whole cache resident.
        memory = mmap.mmap(-1, math.prod(shape) * 4)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        self.data = torch.frombuffer(memory, dtype=torch.float32).view(shape)

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` positions of one slot to another."""
        self.data[:, :, target, :, :length] = self.data[:, :, source, :, :length]


class _Span(NamedTuple):
    """What attention needs of one group, the same in every layer."""

    slots: Tensor  # [requests]
    low: int
    high: int  # read in place over slots [low, high) if high > low, else gathered
    length: int
    mask: Tensor  # additive, [requests or high - low, 1, 1 or query heads per kv head * width, length]
    flat: slice  # the group's tokens in the flat row
    rows: Tensor | None  # in place with unused slots between: each request's row, else None
    queries: Tensor | None  # reading a prompt: [requests, width] into the flat row, else None
    real: Tensor | None  # which of the requests * width queries are tokens; None: all


class Forward:
    """Runs steps for one model and its cache of ``slots`` times ``max_len`` positions."""

    def __init__(self, weights: Weights, slots: int, max_len: int) -> None:
        self.weights, self.config = weights, weights.config
        self.cache = Cache(self.config, slots, max_len)
        self._max_len = max_len
        cos, sin = rope_tables(self.config, torch.arange(max_len), torch.float32)
        half = self.config.head_dim // 2
        # Rotating halves is a roll: [-b, a] = roll([a, b]) * [-1 ..., 1 ...].
        self._cos, self._sin = cos, torch.cat((-sin[:, :half], sin[:, half:]), dim=1)

    @torch.inference_mode()
    def step(self, table: NDArray[np.int32], slots: Ints, starts: Ints, counts: Ints) -> NDArray[np.float32]:
        """Feed ``table[slots[i], starts[i] : starts[i] + counts[i]]`` for every request i.

        Returns the logits after each request's last token, [requests, vocabulary], in the caller's order.
        """
        config, weights = self.config, self.weights
        heads, kv, head, eps = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
            config.rms_norm_eps,
        )
        order, groups = arrange(slots, starts, counts)
        slots, starts, counts = slots[order], starts[order], counts[order]
        ends = np.cumsum(counts)
        offsets = ends - counts
        count = int(ends[-1])
        positions = np.arange(count) + np.repeat(starts - offsets, counts)
        owner = np.repeat(slots, counts)
        spans = [self._span(group, slots, starts, counts, offsets) for group in groups]
        at = torch.from_numpy(positions)
        cos, sin = self._cos[at].unsqueeze(1), self._sin[at].unsqueeze(1)
        # Cache rows (slot, kv head, position) of every new token.
        row = (owner * kv)[:, None] + np.arange(kv)
        target = torch.from_numpy((row * self._max_len + positions[:, None]).reshape(-1))

        x = weights.embedding[torch.from_numpy(table[owner, positions].astype(np.int64))]
        for i, layer in enumerate(weights.layers):
            keys, values = self.cache.data[i]
            qkv = torch.mm(_rms(x, eps), layer.qkv)
            qk = _rms(qkv[:, : (heads + kv) * head].view(count, heads + kv, head), eps) * layer.qk_norm
            qk = torch.addcmul(qk * cos, qk.roll(head // 2, -1), sin)
            keys.view(-1, head).index_copy_(0, target, qk[:, heads:].reshape(-1, head))
            values.view(-1, head).index_copy_(0, target, qkv[:, (heads + kv) * head :].reshape(-1, head))
            mixed = [self._attend(qk[:, :heads], keys, values, span) for span in spans]
            x = torch.addmm(x, mixed[0] if len(mixed) == 1 else torch.cat(mixed), layer.out)
            gate, up = torch.mm(_rms(x, eps), layer.gate_up).chunk(2, dim=1)
            x = torch.addmm(x, F.silu(gate).mul_(up), layer.down)

        last = np.empty_like(ends)
        last[order] = ends - 1
        logits: NDArray[np.float32] = torch.mm(_rms(x[torch.from_numpy(last)], eps), weights.head).numpy()
        return logits

    def _span(self, group: Group, slots: Ints, starts: Ints, counts: Ints, offsets: Ints) -> _Span:
        part = slice(group.first, group.last)
        own, begin, fed = slots[part], starts[part], counts[part]
        flat = slice(int(offsets[group.first]), int(offsets[group.last - 1] + counts[group.last - 1]))
        where = torch.from_numpy(own)
        if group.width == 1:
            rows = None
            if group.high - group.low > len(own):
                rows = torch.from_numpy(own - group.low)
                # The result of an unused slot is dropped, so it may look at anything.
                upto = np.full(group.high - group.low, group.length)
                upto[own - group.low] = begin
                begin = upto
            mask = _mask(begin.reshape(-1, 1, 1, 1), group.length)
            return _Span(where, group.low, group.high, group.length, mask, flat, rows, None, None)
        column = np.arange(group.width)
        padded = np.minimum(column, fed[:, None] - 1)
        repeat = self.config.num_attention_heads // self.config.num_key_value_heads
        mask = _mask(np.tile(begin[:, None] + padded, repeat)[:, None, :, None], group.length)
        real = column < fed[:, None]
        keep = None if real.all() else torch.from_numpy(np.flatnonzero(real))
        queries = torch.from_numpy(offsets[part, None] + padded)
        return _Span(where, 0, 0, group.length, mask, flat, None, queries, keep)

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, span: _Span) -> Tensor:
        """Mixed values of one group's tokens, [tokens, heads * head_dim], from ``q`` [all tokens, heads, head_dim]."""
        heads, kv, head = self.config.num_attention_heads, self.config.num_key_value_heads, self.config.head_dim
        repeat = heads // kv
        if span.high > span.low:
            k, v = keys[span.low : span.high, :, : span.length], values[span.low : span.high, :, : span.length]
        else:
            k = keys[:, :, : span.length].index_select(0, span.slots)
            v = values[:, :, : span.length].index_select(0, span.slots)
        # The query heads that share a kv head stand as rows of one query block.
        if span.queries is None:
            own = q[span.flat].reshape(-1, kv, repeat, head)
            if span.rows is not None:
                own = own.new_zeros(span.high - span.low, kv, repeat, head).index_copy_(0, span.rows, own)
            out = F.scaled_dot_product_attention(own, k, v, attn_mask=span.mask)
            return (out if span.rows is None else out[span.rows]).reshape(-1, heads * head)
        requests, width = span.queries.shape
        own = q[span.queries].view(requests, width, kv, repeat, head).permute(0, 2, 3, 1, 4)
        out = F.scaled_dot_product_attention(own.reshape(requests, kv, -1, head), k, v, attn_mask=span.mask)
        out = out.view(requests, kv, repeat, width, head).permute(0, 3, 1, 2, 4).reshape(-1, heads * head)
        return out if span.real is None else out[span.real]


def _mask(last: Ints, length: int) -> Tensor:
    """Additive mask that lets each query see cached positions up to and including ``last``."""
    return torch.from_numpy(np.where(np.arange(length) <= last, np.float32(0), np.float32(-np.inf)))


def _rms(x: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], None, eps)
