"""Frames <-> messages: `header | body | buffer*`, msgpack with explicit limits, nothing ever unpickled.

What always holds: decoding hostile bytes raises `CodecError` with a code and never anything else; a decoded message has
exactly the types its class declares; the depth of a body is at most `Limits.depth`. Buffers are raw little-endian arrays,
described in the body by `Buffer` (dtype, shape, frame index), never msgpack lists.
"""

import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack  # type: ignore[import-untyped]
import msgspec

from spade_protocols.registry import BY_CLASS, BY_NAME, Kind, Message

VERSION = 1

DTYPES = {"u1": 1, "i4": 4, "i8": 8, "f4": 4, "f8": 8}
_BYTES = (bytes,)
_CODES: dict[str, Any] = {"u1": "B", "i4": "i", "i8": "q", "f4": "f", "f8": "d"}


class Limits(msgspec.Struct, frozen=True):
    """Bounds of one message, in bytes unless said otherwise."""

    header: int = 2048
    body: int = 1 << 20
    buffer: int = 1 << 26
    buffers: int = 256
    """frames after the body"""
    depth: int = 16
    """nesting of containers in a body"""


DEFAULT_LIMITS = Limits()


class CodecError(ValueError):
    """Bytes that are not a message of this protocol. `code` is one of the strings in `protocols/README.md`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The first frame, a msgpack array in this order."""

    version: int
    kind: str
    type: str
    id: str
    """made by the caller; a reply or error repeats it; an event has its own"""
    run: str
    trace: str
    sender: str
    deadline: float
    """absolute, seconds since the epoch; 0 = none; in an event: when it was committed"""
    seq: int = 0
    """events: the run's sequence number; 0 on an event frame = no event, only news"""


class Buffer(msgspec.Struct, frozen=True):
    """Describes one raw frame: `frame` counts from 0 after the body."""

    dtype: str
    shape: tuple[int, ...]
    frame: int


class Envelope(msgspec.Struct, frozen=True):
    """A decoded message with its header and raw buffers."""

    header: Header
    message: Message
    buffers: tuple[bytes, ...]


def _too_deep(value: object, limit: int) -> bool:
    children = value.values() if type(value) is dict else value if type(value) is list else None
    if children is None or not limit:
        return children is not None
    for child in children:  # noqa: SIM110 - a generator expression costs as much as the rest of the decoding
        if (type(child) is dict or type(child) is list) and _too_deep(child, limit - 1):
            return True
    return False


def pack_header(
    kind: str,
    type_: str,
    id_: str,
    run: str,
    trace: str,
    sender: str,
    deadline: float = 0.0,
    seq: int = 0,
) -> bytes:
    """The header frame from its fields (those of `Header`, without the version)."""
    packed: bytes = msgpack.packb((VERSION, kind, type_, id_, run, trace, sender, deadline, seq))
    return packed


def pack_body(message: Message) -> bytes:
    """A message's body frame; bytes travel as msgpack bin. The message must be of a registered class."""
    packed: bytes = msgpack.packb(msgspec.to_builtins(message, builtin_types=_BYTES))
    return packed


def _unpack(data: bytes, limit: int, what: str) -> Any:
    if len(data) > limit:
        raise CodecError("too_large", f"{what} of {len(data)} bytes, at most {limit}")
    try:
        return msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            max_str_len=limit,
            max_bin_len=limit,
            max_array_len=limit,
            max_map_len=limit,
            max_ext_len=0,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise CodecError("bad_msgpack", f"{what} is not msgpack within the limits: {error}"[:200]) from None


def unpack_body(name: str, data: bytes, limits: Limits = DEFAULT_LIMITS) -> Message:
    """A body frame as the message class registered under `name`.

    Raises:
        CodecError: `unknown_type`, `too_large`, `bad_msgpack`, `too_deep` or `bad_body`.
    """
    spec = BY_NAME.get(name)
    if spec is None:
        raise CodecError("unknown_type", f"unknown message type {name[:80]!r}")
    builtins = _unpack(data, limits.body, "body")
    if _too_deep(builtins, limits.depth):
        raise CodecError("too_deep", f"{name}: nested deeper than {limits.depth}")
    try:
        return msgspec.convert(builtins, spec.cls, strict=True, builtin_types=_BYTES)
    except (msgspec.ValidationError, OverflowError) as error:
        raise CodecError("bad_body", f"{name}: {error}"[:300]) from None


