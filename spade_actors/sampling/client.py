"""Token ids in, token ids and log-probabilities out: the client of an SGLang server, real or embedded.

Always holds: an abandoned generation is aborted at the server (cancellation, deadline); ``paused`` resumes whatever happens;
every token of a ``Generation`` lies in exactly one version span.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import trio

from spade_actors.sampling.connection import Answer, HttpPool
from spade_actors.sampling.errors import DeadlineExceeded, SamplingError, ServerRefused, ServerUnavailable

# Telling a server to stop must not hold up a cancelled task for long.
_ABORT_SECONDS = 2.0
_RESUME_SECONDS = 10.0
# A reload reads and converts all weights.
_UPDATE_SECONDS = 600.0
_HEALTH_SECONDS = 30.0
_CONTROL_SECONDS = 10.0

PauseMode = Literal["in_place", "retract", "abort"]
T = TypeVar("T")


class SamplingParams(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to sample, in SGLang's terms.

    ``seed`` of None leaves it to the server; the real one heeds it only in its deterministic mode.  ``ignore_eos`` takes
    all stop tokens out of effect, so ``stop_token_ids`` beside it is a ``ValueError``.  Log-probabilities carry the
    temperature, not top-p, top-k or min-p.
    """

    max_new_tokens: int = 128
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = msgspec.field(default=None, name="sampling_seed")

    def __post_init__(self) -> None:
        if self.ignore_eos and self.stop_token_ids:
            raise ValueError(
                f"ignore_eos = true with stop_token_ids = {list(self.stop_token_ids)}: SGLang would ignore the stop "
                "tokens; expected one of the two"
            )


class Span(NamedTuple):
    """Output tokens [start, end) were made by ``version``."""

    version: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Generation:
    """One finished generation.

    ``logprobs``: one float32 (type code ``f``) per token, under the sampling temperature.  ``finish``: ``stop`` (at a stop
    id, which is the last output token), ``length`` or ``abort`` (cut short; what was made is here).  ``spans_exact`` is
    false where the server does not say which version made which token: then one span names the version at submission.
    """

    output_ids: list[int]
    logprobs: array[float]
    finish: Literal["stop", "length", "abort"]
    version_spans: tuple[Span, ...]
    spans_exact: bool
    prompt_tokens: int
    cached_tokens: int
    message: str = ""


class ModelInfo(NamedTuple):
    """What a server serves."""

    model_path: str
    weight_version: str


class Load(NamedTuple):
    """Requests that generate and requests that wait."""

    running: int
    waiting: int


class UpdateResult(NamedTuple):
    """Outcome of a weight update; a failed one left the old weights in place or the server unusable, see ``message``."""

    success: bool
    message: str
    num_paused_requests: int


class _WireSpan(msgspec.Struct):
    version: str
    start: int
    end: int


class _WireFinish(msgspec.Struct):
    type: Literal["stop", "length", "abort"]
    message: str | None = None
    status_code: int | None = None


class _WireMeta(msgspec.Struct):
    finish_reason: _WireFinish | None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    weight_version: str | None = None
    weight_versions: list[_WireSpan] | None = None
    output_token_logprobs: list[tuple[float, int, Any]] | None = None


class _WireGeneration(msgspec.Struct):
    output_ids: list[int]
    meta_info: _WireMeta


class _WireModelInfo(msgspec.Struct):
    model_path: str
    weight_version: str | None = None


class _WireUpdate(msgspec.Struct):
    success: bool
    message: str = ""
    num_paused_requests: int | None = 0


class _WireLoad(msgspec.Struct):
    num_running_reqs: int
    num_waiting_reqs: int


class _WireLoads(msgspec.Struct):
    loads: list[_WireLoad]


class _GenerateBody(msgspec.Struct, omit_defaults=True):
    rid: str
    input_ids: Sequence[int]
    sampling_params: SamplingParams
    return_logprob: bool
    extra_key: str | None = None


_ENCODER = msgspec.json.Encoder()
_GENERATION = msgspec.json.Decoder(_WireGeneration)


