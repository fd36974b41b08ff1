"""Qwen3 as a plain torch module for training: no cache, no generation.

Always holds: parameter names, shapes and numbers are those of Hugging Face's ``Qwen3ForCausalLM``, so ``state_dict()``
is a weight file; and a hidden state depends only on its token and on earlier ones of the same document, so padding
at the right of a row never changes what stands left of it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spade_actors.model.config import ModelConfig
from spade_actors.model.packing import Packing


def rope_tables(config: ModelConfig, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary embedding, each [*positions.shape, head_dim], in the half-rotation layout."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device=positions.device) / config.head_dim
    angles = positions[..., None].float() * (1.0 / config.rope_theta**half)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn ``x`` [..., tokens, heads, head_dim] by tables [..., tokens, head_dim]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos.unsqueeze(-2) + torch.cat((-second, first), dim=-1) * sin.unsqueeze(-2)


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    """Grouped-query attention with normalised queries and keys."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
        )
        self.q_proj = nn.Linear(config.hidden_size, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, packing: Packing | None) -> Tensor:
        lead = x.shape[:-1]
        q = rotate(self.q_norm(self.q_proj(x).view(*lead, self.heads, self.head_dim)), cos, sin)
        k = rotate(self.k_norm(self.k_proj(x).view(*lead, self.kv_heads, self.head_dim)), cos, sin)
        v = self.v_proj(x).view(*lead, self.kv_heads, self.head_dim)
        if packing is None:
            mixed = self._causal(q, k, v)
        else:
            parts = [
                self._causal(q[index], k[index], v[index]).reshape(-1, self.heads, self.head_dim)
                for index in packing.rectangles
            ]
            mixed = torch.cat(parts)[packing.inverse]
        out: Tensor = self.o_proj(mixed.reshape(*lead, -1))
        return out

    def _causal(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[rows, tokens, heads, head_dim] -> the same shape; causal inside each row."""
        groups = self.heads // self.kv_heads
        if groups > 1:
            k, v = k.repeat_interleave(groups, dim=2), v.repeat_interleave(groups, dim=2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One decoder layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, packing: Packing | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, packing)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Decoder(nn.Module):
    """Embedding, layers and the last norm (Hugging Face's ``model.``)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class Qwen3(nn.Module):
    """The training model.  ``seed`` draws fresh weights (normal, standard deviation .02); norms start at 1."""

    def __init__(self, config: ModelConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0.0, 0.02, generator=draw)

    @property
    def output_weight(self) -> Tensor:
        """[vocabulary, hidden]: the embedding when tied."""
        return self.model.embed_tokens.weight if self.config.tie_word_embeddings else self.lm_head.weight

    def hidden(self, input_ids: Tensor, *, positions: Tensor | None = None, packing: Packing | None = None) -> Tensor:
        """Hidden states after the last norm.

        ``input_ids``: [B, T] right-padded (pads may be any valid id; their outputs mean nothing), or with ``packing``
        one row [N].  ``positions``: like ``input_ids``, by default counted from 0 in each row or document.
        Returns ``input_ids.shape + (hidden,)``.
        """
        if packing is not None and (input_ids.dim() != 1 or input_ids.numel() != packing.tokens):
            raise ValueError(f"input_ids {tuple(input_ids.shape)}: expected ({packing.tokens},) to match the packing")
        x = self.model.embed_tokens(input_ids)
        if positions is None:
            positions = packing.positions if packing else torch.arange(input_ids.shape[-1], device=input_ids.device)
        cos, sin = rope_tables(self.config, positions, x.dtype)
        for layer in self.model.layers:
            x = layer(x, cos, sin, packing)
        out: Tensor = self.model.norm(x)
        return out

    def forward(self, input_ids: Tensor, *, positions: Tensor | None = None, packing: Packing | None = None) -> Tensor:
        """Logits, ``input_ids.shape + (vocabulary,)``; arguments as for ``hidden``."""
        return F.linear(self.hidden(input_ids, positions=positions, packing=packing), self.output_weight)
