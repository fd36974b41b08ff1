"""The designer role against a real hub, with scripted generations."""

from contextlib import asynccontextmanager

import msgspec
import numpy as np
import trio

from spade_actors.config.schema import Config, DesignerConfig, RunConfig
from spade_actors.designer import actor as module
from spade_actors.designer.actor import Designer
from spade_actors.prompts.designer import answer
from spade_actors.runtime.errors import CallError
from spade_actors.runtime.testing import context, running_hub
from spade_actors.sampling.client import Generation, Span
from spade_actors.sampling.errors import DeadlineExceeded
from spade_actors.sampling.setup import language
from spade_protocols.codec import unpack_buffer
from spade_protocols.common import Ack
from spade_protocols.content import content_hash
from spade_protocols.design import (
    Brief,
    DeliverDesign,
    DesignItem,
    DesignStored,
    GetBrief,
    Passage,
    PutEnvironment,
)
from spade_protocols.queues import DESIGNS, PROPOSALS, Item
from tests.generator_role.bases import TOKENIZER

SOURCE = "class XEnv:\n    pass\n"
CONFIG = Config(run=RunConfig(model=str(TOKENIZER)), designer=DesignerConfig(concurrency=4, drain_s=0.2))


class FakeServers:
    """Says `answers` by the design's id; None: hangs; an exception: raises it."""

    answers: dict[str, object] = {}

    def __init__(self, ctx) -> None:
        self.language = language(CONFIG)

    async def follow(self) -> None:
        await trio.sleep_forever()

    def close(self) -> None:
        pass

    async def generate(self, conversation, input_ids, params, *, rid, timeout):
        said = self.answers[rid]
        if said is None:
            await trio.sleep_forever()
        if isinstance(said, Exception):
            raise said
        ids = [*self.language.chat.encode(said), self.language.chat.end_id]
        return Generation(ids, np.full(len(ids), -0.5, np.float32), "stop", (Span("3", 0, len(ids)),), True, 9, 0)


class World:
    def __init__(self) -> None:
        self.delivered: list[tuple[DeliverDesign, list[bytes]]] = []
        self.stored: list[PutEnvironment] = []
        self.memory_down = 0

    def brief(self, call):
        if self.memory_down:
            self.memory_down -= 1
            raise CallError("failed", "restarting")
        if call.message.id == "unknown":
            raise CallError("unknown", "no such brief")
        passage = Passage(id="p", domain="d", title="Tides", text="The moon pulls.")
        return Brief(
            id=call.message.id,
            group="g",
            skill="search",
            difficulty="easy",
            seed=1,
            passage=passage,
            exemplars=[],
            negative="",
        )

    def put(self, call):
        self.stored.append(call.message)
        return Ack()

    def deliver(self, call):
        self.delivered.append((call.message, list(call.buffers)))
        return DesignStored(duplicate=False)


@asynccontextmanager
async def world(tmp_path, monkeypatch, answers):
    monkeypatch.setattr(module, "Servers", FakeServers)
    monkeypatch.setattr(FakeServers, "answers", answers)
    w = World()
    async with (
        running_hub(tmp_path) as hub,
        context("memory", role="memory", hub=hub) as memory,
        context("judge", role="judge", hub=hub) as judge,
    ):
        await memory.serve({GetBrief: w.brief, PutEnvironment: w.put})
        await judge.serve({DeliverDesign: w.deliver})
        w.hub, w.judge = hub, judge
        yield w


@asynccontextmanager
async def designing(w: World):
    async with context("designer-1", role="designer", hub=w.hub, config=CONFIG) as ctx, trio.open_nursery() as nursery:
        nursery.start_soon(Designer(ctx).run)
        yield ctx
        ctx.draining.set()


async def put(w: World, *names: str) -> None:
    items = [
        Item(
            id=name,
            body=msgspec.to_builtins(DesignItem(brief=name, group="g", skill="search", seed=1)),
            group=f"own-{name}",
            attempts=2,
        )
        for name in names
    ]
    await w.judge.hub.put(DESIGNS, items)


async def ended(w: World, *names: str):
    with trio.fail_after(20):
        while True:
            found = await w.judge.hub.find(DESIGNS, list(names))
            if not set(found.states.values()) & {"ready", "leased"}:
                return found
            await trio.sleep(0.02)


def test_a_design_is_delivered_stored_and_proposed(tmp_path, monkeypatch):
    async def main():
        answers = {"d1": answer(SOURCE, "count up"), "d2": "no code here"}
        async with world(tmp_path, monkeypatch, answers) as w, designing(w):
            w.memory_down = 1
            await put(w, "d1", "d2")
            found = await ended(w, "d1", "d2")
            assert set(found.states.values()) == {"completed"}
            assert found.results["d1"]["proposed"] is True
            assert (found.results["d2"]["proposed"], found.results["d2"]["reason"]) == (False, "no_code")
            name = content_hash(SOURCE, "count up")
            assert [(p.environment, p.source, p.hint) for p in w.stored] == [(name, SOURCE, "count up")]
            (proposal,) = await w.judge.hub.lease(PROPOSALS, 4, wait_s=1)
            assert (proposal.id, proposal.body["design"], proposal.body["environment"]) == ("d1", "d1", name)
            assert proposal.body["max_turns"] == CONFIG.agent.max_turns
            assert proposal.group == ""  # a group would be leased whole, by one gate
            by_name = {m.design: (m, b) for m, b in w.delivered}
            m, buffers = by_name["d1"]
            assert (m.environment, m.reason, m.skill, m.attempt) == (name, "", "search", 1)
            assert m.text == answer(SOURCE, "count up")
            output = list(unpack_buffer(m.output, buffers))
            assert len(output) == len(unpack_buffer(m.logprobs, buffers))
            assert m.versions == [(3, 0, len(output))]
            words = language(CONFIG).decode(list(unpack_buffer(m.prompt, buffers)))
            assert 'design search easy\n    """tide moon"""' in words
            assert by_name["d2"][0].reason == "no_code"

    trio.run(main)


def test_failures_of_the_machinery_are_given_back_and_counted(tmp_path, monkeypatch):
    async def main():
        answers = {"d1": DeadlineExceeded("no generator"), "unknown": "x"}
        async with world(tmp_path, monkeypatch, answers) as w, designing(w):
            await put(w, "d1", "unknown")
            found = await ended(w, "d1", "unknown")
            assert found.states == {"d1": "dead", "unknown": "dead"}
            assert w.delivered == []

    trio.run(main)


def test_drain_hands_back_what_hangs_uncounted(tmp_path, monkeypatch):
    async def main():
        async with world(tmp_path, monkeypatch, {"d1": None}) as w:
            for _ in range(3):
                async with designing(w) as ctx:
                    await put(w, "d1")
                    with trio.fail_after(10):
                        while not ctx.metrics.gauges.get("generations"):
                            await trio.sleep(0.01)
                assert (await w.judge.hub.find(DESIGNS, ["d1"])).states == {"d1": "ready"}

    trio.run(main)
