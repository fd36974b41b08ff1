"""Deterministic tiny models and samples for the learner's tests."""

import numpy as np
import torch

from spade_actors.learner.trainer import Sample
from spade_actors.model.config import ModelConfig
from spade_actors.model.qwen3 import Qwen3

TINY = ModelConfig(
    vocab_size=40,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
)


def model(seed: int = 3) -> Qwen3:
    """A tiny model whose outputs are far from uniform."""
    made = Qwen3(TINY, seed=seed)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8.0)
    return made


def logprobs_of(net: Qwen3, tokens: np.ndarray, temperature: float) -> np.ndarray:
    """[L] log-probabilities of each token given the ones before; 0 for the first."""
    with torch.no_grad():
        logits = net(torch.from_numpy(tokens)[None])[0] / temperature
        logps = torch.log_softmax(logits, -1)
    out = np.zeros(len(tokens), np.float32)
    for i in range(1, len(tokens)):
        out[i] = float(logps[i - 1, tokens[i]])
    return out


def samples(net: Qwen3, count: int, *, seed: int = 0, noise: float = 0.0) -> list[Sample]:
    """Random sequences, every fourth a designer's, recorded by `net` with `noise` added."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        designer = i % 4 == 3
        length = int(rng.integers(8, 30))
        tokens = rng.integers(0, TINY.vocab_size, length)
        mask = np.zeros(length, bool)
        if designer:
            mask[length // 2 :] = True
        else:
            mask[rng.integers(1, length, 4)] = True
        temperature = float(rng.choice([0.7, 1.0]))
        recorded = logprobs_of(net, tokens, temperature) + rng.normal(0, noise, length).astype(np.float32)
        made.append(
            Sample(
                id=f"s{i}",
                role="designer" if designer else "agent",
                advantage=float(rng.normal()),
                temperature=temperature,
                tokens=tokens.astype(np.int64),
                mask=mask,
                logprobs=np.where(mask, recorded, 0.0).astype(np.float32),
            )
        )
    return made
