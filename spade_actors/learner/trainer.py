"""One learner step in torch: batch in, changed weights and figures out. Blocking; the actor runs it on a worker thread.

Always holds: the same weights, optimizer state, batch and step number give the same result (all randomness is drawn from
`seed` and the step number, so nothing random is left to checkpoint); how the batch is cut into micro-batches does not
change the loss; a non-finite gradient leaves the weights alone and is counted.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from spade_actors.config.schema import LearnerConfig
from spade_actors.learner.batch import AGENT, DESIGNER, ROLES, microbatches, minibatches
from spade_actors.learner.figures import Figures
from spade_actors.learner.loss import Bounds, Tokens, kl_full, kl_k3, policy_terms, total
from spade_actors.model.logprobs import token_logprobs
from spade_actors.model.packing import Packing
from spade_actors.model.qwen3 import Qwen3


class BadSample(ValueError):
    """A sample that cannot be trained on; the text says why."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sequence: `tokens`, `mask`, `logprobs` [L]; mask 1 where the policy sampled."""

    id: str
    role: str
    advantage: float
    temperature: float
    tokens: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]

    def check(self, vocabulary: int) -> None:
        """Raises `BadSample` for anything the step could not digest."""
        if self.role not in ROLES:
            raise BadSample(f"role {self.role!r}, expected one of {ROLES}")
        if not len(self.tokens) == len(self.mask) == len(self.logprobs):
            raise BadSample(f"{len(self.tokens)} tokens, {len(self.mask)} masks, {len(self.logprobs)} logprobs")
        if not self.mask[1:].any():
            raise BadSample("no trained token after the first")
        if self.tokens.min() < 0 or self.tokens.max() >= vocabulary:
            raise BadSample(f"a token id outside 0..{vocabulary - 1}")
        if not np.isfinite(self.logprobs[self.mask]).all() or not np.isfinite(self.advantage):
            raise BadSample("a log-probability or the advantage is not finite")
        if not self.temperature > 0:
            raise BadSample(f"temperature {self.temperature}, expected above 0")


class Row(NamedTuple):
    """Samples packed end to end, each cut after the last token that predicts a trained one."""

    indices: list[int]
    input_ids: Tensor
    packing: Packing
    where: Tensor
    """[N] positions in the row that predict a trained token"""
    targets: Tensor
    """[N]"""
    temperature: Tensor
    """[N]"""
    counts: list[int]
    """trained tokens per sample, in order"""


class StepResult(NamedTuple):
    """What one step did; `metrics` are plain numbers for `learner.stepped`."""

    metrics: dict[str, float]
    skipped: int
    """minibatches whose gradient was not finite"""


def pack(samples: Sequence[Sample], budget: int) -> list[Row]:
    """Cuts samples into packed rows of at most `budget` tokens; every trained token is in exactly one row."""
    lasts = [int(np.flatnonzero(s.mask)[-1]) for s in samples]
    return [_row(indices, [samples[i] for i in indices], lasts) for indices in microbatches(lasts, budget)]


def _row(indices: list[int], samples: list[Sample], lasts: list[int]) -> Row:
    ids, where, targets, temperatures, counts, lengths = [], [], [], [], [], []
    start = 0
    for index, sample in zip(indices, samples, strict=True):
        last = lasts[index]
        trained = np.flatnonzero(sample.mask)
        trained = trained[trained > 0]  # nothing predicts a sequence's first token
        ids.append(sample.tokens[:last])
        where.append(trained - 1 + start)
        targets.append(sample.tokens[trained])
        temperatures.append(np.full(len(trained), sample.temperature, np.float32))
        counts.append(len(trained))
        lengths.append(last)
        start += last
    return Row(
        indices,
        torch.from_numpy(np.concatenate(ids)),
        Packing.of(lengths),
        torch.from_numpy(np.concatenate(where)),
        torch.from_numpy(np.concatenate(targets)),
        torch.from_numpy(np.concatenate(temperatures)),
        counts,
    )


class Scores(NamedTuple):
    """Of a row's trained tokens under some weights."""

    logp: Tensor
    """[N]"""
    entropy: Tensor
    """[N] nats"""
    logps: Tensor | None
    """[N, V], only where the exact KL needs it"""


def score(model: Qwen3, row: Row, *, whole: bool = False) -> Scores:
    """Log-probabilities of a row's targets at their sampling temperatures; `whole`: of the whole vocabulary too."""
    hidden = model.hidden(row.input_ids, packing=row.packing)[row.where]
    if not whole:
        scored = token_logprobs(hidden, model.output_weight, row.targets, temperature=row.temperature)
        return Scores(scored.logprobs, scored.entropy, None)
    logits = torch.mm(hidden, model.output_weight.t()).float() / row.temperature[:, None]
    logps = torch.log_softmax(logits, dim=-1)
    logp = logps.gather(1, row.targets[:, None])[:, 0]
    with torch.no_grad():
        entropy = -(logps.exp() * logps).sum(dim=-1)
    return Scores(logp, entropy, logps)


def _kl(ours: Scores, theirs: Scores) -> Tensor:
    if ours.logps is not None and theirs.logps is not None:
        return kl_full(ours.logps, theirs.logps)
    return kl_k3(ours.logp, theirs.logp)


