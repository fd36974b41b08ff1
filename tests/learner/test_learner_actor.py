"""The learner against a real hub: counting, publishing, checkpoints, and what a crash does to samples."""

import shutil
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import torch
import trio

from spade_actors.config.schema import Config, JudgeConfig, LearnerConfig, RunConfig
from spade_actors.learner import checkpoint, publish
from spade_actors.learner.actor import Learner
from spade_actors.model import files
from spade_actors.model.config import ModelFormatError
from spade_actors.runtime.testing import context, running_hub
from spade_protocols.codec import pack_buffer
from spade_protocols.queues import SAMPLES, Item, ItemEnded
from spade_protocols.sample import (
    FetchSamples,
    LearnerCheckpointed,
    LearnerStarted,
    LearnerStepped,
    SampleData,
    SampleItem,
    Samples,
    WeightsPublished,
)
from tests.learner.samples import model, samples

FOLLOWED = (LearnerStarted, LearnerStepped, LearnerCheckpointed, WeightsPublished, ItemEnded)


class World:
    """A hub, a judge with a spool, and everything that was said."""

    def __init__(self, hub: str, run_dir: Path, config: Config) -> None:
        self.hub, self.run_dir, self.config = hub, run_dir, config
        self.spool: dict[str, object] = {}
        self.said: list[object] = []
        self.heard = trio.Event()
        self.fetched: list[str] = []
        self.put_count = 0

    def of(self, kind) -> list:
        return [m for m in self.said if isinstance(m, kind)]

    async def until(self, condition) -> None:
        with trio.fail_after(30):
            while not condition():
                await self.heard.wait()

    def serve_samples(self, call) -> tuple[Samples, list[bytes]]:
        self.fetched += call.message.ids
        found, frames, missing = [], [], []
        for id_ in call.message.ids:
            s = self.spool.get(id_)
            if s is None:
                missing.append(id_)
                continue
            parts = [(s.tokens, "i4"), (s.mask.tolist(), "u1"), (s.logprobs, "f4")]
            packed = [pack_buffer(list(v), dtype, len(frames) + i) for i, (v, dtype) in enumerate(parts)]
            frames += [raw for _, raw in packed]
            tokens, mask, logprobs = (d for d, _ in packed)
            found.append(
                SampleData(
                    id=id_,
                    role=s.role,
                    advantage=s.advantage,
                    temperature=s.temperature,
                    tokens=tokens,
                    mask=mask,
                    logprobs=logprobs,
                    versions=[],
                    turns=1,
                )
            )
        return Samples(samples=found, missing=missing), frames

    async def put(self, judge, count: int, *, oldest: int = 0, spool: bool = True) -> list[str]:
        """Groups of 4 samples."""
        items = []
        for i, s in enumerate(samples(model(), count, seed=self.put_count)):
            name = f"p{self.put_count}.{i}"
            if spool:
                self.spool[name] = s
            body = SampleItem(
                role=s.role,
                trial="t",
                advantage=s.advantage,
                tokens=1,
                length=len(s.tokens),
                oldest=oldest,
                ready_version=oldest,
            )
            group = f"g{self.put_count}.{i // 4}"
            items.append(Item(id=name, body=msgspec.to_builtins(body), group=group, attempts=100))
        self.put_count += 1
        await judge.hub.put(SAMPLES, items)
        return [item.id for item in items]

    async def states(self, ctx, ids) -> dict[str, str]:
        return (await ctx.hub.find(SAMPLES, ids)).states

    async def outcomes(self, ctx, ids) -> dict[str, str]:
        return {i: r.get("outcome", "") for i, r in (await ctx.hub.find(SAMPLES, ids)).results.items()}


