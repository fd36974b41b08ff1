"""Replies of a guest, believed about nothing: exact types, finite numbers, bounded sizes and depth, valid text.

A guest may be running hostile code with full control of its own process, so what arrives is checked as if a stranger
had sent it. JSON keeps the types apart that matter (`true` is no number, `1` is no truth value); NaN, infinities and
lone surrogates are not valid in it.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, NoReturn

import msgspec

from .errors import EnvironmentFailure, Reason
from .limits import JailLimits


class Reset(NamedTuple):
    """Result of `reset`. `max_turns`: what the environment limits itself to after the budget was applied, or None."""

    observation: str
    info: dict[str, Any]
    max_turns: int | None


class Step(NamedTuple):
    """Result of `step`, as Gymnasium names it."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class Inspection(NamedTuple):
    """What `solution()` returned (None without one) and the tail of what was printed."""

    solution: Any
    output: str


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """About a source that compiles. `shape`: hash of its syntax tree without comments, layout and docstrings."""

    shape: str
    class_name: str
    title: str


class _Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: Literal["syntax", "load", "contract", "exception", "exit", "memory", "output", "non_finite"]
    detail: str
    trace: str
    output: str


class _Inspection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    solution: Any
    output: str


_step = msgspec.json.Decoder(tuple[str, float, bool, bool, dict[str, Any]])
_reset = msgspec.json.Decoder(tuple[str, dict[str, Any], int | None])
_failure = msgspec.json.Decoder(_Failure)
_inspection = msgspec.json.Decoder(_Inspection)
_facts = msgspec.json.Decoder(Facts)
_DECODE_ERRORS = (msgspec.DecodeError, RecursionError, UnicodeError, ValueError)


def parse_step(payload: bytes, limits: JailLimits) -> Step:
    """A `Step`, or `EnvironmentFailure`."""
    if payload[:1] != b"+":
        _raise(payload, "step")
    try:
        fields = _step.decode(memoryview(payload)[1:])
    except _DECODE_ERRORS as error:
        raise _bad("step", error) from None
    observation, _, _, _, info = fields
    if len(observation) > limits.observation_chars:
        raise _too_long("step", observation, limits)
    if info:
        _check_depth(info, limits.info_depth, "step")
    return Step._make(fields)


def parse_reset(payload: bytes, limits: JailLimits) -> Reset:
    """A `Reset`, or `EnvironmentFailure`."""
    if payload[:1] != b"+":
        _raise(payload, "reset")
    try:
        fields = _reset.decode(memoryview(payload)[1:])
    except _DECODE_ERRORS as error:
        raise _bad("reset", error) from None
    observation, info, turns = fields
    if not observation.strip():
        raise EnvironmentFailure(Reason.CONTRACT, "reset", "reset observation is empty")
    if len(observation) > limits.observation_chars:
        raise _too_long("reset", observation, limits)
    if turns is not None and not 0 < turns < 1_000_000:
        raise EnvironmentFailure(Reason.CONTRACT, "reset", f"max_turns is {turns}, expected 1 to 999999")
    _check_depth(info, limits.info_depth, "reset")
    return Reset._make(fields)


def parse_inspection(payload: bytes, limits: JailLimits) -> Inspection:
    """An `Inspection`, or `EnvironmentFailure`."""
    if payload[:1] != b"+":
        _raise(payload, "inspect")
    try:
        found = _inspection.decode(memoryview(payload)[1:])
    except _DECODE_ERRORS as error:
        raise _bad("inspect", error) from None
    _check_depth(found.solution, limits.info_depth, "inspect")
    return Inspection(found.solution, found.output[:500])


def parse_compiled(payload: bytes) -> tuple[Facts, bytes]:
    """Facts and byte code (opaque here: it goes back into the jail it came from), or `EnvironmentFailure`."""
    if payload[:1] != b"+":
        _raise(payload, "compile")
    size = int.from_bytes(payload[1:5], "little")
    try:
        facts = _facts.decode(payload[5 : 5 + size])
    except _DECODE_ERRORS as error:
        raise _bad("compile", error) from None
    return facts, payload[5 + size :]


def _check_depth(value: object, depth: int, phase: str) -> None:
    """Containers nested at most `depth` deep, no integer beyond 64 bits (what msgpack carries)."""
    if isinstance(value, (dict, list)):
        if depth == 0:
            raise EnvironmentFailure(Reason.BAD_REPLY, phase, "info is nested too deep")
        for item in value.values() if isinstance(value, dict) else value:
            _check_depth(item, depth - 1, phase)
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise EnvironmentFailure(Reason.BAD_REPLY, phase, "info holds an integer beyond 64 bits")


def _too_long(phase: str, observation: str, limits: JailLimits) -> EnvironmentFailure:
    detail = f"observation has {len(observation)} characters, at most {limits.observation_chars} are taken"
    return EnvironmentFailure(Reason.OUTPUT, phase, detail)


def _bad(phase: str, error: Exception) -> EnvironmentFailure:
    return EnvironmentFailure(Reason.BAD_REPLY, phase, f"the reply is not valid: {str(error)[:200]}")


def _raise(payload: bytes, phase: str) -> NoReturn:
    if payload[:1] != b"!":
        raise EnvironmentFailure(Reason.BAD_REPLY, phase, "the reply has no known kind")
    try:
        found = _failure.decode(memoryview(payload)[1:])
    except _DECODE_ERRORS as error:
        raise _bad(phase, error) from None
    if found.reason == "load":
        phase = "load"
    raise EnvironmentFailure(Reason(found.reason), phase, found.detail[:400], found.trace[:600], found.output[-500:])
