"""JSON bodies of the endpoints: SGLang 0.5.23's fields, typed, with what this engine cannot do refused by name.

Always holds: a body that is accepted means here what it means to SGLang; an unknown field, a wrong type or an unsupported
option raises ``BadRequest`` with one line.
"""

from __future__ import annotations

import secrets
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from spade_actors.generator.embedded.engine import Finish, PauseMode, Request

T = TypeVar("T")

_DEFAULT_MAX_NEW_TOKENS = 128
# SGLang takes a lower temperature for greedy sampling, and so do we.
_GREEDY_BELOW = 1e-6


class BadRequest(ValueError):
    """Answered with 400 and this message."""


class SamplingBody(msgspec.Struct, forbid_unknown_fields=True):
    """``sampling_params`` of ``/generate``.  ``null`` means the default, as for SGLang."""

    max_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    sampling_seed: int | None = None
    # Of no effect on token ids.
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    no_stop_trim: bool | None = None
    stream_interval: int | None = None
    # Accepted at their neutral values only.
    n: int | None = None
    min_new_tokens: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    stop: str | list[str] | None = None
    stop_regex: str | list[str] | None = None
    regex: str | None = None
    ebnf: str | None = None
    json_schema: str | None = None
    structural_tag: str | None = None
    logit_bias: dict[str, float] | None = None
    custom_params: dict[str, Any] | None = None


_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "min_new_tokens": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "stop": ("", []),
    "stop_regex": ("", []),
    "regex": ("",),
    "ebnf": ("",),
    "json_schema": ("",),
    "structural_tag": ("",),
    "logit_bias": ({},),
    "custom_params": ({},),
}


class GenerateBody(msgspec.Struct, forbid_unknown_fields=True):
    """``POST /generate``: one prompt, or a list of prompts with lists (or one value for all) beside it."""

    input_ids: Any
    sampling_params: SamplingBody | list[SamplingBody] | None = None
    return_logprob: bool | None = None
    logprob_start_len: int | None = None
    stream: bool | None = None
    rid: str | list[str] | None = None
    extra_key: str | list[str] | None = None


class PauseBody(msgspec.Struct):
    """``POST /pause_generation``."""

    mode: PauseMode = PauseMode.ABORT


class UpdateBody(msgspec.Struct):
    """``POST /update_weights_from_disk``; fields that concern GPUs are ignored."""

    model_path: str
    weight_version: str | None = None
    flush_cache: bool = True
    abort_all_requests: bool = False
    load_format: Literal["auto", "safetensors"] | None = None


class AbortBody(msgspec.Struct):
    """``POST /abort_request``: one request by its id, or all."""

    rid: str | None = None
    abort_all: bool = False


def decode(body: bytes, kind: type[T]) -> T:
    """Parse a body; an empty one stands for ``{}``."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(str(error)) from None


def requests_of(
    body: GenerateBody, *, max_len: int, vocab_size: int, eos: frozenset[int]
) -> tuple[list[Request], bool]:
    """The engine's requests for a body, and whether it was a batch (answered by a list)."""
    if body.stream:
        raise BadRequest("stream = true is not supported; expected false")
    if body.logprob_start_len not in (None, -1):
        raise BadRequest(
            f"logprob_start_len = {body.logprob_start_len} is not supported; expected -1 (output tokens only)"
        )
    if not isinstance(body.input_ids, list) or not body.input_ids:
        raise BadRequest("input_ids: expected a non-empty list of token ids, or a list of such lists")
    batch = isinstance(body.input_ids[0], list)
    prompts = body.input_ids if batch else [body.input_ids]
    count = len(prompts)
    params = _each("sampling_params", body.sampling_params or SamplingBody(), count)
    keys = _each("extra_key", body.extra_key or "", count)
    if isinstance(body.rid, str):
        rids = [f"{body.rid}_{i}" for i in range(count)] if batch else [body.rid]
    else:
        rids = _each("rid", body.rid, count) if body.rid else [secrets.token_hex(16) for _ in range(count)]
    return [
        _request(rid, _prompt(prompt, vocab_size), key, own, max_len, eos)
        for rid, prompt, key, own in zip(rids, prompts, keys, params, strict=True)
    ], batch


