"""A step against a slow reference, and what must not change it."""

import copy
import math
import random

import msgspec
import numpy as np
import pytest
import torch

from spade_actors.config.schema import LearnerConfig
from spade_actors.learner.batch import minibatches
from spade_actors.learner.trainer import BadSample, Sample, Trainer, pack, score
from tests.learner.samples import TINY, logprobs_of, model, samples

CONFIG = LearnerConfig(
    minibatches=3, lr=1e-2, microbatch_tokens=64, designer_weight=6.0, agent_kl=0.02, designer_kl=0.2
)


def slow_step(net, initial, config: LearnerConfig, batch: list[Sample], seed: int, number: int) -> list[float]:
    """The step written out sample by sample, token by token; returns each minibatch's loss."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=config.lr, betas=config.betas, weight_decay=0.0)
    prox = {s.id: logprobs_of(net, s.tokens, s.temperature) for s in batch}
    losses = []
    for indices in minibatches([s.role for s in batch], config.minibatches, random.Random(f"{seed}/{number}")):
        part = [batch[i] for i in indices]
        count = {r: sum(int(s.mask[1:].sum()) for s in part if s.role == r) for r in ("agent", "designer")}
        loss = torch.zeros(())
        for s in part:
            weight, beta = (
                (config.agent_weight, config.agent_kl)
                if s.role == "agent"
                else (config.designer_weight, config.designer_kl)
            )
            logps = torch.log_softmax(net(torch.from_numpy(s.tokens)[None])[0] / s.temperature, -1)
            with torch.no_grad():
                theirs = torch.log_softmax(initial(torch.from_numpy(s.tokens)[None])[0] / s.temperature, -1)
            for t in range(1, len(s.tokens)):
                if not s.mask[t]:
                    continue
                p, q = logps[t - 1], theirs[t - 1]
                w = min(config.weight_cap, math.exp(prox[s.id][t] - s.logprobs[t]))
                ratio = torch.exp(p[s.tokens[t]] - float(prox[s.id][t]))
                clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
                policy = -w * torch.minimum(ratio * s.advantage, clipped * s.advantage)
                kl = (
                    (p.exp() * (p - q)).sum()
                    if config.kl == "full"
                    else torch.exp(q[s.tokens[t]] - p[s.tokens[t]]) - (q[s.tokens[t]] - p[s.tokens[t]]) - 1
                )
                loss = loss + weight / count[s.role] * (policy + beta * kl)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), config.clip)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def difference(a, b) -> float:
    return max(float((x - y).detach().abs().max()) for x, y in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("kl", ["full", "k3"])
def test_a_step_equals_the_slow_reference(kl):
    config = msgspec.structs.replace(CONFIG, kl=kl)
    net, initial = model(3), model(4)
    batch = samples(net, 12, noise=0.4)
    slow = copy.deepcopy(net)
    losses = slow_step(slow, initial, config, batch, 7, 1)
    result = Trainer(net, initial, config, seed=7).step(batch, 1)
    assert result.metrics["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    # Adam divides by the gradient's size, so parameters see float noise of tiny gradients enlarged.
    assert difference(net, slow) < 2e-4
    assert difference(net, model(3)) > 1e-2


def test_cutting_into_micro_batches_changes_neither_loss_nor_gradient():
    gradients, losses = [], []
    for budget in (64, 200, 100_000):
        net = model()
        config = msgspec.structs.replace(CONFIG, minibatches=1, lr=0.0, clip=1e9, microbatch_tokens=budget)
        trainer = Trainer(net, model(4), config, seed=1)
        losses.append(trainer.step(samples(net, 16, noise=0.3), 1).metrics["loss"])
        gradients.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
    scale = float(gradients[0].abs().max())
    for loss, gradient in zip(losses[1:], gradients[1:], strict=True):
        assert loss == pytest.approx(losses[0], rel=1e-6)
        assert float((gradient - gradients[0]).abs().max()) / scale < 5e-6  # float32 sums in another order


def test_on_policy_figures():
    net = model()
    config = msgspec.structs.replace(CONFIG, minibatches=1)
    metrics = Trainer(net, model(3), config, seed=1).step(samples(net, 8), 1).metrics
    for name, value in {"ratio_mean": 1, "ratio_max": 1, "clipped_share": 0, "weight_mean": 1, "ess": 1}.items():
        assert metrics[name] == pytest.approx(value, abs=1e-5), name
    assert metrics["kl_agent"] == pytest.approx(0, abs=1e-6)
    assert metrics["k3_sampler_trainer"] == pytest.approx(0, abs=1e-6)
    assert metrics["entropy_agent"] > 0


def test_a_step_makes_the_rewarded_tokens_likelier_and_the_punished_ones_less_likely():
    net = model()
    config = msgspec.structs.replace(CONFIG, minibatches=1, agent_kl=0.0, designer_kl=0.0, lr=1e-3)
    batch = [s for s in samples(net, 8) if s.role == "agent"][:2]
    batch = [
        Sample(s.id, s.role, a, s.temperature, s.tokens, s.mask, s.logprobs)
        for s, a in zip(batch, (1.0, -1.0), strict=True)
    ]
    before = [logprobs_of(net, s.tokens, s.temperature)[s.mask].sum() for s in batch]
    Trainer(net, None, config, seed=1).step(batch, 1)
    after = [logprobs_of(net, s.tokens, s.temperature)[s.mask].sum() for s in batch]
    assert after[0] > before[0]
    assert after[1] < before[1]


def test_learning_rate_zero_leaves_the_weights_and_still_reports():
    net = model()
    config = msgspec.structs.replace(CONFIG, lr=0.0)
    metrics = Trainer(net, model(4), config, seed=1).step(samples(net, 8), 1).metrics
    assert difference(net, model()) == 0.0
    assert metrics["grad_norm"] > 0


def test_a_role_of_weight_zero_is_not_trained():
    net, other = model(), model()
    batch = samples(net, 8)
    frozen = msgspec.structs.replace(CONFIG, designer_weight=0.0, minibatches=1)
    metrics = Trainer(net, model(4), frozen, seed=1).step(batch, 1).metrics
    Trainer(other, model(4), frozen, seed=1).step([s for s in batch if s.role == "agent"], 1)
    assert difference(net, other) < 1e-6
    assert "policy_designer" not in metrics


def test_only_designers_of_weight_zero_is_a_step_that_changes_nothing():
    net = model()
    frozen = msgspec.structs.replace(CONFIG, designer_weight=0.0)
    batch = [s for s in samples(net, 8) if s.role == "designer"]
    assert Trainer(net, model(4), frozen, seed=1).step(batch, 1).metrics["trained_tokens"] == 0
    assert difference(net, model()) == 0.0


def test_a_gradient_that_is_not_finite_is_skipped_and_counted():
    net = model()
    batch = samples(net, 6)
    config = msgspec.structs.replace(CONFIG, minibatches=1)
    trainer = Trainer(net, None, config, seed=1)
    batch[0] = Sample("s0", "agent", 3e38, 1.0, batch[0].tokens, batch[0].mask, batch[0].logprobs - 5.0)
    result = trainer.step(batch, 1)
    assert result.skipped == 1
    assert all(math.isfinite(v) for v in result.metrics.values())
    assert difference(net, model()) == 0.0


def test_resumed_training_equals_uninterrupted_training():
    through, first = model(), model()
    recorder = model()
    batches = [samples(recorder, 9, seed=i, noise=0.1) for i in range(4)]
    whole = Trainer(through, model(4), CONFIG, seed=5)
    for number, batch in enumerate(batches):
        whole.step(batch, number)
    begun = Trainer(first, model(4), CONFIG, seed=5)
    for number in range(2):
        begun.step(batches[number], number)
    state = begun.state()
    begun.step(batches[3], 9)  # what is lost in the crash must not leak into the copy
    resumed_net = model(8)
    resumed = Trainer(resumed_net, model(4), CONFIG, seed=5)
    resumed.restore(state)
    for number in (2, 3):
        resumed.step(batches[number], number)
    assert difference(through, resumed_net) == 0.0


def test_packed_scores_equal_one_sequence_at_a_time():
    net = model()
    batch = samples(net, 10)
    for row in pack(batch, 70):
        got = score(net, row).logp.detach()
        want = np.concatenate([batch[i].logprobs[1:][batch[i].mask[1:]] for i in row.indices])
        assert float((got - torch.from_numpy(want)).abs().max()) < 1e-4
        whole = score(net, row, whole=True)
        assert float((whole.logp.detach() - got).abs().max()) < 1e-5


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"role": "scorer"}, "role"),
        ({"tokens": np.array([1, 2, 99])}, "token id"),
        ({"logprobs": np.zeros(2, np.float32)}, "logprobs"),
        ({"mask": np.array([True, False, False])}, "no trained token"),
        ({"logprobs": np.array([0, np.nan, 0], np.float32)}, "finite"),
        ({"advantage": math.inf}, "finite"),
        ({"temperature": 0.0}, "temperature"),
    ],
)
def test_samples_that_cannot_be_trained_say_why(change, text):
    fields = {
        "id": "s",
        "role": "agent",
        "advantage": 1.0,
        "temperature": 1.0,
        "tokens": np.array([1, 2, 3]),
        "mask": np.array([False, True, True]),
        "logprobs": np.zeros(3, np.float32),
    }
    Sample(**fields).check(TINY.vocab_size)
    with pytest.raises(BadSample, match=text):
        Sample(**fields | change).check(TINY.vocab_size)
