"""Warm-up training of the micro model from scratch.

What always holds: batch n of a seed holds the same documents on every machine; the run ends after a number of tokens
(not seconds), so that the same recipe gives the same model up to float noise. Matrices inside the layers are trained
with Muon, embeddings and norms with AdamW; both rates warm up over 30 steps and fall linearly to 5 %.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import torch
import torch.nn.functional as F

from spade_actors.micro.documents import draw_design, draw_play
from spade_actors.micro.drills import draw_drill
from spade_actors.micro.encode import Encoded, encode
from spade_actors.model.packing import Packing
from spade_actors.model.qwen3 import Qwen3
from spade_actors.prompts.chat import Chat


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the outcome besides the code."""

    tokens: int = 3_000_000
    seed: int = 1
    designs: int = 6
    plays: int = 22
    drills: int = 5
    muon_rate: float = 0.02
    muon_momentum: float = 0.95
    adam_rate: float = 3e-3
    warm_steps: int = 30
    final_share: float = 0.05
    clip: float = 1.0

    def as_dict(self) -> dict[str, Any]:
        """For micro.json."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Progress:
    """Told after every step. `loss` is the weighted mean in nats per token."""

    step: int
    tokens: int
    of_tokens: int
    loss: float


def rate(done: float, step: int, recipe: Recipe) -> float:
    """Share of the full learning rate at `done` (0 to 1 of the tokens)."""
    return min(1.0, (step + 1) / recipe.warm_steps) * (1.0 - (1.0 - recipe.final_share) * min(1.0, done))


def batch(rng: Random, chat: Chat, recipe: Recipe) -> list[Encoded]:
    """The next documents."""
    drawn = [draw_design(rng) for _ in range(recipe.designs)]
    drawn += [draw_play(rng) for _ in range(recipe.plays)]
    drawn += [draw_drill(rng) for _ in range(recipe.drills)]
    return [encode(document, chat) for document in drawn]


def loss_of(model: Qwen3, documents: list[Encoded]) -> torch.Tensor:
    """Weighted mean negative log-likelihood; a document's first token is not predicted."""
    packing = Packing.of([len(d.ids) for d in documents])
    ids = torch.tensor([token for d in documents for token in d.ids])
    weights = torch.tensor([w for d in documents for w in (0.0, *d.weights[1:])])
    hidden = model.hidden(ids, packing=packing)
    wanted = (weights > 0).nonzero()[:, 0]
    logits = F.linear(hidden[wanted - 1], model.output_weight)
    return (F.cross_entropy(logits, ids[wanted], reduction="none") * weights[wanted]).sum() / weights.sum()


def train(model: Qwen3, chat: Chat, recipe: Recipe, report: Callable[[Progress], None]) -> None:
    """Trains in place until `recipe.tokens` tokens were seen."""
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "layers" in name]
    others = [p for name, p in model.named_parameters() if not (p.dim() == 2 and "layers" in name)]
    muon = torch.optim.Muon(matrices, lr=recipe.muon_rate, momentum=recipe.muon_momentum, weight_decay=0.0)
    adam = torch.optim.AdamW(others, lr=recipe.adam_rate, betas=(0.9, 0.95), weight_decay=0.0)
    rng, tokens, step = Random(recipe.seed), 0, 0
    while tokens < recipe.tokens:
        share = rate(tokens / recipe.tokens, step, recipe)
        for optimizer, full in ((muon, recipe.muon_rate), (adam, recipe.adam_rate)):
            for group in optimizer.param_groups:
                group["lr"] = full * share
        documents = batch(rng, chat, recipe)
        loss = loss_of(model, documents)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        for optimizer in (muon, adam):
            optimizer.step()  # type: ignore[no-untyped-call]
            optimizer.zero_grad(set_to_none=True)
        tokens += sum(len(d.ids) for d in documents)
        step += 1
        report(Progress(step, tokens, recipe.tokens, float(loss.detach())))