@asynccontextmanager
async def world(tmp_path: Path, **learner):
    base = tmp_path / "base"
    if not base.exists():
        files.save(model(), base)
    steps = learner.pop("steps", 3)
    staleness = learner.pop("staleness", 10)
    settings = {
        "batch": 8,
        "min_batch": 4,
        "max_wait_s": 0.3,
        "minibatches": 2,
        "checkpoint_every": 2,
        "designer_share": 0.25,
        "lr": 1e-2,
    }
    config = Config(
        run=RunConfig(steps=steps, model=str(base)),
        judge=JudgeConfig(max_staleness_agent=staleness),
        learner=LearnerConfig(**settings | learner),
    )
    run_dir = tmp_path / "run"
    run_dir.mkdir(exist_ok=True)
    async with running_hub(run_dir, config=config) as hub:
        w = World(hub, run_dir, config)
        async with context("judge", role="judge", hub=hub) as judge, trio.open_nursery() as nursery:
            await judge.serve({FetchSamples: w.serve_samples})

            async def listen(task_status) -> None:
                async with judge.events(*FOLLOWED) as events:
                    task_status.started()
                    async for stored in events:
                        w.said.append(stored.message)
                        w.heard.set()
                        w.heard = trio.Event()

            await nursery.start(listen)
            yield w, judge
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def learning(w: World, *, crash: bool = False):
    """A learner for the length of the block; leaving drains it, or with `crash` cuts it off as a kill does."""
    async with context(
        "learner", role="learner", hub=w.hub, run_dir=w.run_dir, config=w.config, leave=not crash
    ) as ctx:
        learner = Learner(ctx)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(learner.run)
            yield learner
            if crash:
                nursery.cancel_scope.cancel()
            else:
                ctx.draining.set()


def test_a_run_counts_publishes_checkpoints_and_ends(tmp_path):
    async def main():
        async with world(tmp_path) as (w, judge), learning(w):
            ids = await w.put(judge, 24)
            await w.until(lambda: len(w.of(LearnerStepped)) == 3 and len(w.of(LearnerCheckpointed)) == 2)
            assert [m.step for m in w.of(LearnerStepped)] == [1, 2, 3]
            assert [m.final for m in w.of(LearnerStepped)] == [False, False, True]
            assert [m.samples for m in w.of(LearnerStepped)] == [8, 8, 8]
            assert sum(m.by_role["agent"] for m in w.of(LearnerStepped)) == 18
            assert [(m.version, m.step, m.parent) for m in w.of(WeightsPublished)] == [
                (0, 0, -1),
                (1, 1, 0),
                (2, 2, 1),
                (3, 3, 2),
            ]
            assert [m.step for m in w.of(LearnerCheckpointed)] == [2, 3]
            assert set((await w.states(judge, ids)).values()) == {"completed"}
            assert set((await w.outcomes(judge, ids)).values()) == {"trained"}
            metrics = w.of(LearnerStepped)[0].metrics
            for name in ("loss", "kl_agent", "ess", "tokens", "seconds_train", "seconds_wait", "grad_norm"):
                assert name in metrics
            first = files.load(publish.folder_of(w.run_dir / "weights", 0))
            last = files.load(publish.folder_of(w.run_dir / "weights", 3))
            moved = [not torch.equal(a, b) for a, b in zip(first.parameters(), last.parameters(), strict=True)]
            assert all(moved)

    trio.run(main)


def test_learning_rate_zero_steps_publishes_and_counts(tmp_path):
    async def main():
        async with world(tmp_path, lr=0.0, steps=2) as (w, judge), learning(w):
            await w.put(judge, 16)
            await w.until(lambda: len(w.of(LearnerCheckpointed)) == 1)
            assert [m.version for m in w.of(WeightsPublished)] == [0, 1, 2]
            assert len({m.sha256 for m in w.of(WeightsPublished)}) == 1

    trio.run(main)


def test_a_late_batch_starts_with_what_is_there_and_stale_or_bad_samples_end_with_a_reason(tmp_path):
    async def main():
        async with world(tmp_path, steps=4, staleness=2) as (w, judge), learning(w):
            first = await w.put(judge, 8)
            await w.until(lambda: len(w.of(LearnerStepped)) == 1)
            lost = await w.put(judge, 4, spool=False)
            await w.put(judge, 4, oldest=1)
            await w.until(lambda: len(w.of(LearnerStepped)) == 2)
            assert w.of(LearnerStepped)[1].samples == 4
            await w.put(judge, 8, oldest=2)
            await w.until(lambda: len(w.of(LearnerStepped)) == 3)
            old = await w.put(judge, 4, oldest=0)
            await w.put(judge, 8, oldest=3)
            await w.until(lambda: len(w.of(LearnerCheckpointed)) == 2)
            assert set((await w.outcomes(judge, lost)).values()) == {"refused"}
            assert set((await w.outcomes(judge, old)).values()) == {"stale"}
            assert set((await w.outcomes(judge, first)).values()) == {"trained"}
            assert w.of(LearnerStepped)[3].stale == 4
            assert w.of(LearnerStepped)[3].staleness == {"0": 8}

    trio.run(main)


