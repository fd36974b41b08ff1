"""Leased items and fetched arrays, joined."""

import msgspec
import numpy as np
import pytest

from spade_actors.learner.fetch import arrange, chunks, leases
from spade_protocols.codec import Buffer, pack_buffer
from spade_protocols.queues import Leased
from spade_protocols.sample import SampleData, SampleItem, Samples

VOCABULARY = 50


def item(name: str, *, oldest: int = 3, body=None) -> Leased:
    fields = SampleItem(role="agent", trial="t", advantage=0.5, tokens=2, length=3, oldest=oldest, ready_version=4)
    body = msgspec.to_builtins(fields) if body is None else body
    return Leased(id=name, lease=f"l-{name}", attempt=1, body=body, group="g", put_at=9.0)


def data(name: str, first: int, **more) -> tuple[SampleData, list[bytes]]:
    tokens, a = pack_buffer([1, 2, 3], "i4", first)
    mask, b = pack_buffer([0, 1, 1], "u1", first + 1)
    logprobs, c = pack_buffer([0.0, -1.0, -2.0], "f4", first + 2)
    fields = {
        "id": name,
        "role": "agent",
        "advantage": 0.5,
        "temperature": 1.0,
        "tokens": tokens,
        "mask": mask,
        "logprobs": logprobs,
        "versions": [(3, 1, 3)],
        "turns": 1,
    }
    return SampleData(**fields | more), [a, b, c]


def answer(*parts: tuple[SampleData, list[bytes]]) -> tuple[Samples, list[bytes]]:
    return Samples(samples=[p[0] for p in parts]), [frame for p in parts for frame in p[1]]


def test_arrays_and_items_are_joined():
    out = arrange([item("a"), item("b", oldest=2)], [answer(data("a", 0), data("b", 3))], VOCABULARY)
    assert [(h.id, h.oldest, h.group, h.put_at) for h in out.held] == [("a", 3, "g", 9.0), ("b", 2, "g", 9.0)]
    assert leases(out.held) == {"a": "l-a", "b": "l-b"}
    assert out.refused == []
    sample = out.samples["a"]
    assert sample.tokens.tolist() == [1, 2, 3]
    assert sample.mask.tolist() == [False, True, True]
    assert sample.logprobs.tolist() == [0.0, -1.0, -2.0]
    assert sample.tokens.dtype == np.int64


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"advantage": float("nan")}, "finite"),
        ({"tokens": Buffer("i4", (4,), 0)}, "bytes"),
        ({"tokens": Buffer("i8", (3,), 0)}, "dtype"),
        ({"mask": Buffer("u1", (3,), 9)}, "does not describe"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_its_reason(change, reason):
    out = arrange([item("a"), item("b")], [answer(data("a", 0, **change), data("b", 3))], VOCABULARY)
    assert [h.id for h in out.held] == ["b"]
    assert set(out.samples) == {"b"}
    assert [r.id for r in out.refused] == ["a"]
    assert reason in out.refused[0].reason


def test_missing_ones_and_spoiled_items_are_refused():
    out = arrange([item("a"), item("b", body={"role": 1})], [answer(data("b", 0))], VOCABULARY)
    assert [(r.id, r.lease) for r in out.refused] == [("a", "l-a"), ("b", "l-b")]
    assert "does not have it" in out.refused[0].reason
    assert out.samples == {}


def test_chunks():
    ids = [str(i) for i in range(130)]
    assert [len(c) for c in chunks(ids)] == [64, 64, 2]
    assert [i for c in chunks(ids) for i in c] == ids
