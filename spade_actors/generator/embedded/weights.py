"""The engine's weights: projections fused and transposed for decoding, norms folded into the matrices behind them.

Always holds: tensors are allocated once and overwritten in place by ``load``, and a failed load changes none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from spade_actors.model.config import ModelConfig
from spade_actors.model.files import read_weights


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer, float32.  Matrices are [inputs, outputs]."""

    qkv: Tensor
    qk_norm: Tensor  # [heads + kv heads, head_dim]
    out: Tensor
    gate_up: Tensor
    down: Tensor


class Weights:
    """All weights of one model, float32 (faster than bfloat16 on most CPUs at these sizes)."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        d, head, mlp = config.hidden_size, config.head_dim, config.intermediate_size
        heads, kv = config.num_attention_heads, config.num_key_value_heads
        self.embedding = torch.zeros(config.vocab_size, d)
        self.head = torch.zeros(d, config.vocab_size)
        self.layers = [
            LayerWeights(
                qkv=torch.zeros(d, (heads + 2 * kv) * head),
                qk_norm=torch.zeros(heads + kv, head),
                out=torch.zeros(heads * head, d),
                gate_up=torch.zeros(d, 2 * mlp),
                down=torch.zeros(mlp, d),
            )
            for _ in range(config.num_hidden_layers)
        ]

    def load(self, path: Path | str) -> None:
        """Read a model folder or safetensors file of the same shape; raises ``ModelFormatError``."""
        raw = read_weights(path, self.config)
        config = self.config
        self.embedding.copy_(raw["model.embed_tokens.weight"])
        output = raw["model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"]
        self.head.copy_((output * raw["model.norm.weight"]).t())
        for i, layer in enumerate(self.layers):
            part = {
                name.removeprefix(f"model.layers.{i}."): value
                for name, value in raw.items()
                if name.startswith(f"model.layers.{i}.")
            }
            qkv = torch.cat([part[f"self_attn.{name}_proj.weight"] for name in "qkv"])
            layer.qkv.copy_((qkv * part["input_layernorm.weight"]).t())
            layer.qk_norm[: config.num_attention_heads] = part["self_attn.q_norm.weight"]
            layer.qk_norm[config.num_attention_heads :] = part["self_attn.k_norm.weight"]
            layer.out.copy_(part["self_attn.o_proj.weight"].t())
            gate_up = torch.cat((part["mlp.gate_proj.weight"], part["mlp.up_proj.weight"]))
            layer.gate_up.copy_((gate_up * part["post_attention_layernorm.weight"]).t())
            layer.down.copy_(part["mlp.down_proj.weight"].t())
