"""Continuous batching: a queue of requests, the running ones, and one forward step at a time.

No sockets and no clock: the server calls ``step`` while ``busy`` and delivers what it returns.

Always holds: a request is waiting, running or finished, and finished ones are returned exactly once, by ``step``, ``abort`` or
``pause``; no token is sampled while paused; the weight version recorded for a token is the one whose weights made it; and a
weight update between two steps leaves running requests running.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spade_actors.generator.embedded.forward import Forward
from spade_actors.generator.embedded.sampler import Sampler
from spade_actors.generator.embedded.slots import SlotTable
from spade_actors.generator.embedded.weights import Weights


class PauseMode(StrEnum):
    """What happens to running requests: frozen with their cache, frozen without it, or ended."""

    IN_PLACE = "in_place"
    RETRACT = "retract"
    ABORT = "abort"


class Finish(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(slots=True, eq=False)
class Request:
    """One sequence to generate.  ``seed`` fixes its samples; the fields below ``prefix_key`` are the engine's."""

    rid: str
    prompt: NDArray[np.int32]
    max_new_tokens: int
    seed: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    stop: frozenset[int] = frozenset()
    prefix_key: str = ""
    output: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    # (weight version, index of the first output token it made), ascending
    versions: list[tuple[str, int]] = field(default_factory=list)
    slot: int = -1
    cached_tokens: int = -1
    finish: Finish | None = None
    matched: int = -1
    message: str = ""


