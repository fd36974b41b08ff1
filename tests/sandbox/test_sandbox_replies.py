"""The parser of replies believes nothing: whatever bytes arrive, the result is a checked value or an `EnvironmentFailure`."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_sandbox import EnvironmentFailure, JailLimits, Reason
from spade_sandbox.replies import parse_compiled, parse_inspection, parse_reset, parse_step

LIMITS = JailLimits(observation_chars=200, info_depth=4)
PARSERS = (
    lambda data: parse_step(data, LIMITS),
    lambda data: parse_reset(data, LIMITS),
    lambda data: parse_inspection(data, LIMITS),
    parse_compiled,
)
leaves = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.binary(max_size=60))
def test_any_bytes(data):
    for parser in PARSERS:
        for prefix in (b"", b"+", b"!"):
            try:
                parser(prefix + data)
            except EnvironmentFailure:
                continue


@given(st.lists(values, max_size=6))
def test_any_json_gives_exact_types_or_a_failure(fields):
    data = b"+" + json.dumps(fields).encode()
    try:
        step = parse_step(data, LIMITS)
    except EnvironmentFailure:
        return
    assert [type(field) for field in step] == [str, float, bool, bool, dict]
    assert math.isfinite(step.reward)
    step.observation.encode()


@given(
    st.text(max_size=200).filter(lambda t: _clean(t)),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.booleans(),
)
def test_a_good_step_comes_through(observation, reward, terminated, truncated):
    fields = (observation, reward, terminated, truncated, {"a": [1, {"b": "c"}]})
    assert tuple(parse_step(b"+" + json.dumps(fields).encode(), LIMITS)) == fields


def _clean(text):
    return not any(0xD800 <= ord(c) < 0xE000 for c in text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('["x", NaN, false, false, {}]', Reason.BAD_REPLY),
        ('["x", Infinity, false, false, {}]', Reason.BAD_REPLY),
        ('["x", 1e999, false, false, {}]', Reason.BAD_REPLY),
        ('["x", 1.0, 1, false, {}]', Reason.BAD_REPLY),
        ('["x", true, false, false, {}]', Reason.BAD_REPLY),
        ('["x", "1", false, false, {}]', Reason.BAD_REPLY),
        ('["x", 1.0, false, false]', Reason.BAD_REPLY),
        ('["x", 1.0, false, false, {}, 1]', Reason.BAD_REPLY),
        ('["x", 1.0, false, false, null]', Reason.BAD_REPLY),
        ('["x", 1.0, false, false, {"a": [[[[[1]]]]]}]', Reason.BAD_REPLY),
        ('["x", 1.0, false, false, {"a": 99999999999999999999999}]', Reason.BAD_REPLY),
        ('["\\\\ud800", 1.0, false, false, {}]', Reason.BAD_REPLY),
        ('["x", 1.0, false, false, {"a": "\\\\udfff"}]', Reason.BAD_REPLY),
        ('["' + "x" * 201 + '", 1.0, false, false, {}]', Reason.OUTPUT),
        ('["x", 1.0, false, false, {"a": ' + "[" * 5000 + "]" * 5000 + "}]", Reason.BAD_REPLY),
    ],
)
def test_what_is_refused_in_a_step(text, reason):
    with pytest.raises(EnvironmentFailure) as caught:
        parse_step(b"+" + text.encode().replace(b"\\\\", b"\\"), LIMITS)
    assert caught.value.reason is reason


def test_a_failure_may_only_claim_what_a_guest_can_know():
    told = {"reason": "exception", "detail": "d" * 9000, "trace": "", "output": "o" * 9000}
    with pytest.raises(EnvironmentFailure) as caught:
        parse_step(b"!" + json.dumps(told).encode(), LIMITS)
    assert caught.value.reason is Reason.EXCEPTION
    assert (len(caught.value.detail), len(caught.value.output)) == (400, 500)
    for claim in ({"reason": "cpu"}, {"reason": "hang"}, {"more": 1}):
        with pytest.raises(EnvironmentFailure) as caught:
            parse_step(b"!" + json.dumps(told | claim).encode(), LIMITS)
        assert caught.value.reason is Reason.BAD_REPLY


@pytest.mark.parametrize(("turns", "good"), [("null", True), ("3", True), ("0", False), ("-1", False), ("true", False)])
def test_turns_of_a_reset(turns, good):
    data = f'+["x", {{}}, {turns}]'.encode()
    if good:
        assert parse_reset(data, LIMITS).max_turns == json.loads(turns)
    else:
        with pytest.raises(EnvironmentFailure):
            parse_reset(data, LIMITS)
