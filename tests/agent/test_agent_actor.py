"""The agent role with everything real around it but judge and memory: hub, jails, an embedded server."""

from collections import Counter
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from spade_actors.agent.actor import Agent
from spade_actors.config.schema import AgentConfig, Config, GeneratorConfig, RunConfig, SandboxConfig
from spade_actors.generator.actor import Generator
from spade_actors.learner import publish
from spade_actors.model import files
from spade_actors.runtime.errors import CallError
from spade_actors.runtime.testing import context, running_hub
from spade_protocols.codec import unpack_buffer
from spade_protocols.content import content_hash
from spade_protocols.design import Environment, GetEnvironment
from spade_protocols.play import DeliverTrajectory, PlayItem, TrajectoryStored
from spade_protocols.queues import PLAYS, Item
from spade_protocols.sample import WeightsPublished
from spade_sandbox.actor import Sandbox
from spade_sandbox.nsjail import probe
from spade_sandbox.rootfs import ensure_rootfs
from tests.generator_role.bases import base_model

COUNTDOWN = """
class CountdownEnv:
    def __init__(self):
        self.max_turns = 9

    def reset(self, seed=None):
        self.left = 2 + seed % 3
        return f"{self.left} to go", {}

    def step(self, action):
        self.left -= 1
        if "boom" in self.__class__.__name__.lower():
            raise RuntimeError("boom")
        return f"{self.left} to go", 1.0 if self.left == 0 else 0.0, self.left == 0, False, {}
"""
BOOM = COUNTDOWN.replace("CountdownEnv", "BoomEnv")
HINT = "just wait"


class Judge:
    def __init__(self) -> None:
        self.got: list[tuple[DeliverTrajectory, list[bytes]]] = []
        self.silent = 0

    def deliver(self, call):
        if self.silent:
            self.silent -= 1
            raise CallError("busy", "later", retry=True)
        self.got.append((call.message, list(call.buffers)))
        return TrajectoryStored(duplicate=False)


class World:
    def __init__(self, hub, config, judge, watch, names) -> None:
        self.hub, self.config, self.judge, self.watch, self.names = hub, config, judge, watch, names

    async def put(self, environment: str, pairs: int, *, trial: str = "t", **more) -> list[str]:
        items = []
        for index in range(pairs):
            for arm in ("plain", "hinted"):
                play = PlayItem(
                    trial=trial,
                    environment=self.names[environment],
                    arm=arm,
                    index=index,
                    seed=index,
                    hint=HINT if arm == "hinted" else "",
                    max_turns=9,
                    **more,
                )
                name = f"{trial}.{index}.{arm[0]}"
                items.append(Item(id=name, body=msgspec.to_builtins(play), group=f"{trial}.{index}"))
        await self.watch.hub.put(PLAYS, items)
        return [item.id for item in items]

    async def ended(self, ids: list[str]) -> dict[str, str]:
        with trio.fail_after(60):
            while True:
                found = await self.watch.hub.find(PLAYS, ids)
                if not set(found.states.values()) & {"ready", "leased"}:
                    return found.states
                await trio.sleep(0.05)


