"""Leased samples with their arrays: from queue items and the judge's spool to what a trainer takes. Pure.

Always holds: every leased item comes out exactly once, as a sample or as a refusal with its reason.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from spade_actors.learner.batch import Held
from spade_actors.learner.trainer import BadSample, Sample
from spade_protocols.codec import Buffer, CodecError, unpack_buffer
from spade_protocols.queues import Leased
from spade_protocols.sample import SampleData, SampleItem, Samples

FETCH_MOST = 64
"""ids of one `sample.fetch`"""


class Refused(NamedTuple):
    """A leased item that cannot be trained."""

    id: str
    lease: str
    reason: str


class Sorted(NamedTuple):
    """What became of leased items."""

    held: list[Held]
    samples: dict[str, Sample]
    refused: list[Refused]


def arrange(items: Sequence[Leased], answers: Sequence[tuple[Samples, Sequence[bytes]]], vocabulary: int) -> Sorted:
    """Joins leased items with the arrays fetched for them (each answer with its frames)."""
    found: dict[str, Sample] = {}
    wrong: dict[str, str] = {}
    for reply, buffers in answers:
        for data in reply.samples:
            try:
                found[data.id] = _sample(data, buffers, vocabulary)
            except (BadSample, CodecError) as error:
                wrong[data.id] = str(error)
    out = Sorted([], found, [])
    for item in items:
        try:
            body = msgspec.convert(item.body, SampleItem)
        except msgspec.ValidationError as error:
            wrong[item.id] = f"not a sample's item: {error}"
        if item.id in wrong or item.id not in found:
            found.pop(item.id, None)
            out.refused.append(Refused(item.id, item.lease, wrong.get(item.id, "the spool does not have it")))
            continue
        group = item.group or item.id
        out.held.append(Held(item.id, item.lease, group, found[item.id].role, body.oldest, item.put_at))
    return out


def chunks(ids: Sequence[str]) -> list[list[str]]:
    """Ids cut for `sample.fetch`."""
    return [list(ids[i : i + FETCH_MOST]) for i in range(0, len(ids), FETCH_MOST)]


def leases(held: Sequence[Held]) -> Mapping[str, str]:
    """id -> lease."""
    return {sample.id: sample.lease for sample in held}


def _sample(data: SampleData, buffers: Sequence[bytes], vocabulary: int) -> Sample:
    sample = Sample(
        id=data.id,
        role=data.role,
        advantage=data.advantage,
        temperature=data.temperature,
        tokens=_array(data.tokens, "i4", buffers).astype(np.int64),
        mask=_array(data.mask, "u1", buffers).astype(bool),
        logprobs=_array(data.logprobs, "f4", buffers).astype(np.float32),
    )
    sample.check(vocabulary)
    return sample


def _array(description: Buffer, dtype: str, buffers: Sequence[bytes]) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    if description.dtype != dtype:
        raise BadSample(f"a buffer of dtype {description.dtype!r}, expected {dtype!r}")
    return np.frombuffer(unpack_buffer(description, buffers), dtype="<" + {"i4": "i4", "u1": "u1", "f4": "f4"}[dtype])
