"""The memory as an actor, with a real hub and real sockets."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from spade_actors.config.schema import Config, MemoryConfig
from spade_actors.memory import make
from spade_actors.runtime.calls import Caller
from spade_actors.runtime.context import Context
from spade_actors.runtime.errors import CallFailed
from spade_actors.runtime.testing import context, running_hub
from spade_protocols.content import content_hash
from spade_protocols.design import (
    Brief,
    CheckDuplicate,
    DuplicateVerdict,
    Environment,
    GetBrief,
    GetEnvironment,
    GetMemoryStats,
    Grant,
    GrantBriefs,
    MemoryStats,
    PutEnvironment,
    StoreJudged,
)
from spade_protocols.queues import DESIGNS

GRANTS = [Grant(id=f"d{i}", group="g0", skill="a", seed=i) for i in range(3)]
SOURCE = "class AEnv:\n    goal = 3\n"


def with_memory(tmp_path: Path, steps: list[Callable[[Context, Caller], Awaitable[None]]]) -> None:
    """Runs each step against a memory that was started anew on the same files."""
    config = Config(memory=MemoryConfig(exemplar_rate=1.0))

    async def main() -> None:
        with trio.fail_after(30):
            async with (
                running_hub(tmp_path, config=config) as hub,
                context("world", role="world", hub=hub, run_dir=tmp_path, config=config) as ctx,
            ):
                for step in steps:
                    async with context("memory", role="memory", hub=hub, run_dir=tmp_path, config=config) as memory:
                        memory.nursery.start_soon(make(memory).run)
                        await step(ctx, await ctx.peer("memory"))

    trio.run(main)


def test_briefs_are_written_once_across_restarts(tmp_path: Path) -> None:
    seen: list[Brief] = []

    async def grant(ctx: Context, memory: Caller) -> None:
        for _ in range(2):
            await memory.call(GrantBriefs(grants=GRANTS), timeout=5)
        for one in GRANTS:
            reply = (await memory.call(GetBrief(id=one.id), timeout=5)).message
            assert isinstance(reply, Brief)
            seen.append(reply)

    async def again(ctx: Context, memory: Caller) -> None:
        more = Grant(id="d3", group="g0", skill="a", seed=3)
        await memory.call(GrantBriefs(grants=[*GRANTS, more]), timeout=5)
        assert [(await memory.call(GetBrief(id=one.id), timeout=5)).message for one in GRANTS] == seen
        reply = (await memory.call(GetBrief(id="d3"), timeout=5)).message
        assert isinstance(reply, Brief)
        seen.append(reply)
        items = await ctx.hub.lease(DESIGNS, 10, wait_s=1.0)
        assert [item.id for item in items] == ["d0", "d1", "d2", "d3"]
        assert items[0].body == {"brief": "d0", "group": "g0", "skill": "a", "seed": 0}

    with_memory(tmp_path, [grant, again])
    assert len({brief.passage.id for brief in seen}) == 4


def test_environments_go_by_the_hash_of_their_content(tmp_path: Path) -> None:
    name = content_hash(SOURCE, "hint")

    async def put(ctx: Context, memory: Caller) -> None:
        await memory.call(PutEnvironment(environment=name, source=SOURCE, hint="hint"), timeout=5)
        with pytest.raises(CallFailed, match="bad_hash"):
            await memory.call(PutEnvironment(environment=name, source=SOURCE, hint="other"), timeout=5)
        for unknown in (GetEnvironment(environment="x"), GetBrief(id="x")):
            with pytest.raises(CallFailed, match="unknown"):
                await memory.call(unknown, timeout=5)
        judged = StoreJudged(
            design="d1", environment=name, skill="a", parent="", version=0, admitted=True, verdicts=[]
        )  # fmt: skip
        await memory.call(judged, timeout=5)

    async def get(ctx: Context, memory: Caller) -> None:
        reply = (await memory.call(GetEnvironment(environment=name), timeout=5)).message
        assert reply == Environment(environment=name, source=SOURCE, hint="hint")
        found = (await memory.call(CheckDuplicate(design="d2", source=SOURCE), timeout=5)).message
        assert found == DuplicateVerdict(duplicate=True, of=name, how="exact")
        stats = (await memory.call(GetMemoryStats(), timeout=5)).message
        assert isinstance(stats, MemoryStats)
        assert (stats.environments, stats.judged, stats.exemplars) == (1, 1, {})

    with_memory(tmp_path, [put, get])
