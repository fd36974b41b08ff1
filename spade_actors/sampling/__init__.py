"""Sampling from an SGLang server, the real one or the embedded one: HTTP client and tokenizer.  Imports no torch."""

from spade_actors.sampling.client import (
    GenerateClient,
    Generation,
    Load,
    ModelInfo,
    SamplingParams,
    Span,
    UpdateResult,
)
from spade_actors.sampling.errors import DeadlineExceeded, SamplingError, ServerRefused, ServerUnavailable

__all__ = [
    "DeadlineExceeded",
    "GenerateClient",
    "Generation",
    "Load",
    "ModelInfo",
    "SamplingError",
    "SamplingParams",
    "ServerRefused",
    "ServerUnavailable",
    "Span",
    "UpdateResult",
]