class Engine:
    """Generates for one model.  Requests must fit: prompt and ``max_new_tokens`` together at most ``max_len``."""

    def __init__(
        self,
        weights: Weights,
        *,
        weight_version: str,
        slots: int = 128,
        max_len: int = 1024,
        prefill_tokens: int = 1024,
    ) -> None:
        self.weights, self.weight_version = weights, weight_version
        self.max_len = max_len
        self.paused = False
        self.generated = 0
        self._prefill_tokens = prefill_tokens
        # One slot more than requests may use: the scratch slot of ``probe``.
        self._forward = Forward(weights, slots + 1, max_len)
        self._sampler = Sampler(weights.config.vocab_size)
        self._table = SlotTable(slots, max_len)
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []

    @property
    def running(self) -> int:
        """Requests that hold a slot."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests without a slot yet."""
        return len(self._waiting)

    @property
    def slots(self) -> int:
        """Requests that can run at once."""
        return self._table.slots

    @property
    def busy(self) -> bool:
        """Whether ``step`` has work to do."""
        return not self.paused and bool(self._running or self._waiting)

    def submit(self, request: Request) -> None:
        """Queue a request; it runs when a slot is free, in order of arrival."""
        if len(request.prompt) + request.max_new_tokens > self.max_len:
            raise ValueError(
                f"{len(request.prompt)} prompt tokens and max_new_tokens = {request.max_new_tokens}: expected at most "
                f"{self.max_len} together"
            )
        self._waiting.append(request)

    def step(self) -> list[Request]:
        """One forward step, at most one new token per running request; returns the requests it finished."""
        if self.paused:
            return []
        self._admit()
        if not self._running:
            return []
        batch, counts = self._next_tokens()
        table = self._table
        slots = np.array([request.slot for request in batch])
        starts = table.computed[slots]
        logits = self._forward.step(table.tokens, slots, starts, counts)
        table.computed[slots] = starts + counts
        lengths = table.length[slots]
        complete = starts + counts == lengths
        if not complete.all():
            chosen = np.flatnonzero(complete)
            batch, logits, slots, lengths = [batch[i] for i in chosen], logits[chosen], slots[chosen], lengths[chosen]
        if not batch:
            return []
        sampled = self._sampler.sample(logits, batch, [request.seed for request in batch], lengths.tolist())
        finished: list[Request] = []
        for request, token, logprob in zip(batch, sampled.tokens.tolist(), sampled.logprobs.tolist(), strict=True):
            output = request.output
            if not request.versions or request.versions[-1][0] != self.weight_version:
                request.versions.append((self.weight_version, len(output)))
            output.append(token)
            request.logprobs.append(logprob)
            if token in request.stop:
                request.finish, request.matched = Finish.STOP, token
                finished.append(request)
            elif len(output) >= request.max_new_tokens:
                request.finish = Finish.LENGTH
                finished.append(request)
        self.generated += len(batch)
        # A finished request's last token counts too: its next turn continues after it.
        fits = lengths < self.max_len
        table.tokens[slots[fits], lengths[fits]] = sampled.tokens[fits]
        table.length[slots[fits]] += 1
        if finished:
            for request in finished:
                table.release(request.slot)
            self._running = [request for request in self._running if request.finish is None]
        return finished

    def abort(self, rid: str | None, message: str) -> list[Request]:
        """End the request of that id, or with ``None`` all of them, and return what was ended."""
        return self._end([r for r in (*self._running, *self._waiting) if rid in (None, r.rid)], message)

    def cancel(self, request: Request) -> None:
        """End one request that nobody waits for any more; nothing happens if it has finished."""
        if request.finish is None:
            self._end([request], "cancelled")

    def pause(self, mode: PauseMode) -> list[Request]:
        """Stop generating until ``resume``; returns the requests that ``abort`` mode ended.  May be repeated."""
        self.paused = True
        if mode is PauseMode.ABORT:
            return self.abort(None, "aborted by pause_generation")
        if mode is PauseMode.RETRACT:
            for request in reversed(self._running):
                self._table.computed[request.slot] = 0
                self._table.release(request.slot)
                request.slot = -1
                self._waiting.appendleft(request)
            self._running = []
        return []

    def resume(self) -> None:
        """Go on generating."""
        self.paused = False

    def update_weights(self, path: Path | str, weight_version: str | None, *, flush: bool) -> int:
        """Replace the weights between two steps and return how many requests were running.

        Running requests go on with the cache they have; with ``flush`` no later request reuses anything computed before.
        Raises ``ModelFormatError`` and changes nothing if the files do not fit.
        """
        self.weights.load(path)
        if weight_version is not None:
            self.weight_version = weight_version
        if flush:
            self._table.flush()
        return len(self._running)

    def flush(self) -> None:
        """Forget cached prefixes of requests that have finished, and of running ones once they finish."""
        self._table.flush()

    def probe(self) -> bool:
        """Run one token through the model, aside of all requests; whether the logits are finite numbers."""
        table = np.broadcast_to(np.zeros(1, np.int32), (self.slots + 1, 1))
        one = np.ones(1, np.int64)
        return bool(np.isfinite(self._forward.step(table, one * self.slots, one * 0, one)).all())

    def _admit(self) -> None:
        while self._waiting:
            request = self._waiting[0]
            tokens = np.concatenate((request.prompt, np.array(request.output, np.int32)))
            grant = self._table.acquire(tokens, request.prefix_key)
            if grant is None:
                return
            if grant.copy_from is not None:
                self._forward.cache.copy_prefix(grant.copy_from, grant.slot, grant.reused)
            request.slot = grant.slot
            if request.cached_tokens < 0:
                request.cached_tokens = grant.reused
            self._running.append(self._waiting.popleft())

    def _next_tokens(self) -> tuple[list[Request], NDArray[np.int64]]:
        """Requests of this step and how many tokens each feeds: decoding ones all, prompts up to the token budget."""
        table = self._table
        slots = np.array([request.slot for request in self._running])
        counts = table.length[slots] - table.computed[slots]
        if counts.sum() <= self._prefill_tokens + len(counts):
            return list(self._running), counts
        budget = self._prefill_tokens
        for i in np.flatnonzero(counts > 1):
            counts[i] = min(int(counts[i]), budget)
            budget -= int(counts[i])
        taking = np.flatnonzero(counts)
        return [self._running[i] for i in taking], counts[taking]

    def _end(self, requests: list[Request], message: str) -> list[Request]:
        for request in requests:
            request.finish, request.message = Finish.ABORT, message
            if request.slot >= 0:
                self._table.release(request.slot)
        self._running = [request for request in self._running if request.finish is None]
        self._waiting = deque(request for request in self._waiting if request.finish is None)
        return requests