@asynccontextmanager
async def world(tmp_path):
    if not probe(ensure_rootfs(None)).works:
        pytest.skip("nsjail cannot run here")
    base = base_model(tmp_path / "base")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    config = Config(
        run=RunConfig(model=str(base)),
        generator=GeneratorConfig(slots=32, max_len=512),
        sandbox=SandboxConfig(pool=2, sessions=8, gates=1),
        agent=AgentConfig(concurrency=8, max_tokens=16, max_context=500, drain_s=0.2),
    )
    publish.write(run_dir / "weights", files.load(base), base, version=0, step=0, parent=-1)
    sources = {content_hash(source, HINT): source for source in (COUNTDOWN, BOOM)}
    judge = Judge()

    def environment(call):
        name = call.message.environment
        return Environment(environment=name, source=sources[name], hint=HINT)

    async with (
        running_hub(run_dir, config=config) as hub,
        context("memory", role="memory", hub=hub) as memory,
        context("judge", role="judge", hub=hub) as watch,
        context("sandbox-1", role="sandbox", hub=hub, config=config) as sandbox,
        context("generator-1", role="generator", hub=hub, run_dir=run_dir, config=config) as generator,
        trio.open_nursery() as nursery,
    ):
        await memory.serve({GetEnvironment: environment})
        await watch.serve({DeliverTrajectory: judge.deliver})
        event = WeightsPublished(version=0, step=0, parent=-1, path="weights/v000000", sha256="")
        await watch.hub.publish(event, retain=True)
        nursery.start_soon(Sandbox(sandbox).run)
        nursery.start_soon(Generator(generator).run)
        names = {"countdown": content_hash(COUNTDOWN, HINT), "boom": content_hash(BOOM, HINT)}
        yield World(hub, config, judge, watch, names)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def playing(w: World):
    async with context("agent-1", role="agent", hub=w.hub, config=w.config) as ctx, trio.open_nursery() as nursery:
        nursery.start_soon(Agent(ctx).run)
        yield ctx
        ctx.draining.set()


def test_plays_are_played_delivered_and_completed(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            w.judge.silent = 3
            async with playing(w) as agent:
                ids = await w.put("countdown", 8)
                assert set((await w.ended(ids)).values()) == {"completed"}
                check_trajectories(w, ids)

                # Fixed randomness: the same sampling seed gives the same play, whoever plays beside it.
                held = [await w.put("countdown", 2, trial=f"e{i}", sampling_seed=11, purpose="eval") for i in range(2)]
                await w.ended(held[0] + held[1])
                by_play = {m.play: list(unpack_buffer(m.tokens, b)) for m, b in w.judge.got}
                for first, second in zip(*held, strict=True):
                    assert by_play[first] == by_play[second]

                # An environment that fails is a failed outcome with blame, not a retry.
                failed = await w.put("boom", 1, trial="b")
                assert set((await w.ended(failed)).values()) == {"completed"}
                outcomes = {m.play: (m.outcome, m.blame, m.ending) for m, _ in w.judge.got if m.trial == "b"}
                played = [o for o in outcomes.values() if o[0] == "failed"]
                assert all(o[1:] == ("environment", "exception") for o in played)
                assert len(outcomes) == 2
                assert agent.metrics.counters["episodes_finished"] >= 20

            # Drained: what it could not end in time is ready again, uncounted, and the next agent plays it.
            ids = await w.put("countdown", 3, trial="later")
            async with playing(w):
                pass
            assert set((await w.watch.hub.find(PLAYS, ids)).states.values()) <= {"ready", "completed"}
            async with playing(w):
                assert set((await w.ended(ids)).values()) == {"completed"}
            assert Counter(m.play for m, _ in w.judge.got).most_common(1)[0][1] == 1

    trio.run(main)


def check_trajectories(w: World, ids: list[str]) -> None:
    assert sorted(m.play for m, _ in w.judge.got) == sorted(ids)
    endings = Counter(m.ending for m, _ in w.judge.got)
    assert endings["terminated"] > 0
    assert set(endings) <= {"terminated", "format"}
    for m, buffers in w.judge.got:
        tokens, mask, logprobs = (unpack_buffer(d, buffers) for d in (m.tokens, m.mask, m.logprobs))
        assert len(tokens) == len(mask) == len(logprobs)
        assert sum(mask) == sum(end - start for _, start, end in m.versions)
        assert {v for v, _, _ in m.versions} == {0}
        assert all((lp < 0) == bool(on) for lp, on in zip(logprobs, mask, strict=True))
        assert len(m.turns) == len(m.rewards)
        if m.ending == "terminated":
            assert m.terminated
            assert len(m.turns) == 2 + m.index % 3
            assert m.rewards == [0.0] * (len(m.turns) - 1) + [1.0]
        assert m.turns[0].observation == f"{2 + m.index % 3} to go"
