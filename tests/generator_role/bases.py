"""A tiny model with the micro tokenizer, quick to load and to sample from."""

from importlib import resources
from pathlib import Path

import torch

from spade_actors.model import files
from spade_actors.model.config import ModelConfig
from spade_actors.model.qwen3 import Qwen3
from spade_actors.sampling.tokenizer import Tokenizer

TOKENIZER = Path(str(resources.files("spade_actors"))) / "micro" / "assets" / "model"


def base_model(folder: Path, *, seed: int = 5) -> Path:
    """Writes the folder. It says random tokens, and ends its answer with about every third."""
    tokenizer = Tokenizer(TOKENIZER)
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.token_id("<|im_end|>"),
    )
    net = Qwen3(config, seed=seed)
    with torch.no_grad():
        # Dimension 0 is the same for every token, so that after the last norm it is about sqrt(32): a bias to write into.
        net.model.embed_tokens.weight[:, 0] = 1.0
        net.lm_head.weight[:, 0] = 0.0
        net.lm_head.weight[config.eos_token_id, 0] = 6.5 / 32**0.5
    companions = [TOKENIZER / name for name in ("tokenizer.json", "tokenizer_config.json")]
    return files.save(net, folder, extra=companions)
