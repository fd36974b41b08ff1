"""The codec against hostile bytes, golden vectors and the generated schema."""

import array
import json
from collections.abc import Callable
from typing import Any

import msgpack  # type: ignore[import-untyped]
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_protocols import catalog, schema, vectors
from spade_protocols.codec import (
    DTYPES,
    Buffer,
    CodecError,
    Header,
    Limits,
    decode,
    decode_header,
    encode,
    pack_body,
    pack_buffer,
    pack_header,
    pack_news,
    unpack_body,
    unpack_buffer,
    unpack_news,
)
from spade_protocols.common import Ack, Ping
from spade_protocols.queues import Item, Put
from spade_protocols.registry import BY_NAME, Kind, message_type, spec_of
from spade_protocols.sample import RunState

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
)


def _attempt(decoding: Callable[[], object]) -> object:
    """What was decoded, or the code of its refusal; anything else that is raised is the test's failure."""
    try:
        return decoding()
    except CodecError as error:
        return error.code


@given(frames=st.lists(st.binary(max_size=200), max_size=5))
def test_random_frames_raise_nothing_but_codec_errors(frames: list[bytes]) -> None:
    with pytest.raises(CodecError):
        decode(frames)


@given(name=st.sampled_from(sorted(BY_NAME)), body=st.binary(max_size=200) | trees.map(msgpack.packb), data=st.data())
@settings(max_examples=300)
def test_random_bodies_of_every_type_decode_to_that_type_or_raise_a_codec_error(
    name: str, body: bytes, data: st.DataObject
) -> None:
    result = _attempt(lambda: unpack_body(name, body))
    assert type(result) is BY_NAME[name].cls or result in {"bad_msgpack", "bad_body", "too_deep"}


@given(data=st.data())
@settings(max_examples=200)
def test_headers_with_random_fields_raise_nothing_but_codec_errors(data: st.DataObject) -> None:
    fields = data.draw(st.lists(scalars, min_size=8, max_size=10))
    result = _attempt(lambda: decode_header(msgpack.packb(fields)))
    assert isinstance(result, Header) or result in {"bad_header", "version", "bad_msgpack"}


@given(
    body=st.dictionaries(st.text(max_size=8), trees, max_size=5), buffers=st.lists(st.binary(max_size=50), max_size=3)
)
def test_what_was_encoded_decodes_to_the_same(body: dict[str, Any], buffers: list[bytes]) -> None:
    message = Put(queue="q", items=[Item(id="i", body=body)])
    header = Header(1, "call", "queue.put", "x.1", "run", "trace", "me", 5.5)
    decoded = decode(encode(header, message, buffers))
    assert (decoded.header, decoded.message, decoded.buffers) == (header, message, tuple(buffers))


@pytest.mark.parametrize("depth", [16, 17])
def test_a_body_nests_at_most_16_deep(depth: int) -> None:
    body: Any = 1
    for _ in range(depth - 3):  # the body, the list of items and the item are three
        body = {"a": body}
    packed = pack_body(Put(queue="q", items=[Item(id="i", body=body)]))
    if depth == 16:
        assert isinstance(unpack_body("queue.put", packed), Put)
    else:
        with pytest.raises(CodecError) as caught:
            unpack_body("queue.put", packed)
        assert caught.value.code == "too_deep"


@pytest.mark.parametrize("hostile", [b"\x91" * 1_000_000, b"\x81\xa1a" * 300_000, b"\xdf\xff\xff\xff\xff"])
def test_deep_and_lying_bodies_are_refused_without_harm(hostile: bytes) -> None:
    with pytest.raises(CodecError) as caught:
        unpack_body("ping", hostile)
    assert caught.value.code in {"bad_msgpack", "too_deep"}


def test_limits_are_checked_before_anything_is_built() -> None:
    limits = Limits(header=64, body=64, buffer=8, buffers=1)
    header = pack_header("call", "ping", "x.1", "", "", "a")
    for frames in (
        [header, b"\xa0" * 65],
        [header, b"\x80", b"123456789"],
        [header + b" " * 64, b"\x80"],
    ):
        with pytest.raises(CodecError) as caught:
            decode(frames, limits)
        assert caught.value.code == "too_large"
    with pytest.raises(CodecError) as caught:
        decode([header, b"\x80", b"", b""], limits)
    assert caught.value.code == "frames"


