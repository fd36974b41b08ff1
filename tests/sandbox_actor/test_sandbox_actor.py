"""The sandbox role with real jails and a real hub."""

from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from spade_actors.config.schema import Config, SandboxConfig
from spade_actors.runtime.errors import CallError, CallFailed
from spade_actors.runtime.testing import context, running_hub
from spade_protocols.content import content_hash
from spade_protocols.design import CheckDuplicate, DuplicateVerdict, Environment, GetEnvironment, ProposalItem
from spade_protocols.play import CloseSession, OpenSession, StepSession
from spade_protocols.queues import PROPOSALS, Item
from spade_sandbox.actor import Sandbox
from spade_sandbox.nsjail import probe
from spade_sandbox.rootfs import ensure_rootfs

GUESS = '''
import random


class GuessEnv:
    """number hunt"""

    def __init__(self):
        self.max_turns = 6

    def reset(self, seed=None):
        self.secret = random.Random(seed).randrange(1000, 10000)
        self.turn = 0
        return f"a number from 1000 to 9999, seed hash {self.secret % 7}", {}

    def step(self, action):
        self.turn += 1
        text = action.strip()
        if text == str(self.secret):
            return "yes", 1.0, True, False, {}
        said = "digits only" if not text.isdigit() else "higher" if int(text) < self.secret else "lower"
        return said, 0.0, False, self.turn >= self.max_turns, {}
'''
BROKEN = GUESS.replace("self.turn += 1", "self.turn += 1 / 0")
HINT = "halve the range each time"


class Memory:
    def __init__(self) -> None:
        self.sources: dict[str, str] = {}
        self.duplicates: set[str] = set()
        self.asked = 0

    def add(self, source: str) -> str:
        name = content_hash(source, HINT)
        self.sources[name] = source
        return name

    def get(self, call):
        self.asked += 1
        name = call.message.environment
        if name not in self.sources:
            raise CallError("unknown", f"environment {name} was never put")
        return Environment(environment=name, source=self.sources[name], hint=HINT)

    def duplicate(self, call):
        twin = call.message.source in self.duplicates
        return DuplicateVerdict(duplicate=twin, of="other" if twin else "", how="exact" if twin else "")


@asynccontextmanager
async def world(tmp_path, **settings):
    if not probe(ensure_rootfs(None)).works:
        pytest.skip("nsjail cannot run here")
    config = Config(sandbox=SandboxConfig(**{"pool": 2, "sessions": 4, "backlog": 1, "gates": 1} | settings))
    memory = Memory()
    async with (
        running_hub(tmp_path, config=config) as hub,
        context("memory", role="memory", hub=hub) as mine,
        context("sandbox-1", role="sandbox", hub=hub, config=config) as ctx,
        trio.open_nursery() as nursery,
    ):
        await mine.serve({GetEnvironment: memory.get, CheckDuplicate: memory.duplicate})
        nursery.start_soon(Sandbox(ctx).run)
        async with context("agent-1", role="agent", hub=hub) as agent:
            with trio.fail_after(30):
                while agent.peers.pick("sandbox") is None:
                    await agent.peers.changed()
            yield memory, agent, hub
        ctx.draining.set()


def opening(environment: str, play: str = "p", attempt: int = 1, holder: str = "agent-1", seed: int = 5) -> OpenSession:
    return OpenSession(play=play, attempt=attempt, environment=environment, seed=seed, holder=holder, max_turns=6)


def test_an_episode_over_the_bus(tmp_path):
    async def main():
        async with world(tmp_path) as (memory, agent, _):
            name = memory.add(GUESS)
            sandbox = await agent.peer("sandbox")
            opened = (await sandbox.call(opening(name), timeout=20)).message
            assert opened.observation.startswith("a number from 1000")
            again = (await sandbox.call(opening(name), timeout=20)).message
            assert again == opened
            first = (await sandbox.call(StepSession(session=opened.session, turn=0, action="5000"), timeout=20)).message
            assert first.observation in ("higher", "lower")
            assert (
                await sandbox.call(StepSession(session=opened.session, turn=0, action="7"), timeout=20)
            ).message == first
            with pytest.raises(CallFailed, match="bad_turn"):
                await sandbox.call(StepSession(session=opened.session, turn=4, action="7"), timeout=20)
            low, high = 1000, 9999
            other = (await sandbox.call(opening(name, "q"), timeout=20)).message
            for turn in range(6):
                middle = (low + high) // 2
                step = StepSession(session=other.session, turn=turn, action=str(middle))
                said = (await sandbox.call(step, timeout=20)).message
                low, high = (middle + 1, high) if said.observation == "higher" else (low, middle - 1)
            assert said.truncated or said.terminated
            for session in (opened.session, other.session, "never"):
                await sandbox.call(CloseSession(session=session), timeout=20)
            with pytest.raises(CallFailed, match="unknown_session"):
                await sandbox.call(StepSession(session=opened.session, turn=1, action="7"), timeout=20)
            assert memory.asked == 1

    trio.run(main)


