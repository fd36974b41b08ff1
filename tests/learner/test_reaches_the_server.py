"""One optimizer step changes what a real server samples: trained here, published, loaded in flight, measured there."""

import os
import sys
from collections import Counter

import numpy as np
import trio

from spade_actors.config.schema import GeneratorConfig, LearnerConfig
from spade_actors.generator.child import running
from spade_actors.generator.launch import launch
from spade_actors.learner import publish
from spade_actors.learner.trainer import Sample, Trainer
from spade_actors.sampling.client import GenerateClient, SamplingParams
from tests.learner.samples import model

PROMPT = [1, 2, 3, 4]


async def sample(client: GenerateClient, count: int) -> list[tuple[int, float, str]]:
    """First tokens with their log-probabilities and versions."""
    params = SamplingParams(max_new_tokens=1, temperature=1.0, ignore_eos=True)
    out: list[tuple[int, float, str]] = []

    async def one() -> None:
        made = await client.generate(PROMPT, params)
        out.append((made.output_ids[0], float(made.logprobs[0]), made.version_spans[0].version))

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(one)
    return out


def trained_on(tokens: list[int], logprobs: list[float], advantages: list[float]) -> list[Sample]:
    mask = np.array([False] * len(PROMPT) + [True])
    return [
        Sample(f"s{i}", "agent", advantage, 1.0, np.array([*PROMPT, token]), mask, np.array([0] * 4 + [lp], np.float32))
        for i, (token, lp, advantage) in enumerate(zip(tokens, logprobs, advantages, strict=True))
    ]


def test_one_step_changes_what_the_generator_samples(tmp_path):
    weights = tmp_path / "weights"
    net = model()
    publish.write(weights, net, tmp_path, version=0, step=0, parent=-1)
    config = GeneratorConfig(slots=32, max_len=64)
    start = launch(config, publish.folder_of(weights, 0), 0, 0, {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})

    async def main() -> None:
        async with running(start, 0, tmp_path / "server.log", start_s=60) as child:
            client = GenerateClient(f"http://127.0.0.1:{child.port}")
            before = await sample(client, 48)
            assert {version for _, _, version in before} == {"0"}
            (favourite, was), *_ = Counter(token for token, _, _ in before).most_common()
            advantages = [1.0 if token == favourite else -was / (len(before) - was) for token, _, _ in before]
            batch = trained_on([t for t, _, _ in before], [lp for _, lp, _ in before], advantages)
            learner = LearnerConfig(lr=0.003, minibatches=1, agent_kl=0.0)
            metrics = Trainer(net, None, learner, seed=1).step(batch, 1).metrics
            # The server's log-probabilities are those of the trainer's forward but for bf16 weights.
            assert abs(metrics["weight_mean"] - 1.0) < 0.05
            publish.write(weights, net, tmp_path, version=1, step=1, parent=0)
            async with client.paused("in_place"):
                assert (await client.update_weights_from_disk(str(publish.folder_of(weights, 1)), "1")).success
            after = await sample(client, 192)
            assert {version for _, _, version in after} == {"1"}
            # The same token by the same prompt: the server now finds it likelier.
            assert dict(t[:2] for t in after)[favourite] > dict(t[:2] for t in before)[favourite] + 0.15

    trio.run(main)