def test_events_ignore_unknown_fields_and_calls_refuse_them() -> None:
    extra = msgpack.packb({"state": "running", "later": 1})
    assert unpack_body("run.state", extra) == RunState(state="running")
    with pytest.raises(CodecError) as caught:
        unpack_body("ping", msgpack.packb({"later": 1}))
    assert caught.value.code == "bad_body"


@given(dtype=st.sampled_from(sorted(DTYPES)), values=st.lists(st.integers(0, 100), max_size=20))
def test_buffers_come_back_as_the_same_values(dtype: str, values: list[int]) -> None:
    description, raw = pack_buffer(values, dtype, 0)
    assert list(unpack_buffer(description, [raw])) == values
    assert description.shape == (len(values),)


@pytest.mark.parametrize(
    "description",
    [
        Buffer("f4", (3,), 0),
        Buffer("f2", (2,), 0),
        Buffer("f4", (2,), 1),
        Buffer("f4", (2,), -1),
        Buffer("f4", (-2, -1), 0),
        Buffer("f4", (2**40, 2**40), 0),
    ],
)
def test_a_buffer_that_does_not_fit_its_description_is_refused(description: Buffer) -> None:
    with pytest.raises(CodecError) as caught:
        unpack_buffer(description, [array.array("f", [1.0, 2.0]).tobytes()])
    assert caught.value.code == "bad_buffer"


def test_a_misaligned_buffer_of_another_sender_is_read_all_the_same() -> None:
    raw = memoryview(b"\x00" + array.array("i", [7, 8]).tobytes())[1:]
    assert list(unpack_buffer(Buffer("i4", (2,), 0), [bytes(raw)])) == [7, 8]


@given(newest=st.dictionaries(st.text(max_size=10), st.integers(0, 2**63 - 1), max_size=10))
def test_news_come_back(newest: dict[str, int]) -> None:
    assert unpack_news(pack_news(newest)) == newest


@given(data=st.binary(max_size=60))
def test_random_news_raise_nothing_but_codec_errors(data: bytes) -> None:
    result = _attempt(lambda: unpack_news(data))
    assert isinstance(result, dict) or result in {"bad_msgpack", "bad_body"}


def test_good_vectors_decode_to_their_meaning_and_encode_to_their_bytes() -> None:
    checked = 0
    for vector in json.loads((vectors.FOLDER / "good.json").read_text()):
        frames = [bytes.fromhex(frame) for frame in vector["frames"]]
        if "news" in vector:
            assert unpack_news(frames[0]) == vector["news"]
            continue
        envelope = decode(frames)
        assert msgspec.to_builtins(envelope.header) == vector["header"], vector["name"]
        assert json.loads(msgspec.json.encode(envelope.message)) == vector["message"], vector["name"]
        assert encode(envelope.header, envelope.message, envelope.buffers) == frames, vector["name"]
        checked += 1
    assert checked >= 15


def test_bad_vectors_are_refused_with_their_code() -> None:
    for vector in json.loads((vectors.FOLDER / "bad.json").read_text()):
        with pytest.raises(CodecError) as caught:
            decode([bytes.fromhex(frame) for frame in vector["frames"]])
        assert caught.value.code == vector["code"], vector["name"]


def test_vectors_and_schema_on_disk_are_what_the_types_say() -> None:
    for name, text in vectors.documents().items():
        assert (vectors.FOLDER / name).read_text() == text, f"run python -m spade_protocols.vectors ({name})"
    for name, text in schema.documents().items():
        assert (schema.FOLDER / name).read_text() == text, f"run python -m spade_protocols.schema ({name})"


def test_the_catalog_names_only_what_exists_and_everything_that_exists() -> None:
    served: set[str] = set()
    for contract in catalog.ROLES.values():
        served |= set(contract.serves)
        for name in (*contract.serves, *contract.calls):
            assert BY_NAME[name].kind is Kind.CALL
        for name in (*contract.follows, *contract.emits):
            assert BY_NAME[name].kind is Kind.EVENT
        assert {*contract.leases, *contract.puts} <= {"designs", "proposals", "plays", "samples"}
    calls = {name for name, spec in BY_NAME.items() if spec.kind is Kind.CALL}
    assert calls - served == {"ping"}
    emitted = {name for contract in catalog.ROLES.values() for name in contract.emits}
    assert {name for name, spec in BY_NAME.items() if spec.kind is Kind.EVENT} == emitted


def test_a_type_is_registered_once() -> None:
    assert spec_of(Ping()).name == "ping"
    register = message_type("ack")
    with pytest.raises(ValueError, match="registered twice"):
        register(Ack)
