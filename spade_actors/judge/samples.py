"""A sample's arrays out of the spool, and the checks on arrays that come in."""

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from spade_protocols.codec import Buffer, CodecError, unpack_buffer
from spade_protocols.sample import SampleData, Samples

MAX_IDS = 64
"""per call of sample.fetch"""

Spans = list[tuple[int, int, int]]


class BadDelivery(ValueError):
    """Arrays that do not fit each other; the text says which and how."""


class Ages(NamedTuple):
    """Weight versions of sampled tokens."""

    oldest: int
    newest: int
    first: int
    mean: float
    tokens: int


def ages(spans: Spans, length: int, fallback: int) -> Ages:
    """Versions over (version, start, end) spans within [0, length]; `fallback` where nothing was sampled.

    Raises:
        BadDelivery: a span is empty, out of range or overlaps the one before.
    """
    end = 0
    for version, start, stop in spans:
        if not end <= start < stop <= length or version < 0:
            raise BadDelivery(f"version span {(version, start, stop)} does not fit {length} tokens after {end}")
        end = stop
    tokens = sum(stop - start for _, start, stop in spans)
    if not tokens:
        return Ages(fallback, fallback, fallback, float(fallback), 0)
    versions = [version for version, _, _ in spans]
    mean = sum(version * (stop - start) for version, start, stop in spans) / tokens
    return Ages(min(versions), max(versions), versions[0], mean, tokens)


def array(description: Buffer, buffers: Sequence[bytes], dtype: str, length: int | None = None) -> bytes:
    """The raw bytes of a delivered one-dimensional array.

    Raises:
        BadDelivery: another dtype, shape or length than expected.
    """
    try:
        values = unpack_buffer(description, buffers)
    except CodecError as error:
        raise BadDelivery(str(error)) from error
    if description.dtype != dtype or len(description.shape) != 1:
        raise BadDelivery(f"array {description.dtype}{list(description.shape)}, expected one dimension of {dtype}")
    if length is not None and len(values) != length:
        raise BadDelivery(f"array of {len(values)} {dtype}, expected {length}")
    return bytes(buffers[description.frame])


def fetch(connection: sqlite3.Connection, ids: Sequence[str]) -> tuple[Samples, list[bytes]]:
    """The arrays of released samples, with their frames; ids without arrays are `missing`."""
    found: list[SampleData] = []
    missing: list[str] = []
    frames: list[bytes] = []
    for name in ids[:MAX_IDS]:
        row = connection.execute("SELECT role, advantage FROM samples WHERE id = ?", (name,)).fetchone()
        parts = None if row is None else (_play if row[0] == "agent" else _design)(connection, name)
        if parts is None:
            missing.append(name)
            continue
        tokens, mask, logprobs, versions, temperature, turns = parts
        found.append(
            SampleData(
                id=name,
                role=row[0],
                advantage=row[1],
                temperature=temperature,
                tokens=Buffer("i4", (len(tokens) // 4,), len(frames)),
                mask=Buffer("u1", (len(mask),), len(frames) + 1),
                logprobs=Buffer("f4", (len(logprobs) // 4,), len(frames) + 2),
                versions=versions,
                turns=turns,
            )
        )
        frames += [tokens, mask, logprobs]
    return Samples(samples=found, missing=[*missing, *ids[MAX_IDS:]]), frames


_Parts = tuple[bytes, bytes, bytes, Spans, float, int]


def _play(connection: sqlite3.Connection, name: str) -> _Parts | None:
    row = connection.execute(
        "SELECT tokens, mask, logprobs, versions, temperature, turn_count FROM trajectories WHERE play = ?", (name,)
    ).fetchone()
    if row is None or row[0] is None:
        return None
    return row[0], row[1], row[2], msgspec.json.decode(row[3], type=Spans), row[4], row[5]


def _design(connection: sqlite3.Connection, name: str) -> _Parts | None:
    row = connection.execute(
        "SELECT prompt, output, logprobs, versions, temperature FROM generations WHERE design = ?", (name,)
    ).fetchone()
    if row is None or row[0] is None:
        return None
    prompt, output, logprobs, versions, temperature = row
    start = len(prompt) // 4
    spans = [(v, a + start, b + start) for v, a, b in msgspec.json.decode(versions, type=Spans)]
    mask = b"\0" * start + b"\1" * (len(output) // 4)
    return prompt + output, mask, b"\0" * len(prompt) + logprobs, spans, temperature, 1