class GenerateClient:
    """Calls to one server.  All methods raise ``ServerUnavailable`` or ``ServerRefused``; all may be cancelled."""

    def __init__(self, base_url: str, *, api_key: str | None = None) -> None:
        self._http = HttpPool(base_url, api_key=api_key)
        self._count = 0
        self._active: dict[str, str] = {}  # server-side id -> the caller's name
        # Newest version seen in an answer: the version at submission, for servers that give no spans.
        self._version: str | None = None

    @property
    def base_url(self) -> str:
        """The server's address."""
        return self._http.base_url

    def close(self) -> None:
        """Close idle connections."""
        self._http.close()

    async def generate(
        self,
        input_ids: Sequence[int],
        params: SamplingParams,
        *,
        rid: str = "",
        extra_key: str | None = None,
        deadline: float = math.inf,
    ) -> Generation:
        """Generate from ``input_ids``; ``rid`` is a name for the server's logs, made unique here.

        ``extra_key`` keeps apart prefix caches of different weights.  ``deadline`` is on trio's clock; past it the request is
        aborted at the server and ``DeadlineExceeded`` raised.  On cancellation it is aborted too (within 2 s).
        """
        self._count += 1
        # SGLang aborts ids that start alike, too: the closing dot keeps one from being the beginning of another.
        unique = f"{rid}#{id(self):x}.{self._count}."
        body = _ENCODER.encode(
            _GenerateBody(unique, input_ids, params, return_logprob=True, extra_key=extra_key),
        )
        submitted = self._version
        self._active[unique] = rid
        try:
            with trio.CancelScope(deadline=deadline) as scope:
                try:
                    answer = await self._http.request("POST", "/generate", body)
                except trio.Cancelled:
                    await self._abandon(unique)
                    raise
        finally:
            del self._active[unique]
        if scope.cancelled_caught:
            raise DeadlineExceeded(f"{self.base_url}/generate: no answer by the deadline")
        self._check("/generate", answer)
        return self._generation(_decode("/generate", answer, _GENERATION), submitted)

    async def abort(self, rid: str) -> None:
        """Abort this client's requests of that name; each returns what it has, with ``finish`` "abort"."""
        for unique in [unique for unique, name in self._active.items() if name == rid]:
            await self._control("POST", "/abort_request", {"rid": unique})

    async def abort_all(self) -> None:
        """Abort everything that runs or waits at the server."""
        await self._control("POST", "/abort_request", {"abort_all": True})

    async def pause(self, mode: PauseMode = "in_place") -> None:
        """Stop generating.  Pair it with ``resume`` in ``finally``, or use ``paused``."""
        await self._control("POST", "/pause_generation", {"mode": mode})

    async def resume(self) -> None:
        """Go on generating."""
        await self._control("POST", "/continue_generation", {})

    @asynccontextmanager
    async def paused(self, mode: PauseMode = "in_place") -> AsyncIterator[None]:
        """A block during which the server is paused; it resumes on every way out, cancellation included (within 10 s)."""
        try:
            await self.pause(mode)
            yield
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _RESUME_SECONDS):
                await self.resume()

    async def update_weights_from_disk(
        self, model_path: str, weight_version: str, *, flush_cache: bool = False
    ) -> UpdateResult:
        """Load weights; a refusal by the server is a result with ``success`` false, not an error."""
        fields = {"model_path": model_path, "weight_version": weight_version, "flush_cache": flush_cache}
        answer = await self._control(
            "POST", "/update_weights_from_disk", fields, seconds=_UPDATE_SECONDS, accept=(200, 400)
        )
        try:
            result = _decode("/update_weights_from_disk", answer, msgspec.json.Decoder(_WireUpdate))
        except ServerRefused:
            if answer.status == 200:
                raise
            return UpdateResult(False, _message(answer), 0)
        if result.success:
            self._version = weight_version
        return UpdateResult(result.success, result.message, result.num_paused_requests or 0)

    async def flush_cache(self) -> bool:
        """Drop cached prefixes; false when the server will not while it is busy."""
        answer = await self._control("POST", "/flush_cache", {}, accept=(200, 400))
        return answer.status == 200

    async def health(self) -> bool:
        """Whether the server answers."""
        return await self._healthy("/health", _CONTROL_SECONDS)

    async def health_generate(self, *, seconds: float = _HEALTH_SECONDS) -> bool:
        """Whether the server generates a token within ``seconds``; a paused one does not."""
        return await self._healthy("/health_generate", seconds)

    async def model_info(self) -> ModelInfo:
        """Model path and weight version."""
        answer = await self._control("GET", "/model_info")
        info = _decode("/model_info", answer, msgspec.json.Decoder(_WireModelInfo))
        return ModelInfo(info.model_path, info.weight_version or "")

    async def server_info(self) -> dict[str, Any]:
        """Whatever the server says about itself."""
        answer = await self._control("GET", "/server_info")
        return _decode("/server_info", answer, msgspec.json.Decoder(dict[str, Any]))

    async def load(self) -> Load:
        """Running and waiting requests, summed over data-parallel ranks."""
        loads = _decode("/v1/loads", await self._control("GET", "/v1/loads"), msgspec.json.Decoder(_WireLoads)).loads
        return Load(sum(load.num_running_reqs for load in loads), sum(load.num_waiting_reqs for load in loads))

    async def _healthy(self, path: str, seconds: float) -> bool:
        try:
            await self._control("GET", path, seconds=seconds)
        except SamplingError:
            return False
        return True

    async def _control(
        self,
        method: str,
        path: str,
        fields: dict[str, Any] | None = None,
        *,
        seconds: float = _CONTROL_SECONDS,
        accept: tuple[int, ...] = (200,),
    ) -> Answer:
        body = b"" if fields is None else _ENCODER.encode(fields)
        with trio.move_on_after(seconds) as scope:
            answer = await self._http.request(method, path, body)
        if scope.cancelled_caught:
            raise ServerUnavailable(f"{self.base_url}{path}: no answer within {seconds:g} s")
        self._check(path, answer, accept)
        return answer

    def _check(self, path: str, answer: Answer, accept: tuple[int, ...] = (200,)) -> None:
        if answer.status in accept:
            return
        text = f"{self.base_url}{path}: {answer.status}: {_message(answer)}"
        if answer.status >= 500:
            raise ServerUnavailable(text)
        raise ServerRefused(text, answer.status)

    async def _abandon(self, rid: str) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _ABORT_SECONDS):
            try:
                await self._http.request("POST", "/abort_request", _ENCODER.encode({"rid": rid}))
            except SamplingError:
                # The server is gone, and the generation with it.
                return

    def _generation(self, wire: _WireGeneration, submitted: str | None) -> Generation:
        meta, ids = wire.meta_info, wire.output_ids
        finish = meta.finish_reason
        pairs = meta.output_token_logprobs or []
        if finish is None:
            raise ServerRefused(f"{self.base_url}/generate: answer without a finish reason")
        if finish.type == "abort":
            if finish.status_code is not None and finish.status_code >= 500:
                raise ServerUnavailable(f"{self.base_url}/generate: aborted: {finish.message}")
            # An abort may fall between a token and its log-probability.
            shorter = min(len(ids), len(pairs))
            ids, pairs = ids[:shorter], pairs[:shorter]
        if len(ids) != len(pairs) or any(pair[1] != token for pair, token in zip(pairs, ids, strict=True)):
            raise ServerRefused(f"{self.base_url}/generate: output_token_logprobs do not belong to output_ids")
        self._version = meta.weight_version or self._version
        if meta.weight_versions is not None:
            spans = _cover([Span(s.version, s.start, s.end) for s in meta.weight_versions], len(ids))
            exact = True
        else:
            version = submitted or meta.weight_version or ""
            spans, exact = (Span(version, 0, len(ids)),) if ids else (), False
        return Generation(
            output_ids=ids,
            logprobs=array("f", [pair[0] for pair in pairs]),
            finish=finish.type,
            version_spans=spans,
            spans_exact=exact,
            prompt_tokens=meta.prompt_tokens,
            cached_tokens=meta.cached_tokens,
            message=finish.message or "",
        )


def _cover(spans: list[Span], count: int) -> tuple[Span, ...]:
    """Spans cut to ``count`` tokens; raises ``ServerRefused`` when they leave one out or overlap."""
    kept = [Span(s.version, s.start, min(s.end, count)) for s in spans if s.start < min(s.end, count)]
    edges = [0, *(s.end for s in kept)]
    if edges[-1] != count or any(s.start != edge for s, edge in zip(kept, edges, strict=False)):
        raise ServerRefused(f"/generate: weight_versions {spans} do not cover {count} tokens exactly once")
    return tuple(kept)


def _decode(path: str, answer: Answer, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ServerRefused(f"{path}: unreadable answer ({error})", answer.status) from None


def _message(answer: Answer) -> str:
    """The server's reason in one line: SGLang's ``{"error": {"message"}}``, FastAPI's ``detail``, or the text."""
    try:
        content = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        content = answer.body.decode("utf-8", "replace")
    if isinstance(content, dict):
        inner = content.get("error") or content.get("message") or content.get("detail") or content
        content = inner.get("message", inner) if isinstance(inner, dict) else inner
    return " ".join(str(content).split())[:500]
