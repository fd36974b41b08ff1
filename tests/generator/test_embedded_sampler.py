"""The sampler: right distribution, right restriction, right numbers."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_actors.generator.embedded.sampler import Sampler, excluded


def params(temperature=1.0, top_p=1.0, top_k=-1, min_p=0.0):
    return SimpleNamespace(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p)


def draw(logits, count, **options):
    rows = np.repeat(np.array([logits], np.float32), count, axis=0)
    return Sampler(len(logits)).sample(rows, [params(**options)] * count, [3] * count, range(count))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_are_those_of_the_softmax(temperature):
    logits, count = np.array([2.0, 1.0, 0.0, -1.0, -6.0], np.float32), 40_000
    p = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
    found = np.bincount(draw(logits, count, temperature=temperature).tokens, minlength=5) / count
    assert (np.abs(found - p) < 4.5 * np.sqrt(p * (1 - p) / count)).all()


def test_seeds_are_independent_of_each_other():
    noise = Sampler(1000).gumbel([1, 2, 1, 1], [5, 5, 6, 5])
    assert (noise[0] == noise[3]).all()
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.corrcoef(noise[a], noise[b])[0, 1]) < 0.12


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63), st.integers(0, 2**20)), min_size=1, max_size=20))
def test_noise_is_finite_for_any_seed(pairs):
    assert np.isfinite(Sampler(500).gumbel([s for s, _ in pairs], [p for _, p in pairs])).all()


def test_logprobs_are_of_the_temperature_softmax_whatever_is_excluded():
    logits = np.array([3.0, 2.0, 1.0, 0.0], np.float32)
    sampled = draw(logits, 200, temperature=0.8, top_k=2)
    expected = logits / 0.8 - np.log(np.exp(logits / 0.8).sum())
    assert set(sampled.tokens) == {0, 1}
    np.testing.assert_allclose(sampled.logprobs, expected[sampled.tokens], atol=1e-5)


def test_greedy_and_sampled_rows_mix():
    logits = np.array([[0.0, 5.0, 1.0]] * 3, np.float32)
    mixed = [params(0.0), params(1.0), params(0.0)]
    sampled = Sampler(3).sample(logits, mixed, [1, 1, 2], [0, 0, 0])
    assert sampled.tokens[[0, 2]].tolist() == [1, 1]
    np.testing.assert_allclose(sampled.logprobs[0], 5 - np.log(np.exp([0, 5, 1]).sum()), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "out"),
    [
        ({"top_k": 1}, [0, 1, 3]),
        ({"top_p": 0.49}, [0, 1, 3]),
        ({"top_p": 0.51}, [0, 1]),
        ({"top_p": 0.85}, [0]),
        ({"min_p": 0.5}, [0, 1]),
        ({"top_p": 1e-9}, [0, 1, 3]),
        ({"top_k": 3, "top_p": 0.6, "min_p": 0.1}, [0, 1]),
        ({}, []),
    ],
)
def test_what_is_excluded(options, out):
    logprobs = np.log(np.array([0.05, 0.15, 0.5, 0.3], np.float32))
    assert sorted(excluded(logprobs, params(**options)).tolist()) == out