class Trainer:
    """The trained weights, their optimizer and, where a KL coefficient asks for it, the frozen initial weights."""

    def __init__(self, model: Qwen3, reference: Qwen3 | None, config: LearnerConfig, seed: int) -> None:
        self.model = model
        self.config = config
        self.seed = seed
        self.beta = {AGENT: config.agent_kl, DESIGNER: config.designer_kl}
        self.weight = {AGENT: config.agent_weight, DESIGNER: config.designer_weight}
        self.reference = reference if any(self.beta[r] and self.weight[r] for r in ROLES) else None
        if self.reference is not None:
            self.reference.requires_grad_(False)
        matrices = [p for p in model.parameters() if p.dim() > 1]
        vectors = [p for p in model.parameters() if p.dim() <= 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
            lr=config.lr,
            betas=config.betas,
        )

    def step(self, samples: Sequence[Sample], number: int) -> StepResult:
        """Trains on one batch as learner step `number`. `metrics` holds loss, per-role figures and seconds by phase."""
        rng = random.Random(f"{self.seed}/{number}")
        cut = [
            [samples[i] for i in indices if self.weight[samples[i].role] > 0]
            for indices in minibatches([s.role for s in samples], self.config.minibatches, rng)
        ]
        cut = [part for part in cut if part]
        started = time.perf_counter()
        rows = [pack(part, self.config.microbatch_tokens) for part in cut]
        # The first minibatch is trained at the batch's start, so its own forward gives prox.
        prox = [[None] * len(r) if i == 0 else [self._prox(row) for row in r] for i, r in enumerate(rows)]
        trained_at = time.perf_counter()
        figures = Figures()
        for part, part_rows, part_prox in zip(cut, rows, prox, strict=True):
            self._minibatch(part, part_rows, part_prox, figures)
        metrics = figures.metrics()
        metrics["seconds_prox"] = trained_at - started
        metrics["seconds_train"] = time.perf_counter() - trained_at
        return StepResult(metrics, figures.skipped)

    @torch.no_grad()
    def _prox(self, row: Row) -> Tensor:
        return score(self.model, row).logp

    def _minibatch(self, part: list[Sample], rows: list[Row], prox: Sequence[Tensor | None], figures: Figures) -> None:
        trained = {role: sum(int(s.mask[1:].sum()) for s in part if s.role == role) for role in ROLES}
        self.optimizer.zero_grad(set_to_none=True)
        loss = 0.0
        for row, row_prox in zip(rows, prox, strict=True):
            loss += self._backward([part[i] for i in row.indices], row, row_prox, trained, figures)
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip))
        finite = bool(np.isfinite(norm))
        if finite:
            self.optimizer.step()
        figures.minibatch(loss, norm, finite)

    def _backward(
        self, members: list[Sample], row: Row, prox: Tensor | None, trained: dict[str, int], figures: Figures
    ) -> float:
        counts = torch.tensor(row.counts)

        def spread(values: list[float]) -> Tensor:
            return torch.repeat_interleave(torch.tensor(values, dtype=torch.float32), counts)

        recorded = [s.logprobs[1:][s.mask[1:]] for s in members]
        tokens = Tokens(
            advantage=spread([s.advantage for s in members]),
            recorded=torch.from_numpy(np.concatenate(recorded)),
            scale=spread([self.weight[s.role] / trained[s.role] for s in members]),
            beta=spread([self.beta[s.role] for s in members]),
            prox=prox,
        )
        # The reference goes first: nothing of its forward has to live through the backward.
        theirs = None
        exact = self.reference is not None and self.config.kl == "full"
        if self.reference is not None:
            with torch.no_grad():
                theirs = score(self.reference, row, whole=exact)
        ours = score(self.model, row, whole=exact)
        kl = None if theirs is None else _kl(ours, theirs)
        terms = policy_terms(
            ours.logp, tokens, Bounds(self.config.clip_low, self.config.clip_high, self.config.weight_cap)
        )
        loss = total(terms.loss, kl, tokens)
        loss.backward()  # type: ignore[no-untyped-call]
        designer = spread([float(s.role == DESIGNER) for s in members]) > 0
        figures.tokens(designer, terms, tokens, ours.entropy, kl)
        return float(loss.detach())

    def state(self) -> dict[str, Tensor]:
        """Weights and optimizer as named tensors, ready to be written; copies, so training may go on."""
        names = {id(p): name for name, p in self.model.named_parameters()}
        tensors = {f"weight.{name}": p.detach().clone() for name, p in self.model.named_parameters()}
        for parameter, values in self.optimizer.state.items():
            for key, value in values.items():
                tensors[f"optimizer.{key}.{names[id(parameter)]}"] = value.detach().clone()
        return tensors

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Puts back what `state` gave. Raises KeyError for a tensor that is missing or unknown."""
        parameters = dict(self.model.named_parameters())
        missing = [n for n in parameters if f"weight.{n}" not in tensors]
        if missing:
            raise KeyError(f"tensor weight.{missing[0]} is missing from the checkpoint")
        restored: dict[str, dict[str, Any]] = {name: {} for name in parameters}
        with torch.no_grad():
            for name, value in tensors.items():
                kind, _, rest = name.partition(".")
                if kind == "weight":
                    parameters[rest].copy_(value)
                else:
                    key, _, parameter = rest.partition(".")
                    restored[parameter][key] = value.clone()
        self.optimizer.state.clear()
        for name, values in restored.items():
            if values:
                self.optimizer.state[parameters[name]] = values