def answer(request: Request, *, logprobs: bool, weight_version: str, latency: float) -> dict[str, Any]:
    """What ``/generate`` returns for a finished request.  ``weight_version`` is the one the server has now."""
    output = request.output
    reason: dict[str, Any]
    if request.finish is Finish.STOP:
        reason = {"type": "stop", "matched": request.matched}
    elif request.finish is Finish.LENGTH:
        reason = {"type": "length", "length": len(output)}
    else:
        reason = {"type": "abort", "message": request.message}
    ends = [start for _, start in request.versions[1:]] + [len(output)]
    meta: dict[str, Any] = {
        "id": request.rid,
        "finish_reason": reason,
        "prompt_tokens": len(request.prompt),
        "completion_tokens": len(output),
        "cached_tokens": max(request.cached_tokens, 0),
        "weight_version": weight_version,
        "weight_versions": [
            {"version": version, "start": start, "end": end}
            for (version, start), end in zip(request.versions, ends, strict=False)
        ],
        "e2e_latency": latency,
    }
    if logprobs:
        pairs = zip(request.logprobs, output, strict=True)
        meta["output_token_logprobs"] = [(logprob, token, None) for logprob, token in pairs]
    return {"output_ids": output, "meta_info": meta}


def _each(name: str, value: T | list[T], count: int) -> list[T]:
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise BadRequest(f"{name}: {len(value)} values for {count} prompts; expected one each")
    return value


def _prompt(ids: Any, vocab_size: int) -> NDArray[np.int32]:
    try:
        prompt = np.array(ids)
    except (ValueError, OverflowError):
        prompt = np.array("")
    if prompt.ndim != 1 or prompt.dtype.kind != "i":
        raise BadRequest("input_ids: expected a non-empty list of token ids, or a list of such lists")
    if prompt.min() < 0 or prompt.max() >= vocab_size:
        bad = prompt[(prompt < 0) | (prompt >= vocab_size)][0]
        raise BadRequest(f"input_ids: token id {bad} is outside the vocabulary; expected 0 to {vocab_size - 1}")
    return prompt.astype(np.int32)


def _request(
    rid: str, prompt: NDArray[np.int32], key: str, params: SamplingBody, max_len: int, eos: frozenset[int]
) -> Request:
    for name, neutral in _NEUTRAL.items():
        value = getattr(params, name)
        if value is not None and value not in neutral:
            raise BadRequest(f"sampling_params.{name} = {value!r} is not supported; expected {neutral[0]!r}")
    room = max_len - len(prompt)
    if room < 1:
        raise BadRequest(
            f"The input ({len(prompt)} tokens) is longer than the model's context length ({max_len} tokens)."
        )
    new = params.max_new_tokens
    if new is None:
        new = min(_DEFAULT_MAX_NEW_TOKENS, room)
    if not 1 <= new <= room:
        raise BadRequest(
            f"max_new_tokens = {new}: expected 1 to {room}, as {len(prompt)} of the model's context length "
            f"({max_len} tokens) are the input"
        )
    temperature = 1.0 if params.temperature is None else params.temperature
    top_p = 1.0 if params.top_p is None else params.top_p
    top_k = -1 if params.top_k is None else params.top_k
    min_p = params.min_p or 0.0
    # The upper bound keeps logits / temperature meaningful in float32.
    if not 0 <= temperature <= 1e6:
        raise BadRequest(f"temperature = {temperature}: expected a number from 0 to 1e6")
    if not 0 < top_p <= 1:
        raise BadRequest(f"top_p = {top_p}: expected a number above 0, at most 1")
    if top_k < -1 or top_k == 0:
        raise BadRequest(f"top_k = {top_k}: expected -1 (off) or at least 1")
    if not 0 <= min_p <= 1:
        raise BadRequest(f"min_p = {min_p}: expected a number from 0 to 1")
    seed = params.sampling_seed
    return Request(
        rid=rid,
        prompt=prompt,
        max_new_tokens=new,
        seed=secrets.randbits(63) if seed is None else seed,
        temperature=0.0 if temperature < _GREEDY_BELOW else temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        # As in SGLang, ignore_eos takes every stop token out of effect.
        stop=frozenset() if params.ignore_eos else frozenset(params.stop_token_ids or ()) | eos,
        prefix_key=key,
    )