def pack_news(newest: Mapping[str, int]) -> bytes:
    """The last frame of an event: event type -> the newest sequence number before it.

    A follower of some types sees by it whether it missed any, although the numbers it gets have holes.
    """
    packed: bytes = msgpack.packb(dict(newest))
    return packed


def unpack_news(data: bytes, limits: Limits = DEFAULT_LIMITS) -> dict[str, int]:
    """The newest sequence number by event type.

    Raises:
        CodecError: `too_large`, `bad_msgpack` or `bad_body`.
    """
    try:
        return msgspec.convert(_unpack(data, limits.body, "news"), dict[str, int], strict=True)
    except (msgspec.ValidationError, OverflowError) as error:
        raise CodecError("bad_body", f"news: {error}"[:300]) from None


def encode(header: Header, message: Message, buffers: Sequence[bytes] = ()) -> list[bytes]:
    """The frames of one message."""
    packed: bytes = msgpack.packb(msgspec.structs.astuple(header))
    return [packed, pack_body(message), *buffers]


def decode_header(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Header:
    """The first frame alone, so that a bad body can still be answered by id.

    Raises:
        CodecError: `too_large`, `bad_msgpack`, `bad_header` or `version`.
    """
    builtins = _unpack(data, limits.header, "header")
    try:
        header = msgspec.convert(builtins, Header, strict=True)
    except (msgspec.ValidationError, OverflowError) as error:
        raise CodecError("bad_header", f"header: {error}"[:300]) from None
    if header.version != VERSION:
        raise CodecError("version", f"protocol version {header.version}, this side speaks {VERSION}")
    return header


def decode(frames: Sequence[bytes], limits: Limits = DEFAULT_LIMITS) -> Envelope:
    """Frames as a validated message.

    Raises:
        CodecError: with the code of what is wrong; nothing else, whatever the bytes.
    """
    if len(frames) < 2:
        raise CodecError("frames", f"{len(frames)} frames, at least header and body expected")
    if len(frames) - 2 > limits.buffers:
        raise CodecError("frames", f"{len(frames) - 2} buffers, at most {limits.buffers}")
    header = decode_header(frames[0], limits)
    message = unpack_body(header.type, frames[1], limits)
    kind = BY_CLASS[type(message)].kind
    if header.kind != kind and not (header.kind == Kind.ERROR and kind is Kind.REPLY):
        raise CodecError("bad_header", f"{header.type} is a {kind}, not a {header.kind[:20]!r}")
    for index, buffer in enumerate(frames[2:]):
        if len(buffer) > limits.buffer:
            raise CodecError("too_large", f"buffer {index} of {len(buffer)} bytes, at most {limits.buffer}")
    return Envelope(header, message, tuple(frames[2:]))


def pack_buffer(values: Any, dtype: str, frame: int) -> tuple[Buffer, bytes]:
    """A one-dimensional array (array.array, numpy or list of numbers) as description and raw little-endian bytes."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r}, expected one of {sorted(DTYPES)}")
    raw = array.array(_CODES[dtype], values).tobytes()
    return Buffer(dtype, (len(raw) // DTYPES[dtype],), frame), raw


def unpack_buffer(description: Buffer, buffers: Sequence[bytes]) -> "memoryview[Any]":
    """The values a `Buffer` describes, as a typed read-only memoryview.

    Raises:
        CodecError: `bad_buffer` when dtype, shape and bytes do not fit each other.
    """
    size = DTYPES.get(description.dtype)
    if size is None or not 0 <= description.frame < len(buffers) or any(n < 0 for n in description.shape):
        raise CodecError("bad_buffer", f"{description} does not describe one of {len(buffers)} buffers")
    count = 1
    for n in description.shape:
        count *= n
    raw = buffers[description.frame]
    if count * size != len(raw):
        raise CodecError("bad_buffer", f"{description} needs {count * size} bytes, the frame has {len(raw)}")
    return memoryview(raw).cast("B").cast(_CODES[description.dtype])
