"""A small lively model, and requests over it, for the tests of the embedded generator."""

import numpy as np
import torch

from spade_actors.generator.embedded.engine import Request
from spade_actors.model.config import ModelConfig
from spade_actors.model.qwen3 import Qwen3

CONFIG = ModelConfig(vocab_size=211, hidden_size=64, intermediate_size=96, num_hidden_layers=2, head_dim=16)


def lively(seed):
    """Weights large enough for attention and position to matter."""
    model = Qwen3(CONFIG, seed=seed)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw) * 0.12)
    return model


def prompt(length, seed=0):
    return np.random.default_rng(seed).integers(0, CONFIG.vocab_size, length).astype(np.int32)


def request(tokens, new=10, *, name="r", **options):
    return Request(name, tokens, new, **({"seed": 7, "temperature": 0.0} | options))


def run(engine, *requests):
    """Submit, run to the end, and check that every request finished exactly once."""
    for one in requests:
        engine.submit(one)
    finished = []
    while engine.busy:
        finished += engine.step()
    assert sorted(map(id, finished)) == sorted(map(id, requests))
    return requests[0] if len(requests) == 1 else requests


def full_logprobs(model, one, temperature=1.0):
    """The training model's log-probabilities of every output position of a finished request, [tokens, vocabulary]."""
    ids = torch.tensor([*one.prompt.tolist(), *one.output])
    with torch.no_grad():
        logits = model(ids[None])[0, len(one.prompt) - 1 : -1]
    return (logits / temperature).log_softmax(-1)
