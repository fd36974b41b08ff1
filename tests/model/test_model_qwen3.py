"""The training model: parity with transformers, padding and packing that change nothing, scoring of tokens."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_actors.model.config import ModelConfig
from spade_actors.model.files import save
from spade_actors.model.logprobs import token_logprobs
from spade_actors.model.packing import Packing
from spade_actors.model.qwen3 import Qwen3

SMALL = ModelConfig(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, head_dim=16)


def lively(config=SMALL, seed=1):
    """A model whose weights are large enough for attention to matter, norms included."""
    model = Qwen3(config, seed=seed)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw) * 0.1)
    return model


def tokens(*shape, seed=0):
    return torch.randint(0, SMALL.vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def test_parameter_names_are_those_of_the_weight_file():
    for config in (SMALL, ModelConfig(tie_word_embeddings=False)):
        shapes = {name: tuple(value.shape) for name, value in Qwen3(config).state_dict().items()}
        assert shapes == config.weight_shapes()


@pytest.mark.parametrize("tied", [True, False])
def test_logits_equal_transformers(tmp_path, tied):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra: learner)")
    config = ModelConfig(vocab_size=97, num_hidden_layers=2, rope_theta=1e6, tie_word_embeddings=tied)
    model = lively(config)
    save(model, tmp_path / "m", dtype=torch.float32)
    theirs = transformers.Qwen3ForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32)
    ids = tokens(2, 40)
    with torch.no_grad():
        torch.testing.assert_close(model(ids), theirs(ids).logits, atol=2e-5, rtol=1e-4)


def test_padding_at_the_right_changes_nothing():
    model, ids = lively(), tokens(1, 12)
    padded = torch.cat((ids, torch.zeros(1, 5, dtype=torch.int64)), dim=1)
    torch.testing.assert_close(model(padded)[:, :12], model(ids))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_every_packed_token_is_in_one_rectangle(lengths):
    packing = Packing.of(lengths)
    flat = torch.cat([index.reshape(-1) for index in packing.rectangles])
    assert torch.equal(flat[packing.inverse], torch.arange(sum(lengths)))
    assert torch.equal(packing.positions, torch.cat([torch.arange(n) for n in lengths]))
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    for index in packing.rectangles:
        assert torch.equal(document[index], document[index[:, :1]].expand_as(index))
        assert set(index[:, 0].tolist()) <= set(starts)


def test_packed_and_single_documents_give_the_same_loss_and_gradients():
    lengths = [3, 30, 7, 1, 29, 12]
    rows = [tokens(n, seed=n) for n in lengths]
    one, many = lively(), lively()
    packed = one(torch.cat(rows), packing=Packing.of(lengths)).log_softmax(-1).square().sum()
    apart = sum(many(row[None]).log_softmax(-1).square().sum() for row in rows)
    packed.backward()
    apart.backward()
    torch.testing.assert_close(packed, apart, rtol=1e-5, atol=0)
    for (name, a), b in zip(one.named_parameters(), many.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5 * float(b.grad.abs().max()), msg=name)


@pytest.mark.parametrize("bad", [[], [0], [3, -1]])
def test_empty_documents_are_refused(bad):
    with pytest.raises(ValueError, match="lengths"):
        Packing.of(bad)


def test_a_row_that_does_not_match_its_packing_is_refused():
    with pytest.raises(ValueError, match="match the packing"):
        lively()(tokens(5), packing=Packing.of([4]))


@pytest.mark.parametrize("chunk", [7, 50, 4096])
@pytest.mark.parametrize("uses", ["logprobs", "entropy", "both"])
def test_token_logprobs_equal_the_plain_softmax_gradients_too(chunk, uses):
    model, ids = lively(), tokens(50)
    hidden = model.hidden(ids[None])[0].detach().requires_grad_()
    weight = model.output_weight.detach().clone().requires_grad_()
    temperature, pull = torch.linspace(0.5, 2.0, 50), torch.linspace(-1, 1, 50)
    plain = (hidden @ weight.T / temperature[:, None]).log_softmax(-1)
    logprobs, entropy = plain.gather(-1, ids[:, None])[:, 0], -(plain.exp() * plain).sum(-1)
    got = token_logprobs(hidden, weight, ids, temperature=temperature, chunk=chunk)
    torch.testing.assert_close(got.logprobs, logprobs)
    torch.testing.assert_close(got.entropy, entropy)

    def loss(logprobs, entropy):
        return sum(
            (pull * x).sum() for x, name in ((logprobs, "logprobs"), (entropy, "entropy")) if uses in (name, "both")
        )

    expected = torch.autograd.grad(loss(logprobs, entropy), (hidden, weight))
    found = torch.autograd.grad(loss(*got), (hidden, weight))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