def test_drain_checkpoints_and_hands_back_and_a_restart_goes_on(tmp_path):
    async def main():
        async with world(tmp_path, steps=5, checkpoint_every=100) as (w, judge):
            async with learning(w):
                ids = await w.put(judge, 10)
                await w.until(lambda: len(w.of(LearnerStepped)) == 1)
            states = await w.states(judge, ids)
            assert sorted(states.values()) == ["completed"] * 8 + ["ready"] * 2
            assert [m.step for m in w.of(LearnerCheckpointed)] == [1]
            async with learning(w):
                await w.put(judge, 8, oldest=1)
                await w.until(lambda: len(w.of(LearnerStepped)) == 2)
            assert [(m.step, m.version) for m in w.of(LearnerStarted)] == [(0, 0), (1, 1)]
            assert [(m.version, m.parent) for m in w.of(WeightsPublished)] == [(0, -1), (1, 0), (2, 1)]

    trio.run(main)


def test_a_crash_loses_steps_not_samples_and_versions_go_on(tmp_path):
    async def main():
        async with world(tmp_path, steps=6, checkpoint_every=2) as (w, judge):
            async with learning(w, crash=True):
                ids = await w.put(judge, 24)
                await w.until(lambda: len(w.of(LearnerStepped)) == 3)
            async with learning(w):
                await w.until(lambda: len(w.of(LearnerStepped)) == 4)
            stepped = w.of(LearnerStepped)
            # Step 3 was lost with the crash: its samples were trained again, as step 3, under a new version.
            assert [m.step for m in stepped] == [1, 2, 3, 3]
            assert [(m.version, m.step, m.parent) for m in w.of(WeightsPublished)] == [
                (0, 0, -1),
                (1, 1, 0),
                (2, 2, 1),
                (3, 3, 2),
                (4, 2, 2),
                (5, 3, 4),
            ]
            assert set((await w.outcomes(judge, ids)).values()) == {"trained"}

    trio.run(main)


@pytest.mark.parametrize("steps", [6, 2], ids=["in the middle", "at the last step"])
def test_a_crash_between_checkpoint_and_hub_trains_nothing_twice(tmp_path, monkeypatch, steps):
    async def main():
        async with world(tmp_path, steps=steps, checkpoint_every=2) as (w, judge):
            async with context(
                "learner", role="learner", hub=w.hub, run_dir=w.run_dir, config=w.config, leave=False
            ) as ctx:

                async def killed(*_, **__):
                    raise RuntimeError("killed")

                monkeypatch.setattr(ctx.hub, "complete", killed)
                ids = await w.put(judge, 16)
                with pytest.raises(ExceptionGroup):
                    await Learner(ctx).run()
            assert checkpoint.steps(w.run_dir / "checkpoints") == [2]
            w.fetched.clear()
            async with learning(w):
                await w.until(lambda: len([m for m in w.of(ItemEnded) if m.result.get("outcome") == "trained"]) == 16)
                assert w.fetched == []
            assert set((await w.outcomes(judge, ids)).values()) == {"trained"}
            assert [m.step for m in w.of(LearnerStepped)] == [1, 2]
            assert [m.step for m in w.of(LearnerCheckpointed)] == [2]

    trio.run(main)


def test_a_finished_run_that_restarts_says_so_and_idles(tmp_path):
    async def main():
        async with world(tmp_path, steps=1) as (w, judge):
            async with learning(w):
                await w.put(judge, 8)
                await w.until(lambda: len(w.of(LearnerCheckpointed)) == 1)
            async with learning(w):
                await w.until(lambda: len(w.of(LearnerStarted)) == 2)
            assert [m.final for m in w.of(LearnerStepped)] == [True]
            assert len(w.of(WeightsPublished)) == 2

    trio.run(main)


def test_a_base_model_that_is_not_there_fails_with_its_name(tmp_path):
    async def main():
        async with world(tmp_path) as (w, _):
            shutil.rmtree(tmp_path / "base")
            async with context("learner", role="learner", hub=w.hub, run_dir=w.run_dir, config=w.config) as ctx:
                with pytest.raises(ModelFormatError, match="base"):
                    await Learner(ctx).run()

    trio.run(main)
