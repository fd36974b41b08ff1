"""Batched sampling for bootstrap's own measurements; the runs use the embedded generator instead.

What always holds: each row's tokens are drawn from the model's distribution at temperature 1 (or greedily), given
exactly that row's ids; rows of different length do not influence each other.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from spade_actors.model.qwen3 import Qwen3, rope_tables, rotate


class _Cache:
    """Keys and values per layer, [rows, kv heads, slots, head_dim]; slot i of a row holds its token i."""

    def __init__(self, model: Qwen3, rows: int, slots: int) -> None:
        config = model.config
        shape = (config.num_hidden_layers, rows, config.num_key_value_heads, slots, config.head_dim)
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)

    def keep(self, rows: Tensor) -> None:
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]


def _forward(model: Qwen3, ids: Tensor, positions: Tensor, cache: _Cache) -> Tensor:
    """Hidden states [rows, tokens, hidden] of `ids` at `positions`, both [rows, tokens]; writes the cache."""
    config = model.config
    x = model.model.embed_tokens(ids)
    cos, sin = rope_tables(config, positions, x.dtype)
    used = int(positions.max()) + 1
    mask = torch.arange(used) <= positions[..., None]
    where = positions[:, None, :, None].expand(-1, config.num_key_value_heads, -1, config.head_dim)
    groups = config.num_attention_heads // config.num_key_value_heads
    layers: list[Any] = list(model.model.layers)
    for i, layer in enumerate(layers):
        attention, h = layer.self_attn, layer.input_layernorm(x)
        lead = h.shape[:-1]
        q = rotate(attention.q_norm(attention.q_proj(h).view(*lead, -1, config.head_dim)), cos, sin).transpose(1, 2)
        k = rotate(attention.k_norm(attention.k_proj(h).view(*lead, -1, config.head_dim)), cos, sin).transpose(1, 2)
        v = attention.v_proj(h).view(*lead, -1, config.head_dim).transpose(1, 2)
        cache.keys[i].scatter_(2, where, k)
        cache.values[i].scatter_(2, where, v)
        keys = cache.keys[i, :, :, :used].repeat_interleave(groups, 1)
        values = cache.values[i, :, :, :used].repeat_interleave(groups, 1)
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask[:, None])
        x = x + attention.o_proj(mixed.transpose(1, 2).reshape(*lead, -1))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    out: Tensor = model.model.norm(x)
    return out


@torch.no_grad()
def sample(
    model: Qwen3,
    prompts: Sequence[Sequence[int]],
    most: int,
    stop: int,
    draw: torch.Generator,
    greedy: bool = False,
    batch: int = 128,
) -> list[list[int]]:
    """Up to `most` tokens per prompt, the stop token included when it was drawn."""
    out: list[list[int]] = []
    for start in range(0, len(prompts), batch):
        out += _sample(model, prompts[start : start + batch], most, stop, draw, greedy)
    return out


def _sample(
    model: Qwen3, prompts: Sequence[Sequence[int]], most: int, stop: int, draw: torch.Generator, greedy: bool
) -> list[list[int]]:
    lengths = torch.tensor([len(p) for p in prompts])
    width = int(lengths.max())
    cache = _Cache(model, len(prompts), width + most)
    ids = torch.zeros(len(prompts), width, dtype=torch.int64)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt)
    states = _forward(model, ids, torch.arange(width).expand(len(prompts), -1), cache)
    last = states[torch.arange(len(prompts)), lengths - 1]
    out: list[list[int]] = [[] for _ in prompts]
    alive = torch.arange(len(prompts))
    at = lengths.clone()
    for _ in range(most):
        logits = F.linear(last, model.output_weight)
        chosen = logits.argmax(-1) if greedy else torch.multinomial(logits.softmax(-1), 1, generator=draw)[:, 0]
        for row, token in zip(alive.tolist(), chosen.tolist(), strict=True):
            out[row].append(token)
        going = (chosen != stop).nonzero()[:, 0]
        if len(going) == 0:
            break
        if len(going) < len(alive):
            alive, at, chosen = alive[going], at[going], chosen[going]
            cache.keep(going)
        last = _forward(model, chosen[:, None], at[:, None], cache)[:, 0]
        at = at + 1
    return out
