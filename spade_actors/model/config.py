"""Shape of a Qwen3 model, and its Hugging Face ``config.json``.  Imports no torch.

Always holds: ``ModelConfig.from_hf(c.to_hf()) == c``, and ``weight_shapes`` names exactly the tensors a weight file of
this shape holds, as Hugging Face's ``Qwen3ForCausalLM`` names them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONFIG_FILE = "config.json"


class ModelFormatError(ValueError):
    """A model folder that cannot be used: the message names the file, what was found and what was expected."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes are in elements; the defaults are the micro profile's (951,680 parameters)."""

    vocab_size: int = 1280
    hidden_size: int = 128
    intermediate_size: int = 384
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 32
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = True
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"):
            if getattr(self, name) < 1:
                raise ModelFormatError(f"{name} = {getattr(self, name)}: expected a positive integer")
        if self.num_key_value_heads < 1 or self.num_attention_heads % self.num_key_value_heads:
            raise ModelFormatError(
                f"num_key_value_heads = {self.num_key_value_heads}: expected a divisor of num_attention_heads = "
                f"{self.num_attention_heads}"
            )
        if self.head_dim < 2 or self.head_dim % 2:
            raise ModelFormatError(f"head_dim = {self.head_dim}: expected an even number of at least 2")

    @classmethod
    def from_hf(cls, raw: dict[str, Any]) -> ModelConfig:
        """Read a Hugging Face config mapping.

        Raises ``ModelFormatError`` for another architecture or for features this code does not compute (attention bias,
        sliding windows, scaled rotary embeddings).
        """
        if raw.get("model_type") != "qwen3":
            raise ModelFormatError(f"model_type = {raw.get('model_type')!r}: expected 'qwen3'")
        if raw.get("attention_bias"):
            raise ModelFormatError("attention_bias = true: expected false")
        if raw.get("use_sliding_window"):
            raise ModelFormatError("use_sliding_window = true: expected false")
        if raw.get("hidden_act", "silu") != "silu":
            raise ModelFormatError(f"hidden_act = {raw['hidden_act']!r}: expected 'silu'")
        # transformers 5 moved the rotary settings into one mapping; older files have two top-level keys.
        rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
        if rope.get("rope_type", rope.get("type", "default")) != "default":
            raise ModelFormatError(f"rotary embedding {rope!r}: expected the default type, without scaling")
        eos = raw.get("eos_token_id")
        heads = int(_need(raw, "num_attention_heads"))
        hidden = int(_need(raw, "hidden_size"))
        return cls(
            vocab_size=int(_need(raw, "vocab_size")),
            hidden_size=hidden,
            intermediate_size=int(_need(raw, "intermediate_size")),
            num_hidden_layers=int(_need(raw, "num_hidden_layers")),
            num_attention_heads=heads,
            num_key_value_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=int(raw.get("head_dim") or hidden // heads),
            rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
            rope_theta=float(raw.get("rope_theta") or rope.get("rope_theta") or 10_000.0),
            max_position_embeddings=int(raw.get("max_position_embeddings", 2048)),
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
            bos_token_id=raw.get("bos_token_id"),
            eos_token_id=eos[0] if isinstance(eos, list) else eos,
            pad_token_id=raw.get("pad_token_id"),
        )

    def to_hf(self, *, dtype: str = "bfloat16") -> dict[str, Any]:
        """The config mapping that transformers (4 and 5) and SGLang read."""
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": self.eos_token_id,
            "pad_token_id": self.pad_token_id,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "initializer_range": 0.02,
            "intermediate_size": self.intermediate_size,
            "max_position_embeddings": self.max_position_embeddings,
            "max_window_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_hidden_layers": self.num_hidden_layers,
            "num_key_value_heads": self.num_key_value_heads,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_scaling": None,
            "rope_theta": self.rope_theta,
            "sliding_window": None,
            "tie_word_embeddings": self.tie_word_embeddings,
            "torch_dtype": dtype,
            "use_cache": True,
            "use_sliding_window": False,
            "vocab_size": self.vocab_size,
        }

    @classmethod
    def read(cls, folder: Path | str) -> ModelConfig:
        """Read ``folder/config.json``; raises ``ModelFormatError`` when it is missing or not a Qwen3 config."""
        path = Path(folder) / CONFIG_FILE
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ModelFormatError(f"{path}: no such file; expected a Hugging Face model folder") from None
        except ValueError as error:
            raise ModelFormatError(f"{path}: not valid JSON ({error})") from None
        if not isinstance(raw, dict):
            raise ModelFormatError(f"{path}: expected a JSON object")
        try:
            return cls.from_hf(raw)
        except ModelFormatError as error:
            raise ModelFormatError(f"{path}: {error}") from None

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of the weight file by its Hugging Face name, in layer order."""
        d, head = self.hidden_size, self.head_dim
        q, kv, mlp = self.num_attention_heads * head, self.num_key_value_heads * head, self.intermediate_size
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, d)}
        for i in range(self.num_hidden_layers):
            layer = f"model.layers.{i}."
            shapes |= {
                layer + "input_layernorm.weight": (d,),
                layer + "self_attn.q_proj.weight": (q, d),
                layer + "self_attn.k_proj.weight": (kv, d),
                layer + "self_attn.v_proj.weight": (kv, d),
                layer + "self_attn.o_proj.weight": (d, q),
                layer + "self_attn.q_norm.weight": (head,),
                layer + "self_attn.k_norm.weight": (head,),
                layer + "post_attention_layernorm.weight": (d,),
                layer + "mlp.gate_proj.weight": (mlp, d),
                layer + "mlp.up_proj.weight": (mlp, d),
                layer + "mlp.down_proj.weight": (d, mlp),
            }
        shapes["model.norm.weight"] = (d,)
        if not self.tie_word_embeddings:
            shapes["lm_head.weight"] = (self.vocab_size, d)
        return shapes

    def parameter_count(self) -> int:
        """Number of parameters, tied embeddings counted once."""
        total = 0
        for shape in self.weight_shapes().values():
            size = 1
            for extent in shape:
                size *= extent
            total += size
        return total


def _need(raw: dict[str, Any], key: str) -> Any:
    if raw.get(key) is None:
        raise ModelFormatError(f"{key} is missing")
    return raw[key]