def test_failures_are_told_apart_and_a_full_executor_refuses(tmp_path):
    async def main():
        async with world(tmp_path) as (memory, agent, _):
            sandbox = await agent.peer("sandbox")
            broken = memory.add(BROKEN)
            opened = (await sandbox.call(opening(broken), timeout=20)).message
            said = (await sandbox.call(StepSession(session=opened.session, turn=0, action="1"), timeout=20)).message
            assert said.failure == "exception"
            assert "ZeroDivisionError" in said.evidence
            await sandbox.call(CloseSession(session=opened.session), timeout=20)
            syntax = memory.add("class XEnv(:\n")
            assert (await sandbox.call(opening(syntax, "s"), timeout=20)).message.failure.startswith("syntax: ")
            with pytest.raises(CallFailed, match="never put"):
                await sandbox.call(opening("unknown", "u"), timeout=20)
            good = memory.add(GUESS)
            sessions = [(await sandbox.call(opening(good, f"f{i}"), timeout=20)).message.session for i in range(4)]
            outcomes: list[str] = []

            async def late(play: str) -> None:
                try:
                    outcomes.append((await sandbox.call(opening(good, play), timeout=20)).message.session)
                except CallFailed as error:
                    outcomes.append(error.code)
                    await sandbox.call(CloseSession(session=sessions[0]), timeout=20)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(late, "w1")
                nursery.start_soon(late, "w2")
            assert "busy" in outcomes
            assert len(outcomes) == 2
            assert outcomes.count("busy") == 1

    trio.run(main)


def test_an_agents_end_ends_its_sessions(tmp_path):
    async def main():
        async with world(tmp_path) as (memory, agent, hub):
            name = memory.add(GUESS)
            sandbox = await agent.peer("sandbox")
            async with context("agent-2", role="agent", hub=hub) as other:
                theirs = (
                    await (await other.peer("sandbox")).call(opening(name, "t", holder="agent-2"), timeout=20)
                ).message
            mine = (await sandbox.call(opening(name, "m"), timeout=20)).message
            code = ""
            with trio.fail_after(10):
                while not code:
                    try:
                        await sandbox.call(StepSession(session=theirs.session, turn=0, action="1"), timeout=20)
                    except CallFailed as error:
                        code = error.code
                    await trio.sleep(0.02)
            assert code == "unknown_session"
            await sandbox.call(StepSession(session=mine.session, turn=0, action="1"), timeout=20)

    trio.run(main)


async def gated(agent, environment: str, name: str, timeout: float = 30.0):
    body = ProposalItem(design=name, group="g", skill="s", environment=environment, max_turns=6)
    await agent.hub.put(PROPOSALS, [Item(id=name, body=msgspec.to_builtins(body), attempts=2)])
    with trio.fail_after(timeout):
        while True:
            found = await agent.hub.find(PROPOSALS, [name])
            if found.states[name] not in ("ready", "leased"):
                return found.states[name], found.results.get(name, {})
            await trio.sleep(0.02)


def test_the_gate_admits_rejects_with_reasons_and_never_guesses(tmp_path):
    async def main():
        async with world(tmp_path) as (memory, agent, _):
            state, result = await gated(agent, memory.add(GUESS), "d1")
            assert (state, result["admitted"], result["failed"]) == ("completed", True, "")
            assert {v["name"]: v["verdict"] for v in result["verdicts"]}["determinism"] == "pass"
            state, result = await gated(agent, memory.add(BROKEN), "d2")
            assert (state, result["admitted"], result["failed"]) == ("completed", False, "runtime")
            assert "ZeroDivisionError" in result["reason"]
            twin = GUESS + "\n# again\n"
            memory.duplicates.add(twin)
            state, result = await gated(agent, memory.add(twin), "d3")
            assert (state, result["failed"]) == ("completed", "duplicate")
            # What cannot be fetched is tried again and then dead: never admitted, never rejected.
            assert (await gated(agent, "never put", "d4"))[0] == "dead"

    trio.run(main)
