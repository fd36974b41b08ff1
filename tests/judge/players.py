"""Everybody around the judge, as tasks with real sockets: designer, sandbox, agent and learner that do the least."""

import random

import msgspec
import trio

from spade_actors.runtime.context import Context
from spade_actors.runtime.errors import CallTimeout, PeerGone
from spade_protocols.codec import pack_buffer
from spade_protocols.content import content_hash
from spade_protocols.design import (
    Admission,
    CheckDuplicate,
    DeliverDesign,
    DesignResult,
    GetBrief,
    ProposalItem,
    PutEnvironment,
)
from spade_protocols.play import DeliverTrajectory, PlayItem, PlayResult, Turn
from spade_protocols.queues import (
    DESIGNS,
    PLAYS,
    PROPOSALS,
    SAMPLES,
    Completion,
    Item,
    Leased,
    PutTo,
    Return,
)
from spade_protocols.registry import Call, Reply
from spade_protocols.sample import (
    FetchSamples,
    LearnerCheckpointed,
    LearnerStepped,
    RunState,
    SampleItem,
    WeightsApplied,
    WeightsPublished,
)


async def ask(ctx: Context, role: str, message: Call, buffers: list[bytes] | None = None) -> Reply:
    """Calls until answered, whoever dies meanwhile."""
    while True:
        peer = await ctx.peer(role)
        try:
            return (await peer.call(message, timeout=1.0, buffers=buffers or [])).message
        except (CallTimeout, PeerGone):
            continue


def arrays(tokens: list[int], mask: list[int], logprob: float) -> tuple[list[object], list[bytes]]:
    """Described and raw arrays of one sequence."""
    packed = [
        pack_buffer(tokens, "i4", 0),
        pack_buffer(mask, "u1", 1),
        pack_buffer([logprob * m for m in mask], "f4", 2),
    ]
    return [p[0] for p in packed], [p[1] for p in packed]


class Players:
    """One run's players; `version` is what all of them sample by."""

    def __init__(self, seed: int, batch: int, steps: int, die: float = 0.05, bound: int = 8) -> None:
        self.rng = random.Random(seed)
        self.batch = batch
        self.steps = steps
        self.die = die
        """share of items a player drops on the floor once"""
        self.version = 0
        self.step = 0
        self.plays = 0
        """since the last step"""
        self.moved = trio.Event()
        self.bound = bound
        """versions a group may lag behind when it is taken"""
        self.trained: list[str] = []
        self.trained_at: dict[str, int] = {}
        self.ages: list[tuple[int, int]] = []
        """(oldest version of its tokens, learner's version) of every trained sample"""
        self.dropped: set[str] = set()

    async def _drops(self, ctx: Context, queue: str, item: Leased) -> bool:
        if item.id in self.dropped or self.rng.random() >= self.die:
            return False
        self.dropped.add(item.id)
        await ctx.hub.release(queue, [Return(id=item.id, lease=item.lease, reason="died")])
        return True

    async def designer(self, ctx: Context) -> None:
        """Designs an environment per brief; every seventh has no code, every ninth repeats an earlier one."""
        while True:
            for item in await ctx.hub.lease(DESIGNS, 4, wait_s=5.0):
                if await self._drops(ctx, DESIGNS, item):
                    continue
                await ask(ctx, "memory", GetBrief(id=item.id))
                number = int(item.id[1:])
                code = number % 7 != 6
                source = (
                    f"class E{0 if number % 9 == 8 else number}Env:\n    size = {0 if number % 9 == 8 else number}\n"
                )
                name = content_hash(source, "h") if code else ""
                if code:
                    await ask(ctx, "memory", PutEnvironment(environment=name, source=source, hint="h"))
                (prompt, output, logprobs), frames = arrays([1, 2, 3], [1, 1, 1], -0.5)
                output, frames[1] = pack_buffer([4, 5, 6], "i4", 1)
                message = DeliverDesign(
                    design=item.id, group=item.body["group"], skill=item.body["skill"], attempt=item.attempt,
                    environment=name, prompt=prompt, output=output, logprobs=logprobs, versions=[(self.version, 0, 3)],
                    temperature=1.0, text=source,
                )  # fmt: skip
                await ask(ctx, "judge", message, frames)
                result = DesignResult(proposed=code, environment=name, reason="" if code else "no_code")
                proposal = ProposalItem(
                    design=item.id, group=item.body["group"], skill=item.body["skill"], environment=name, max_turns=3
                )
                puts = [PutTo(queue=PROPOSALS, items=[Item(id=item.id, body=msgspec.to_builtins(proposal))])]
                await ctx.hub.complete(
                    DESIGNS,
                    [Completion(id=item.id, lease=item.lease, result=msgspec.to_builtins(result))],
                    puts=puts if code else [],
                )

    async def sandbox(self, ctx: Context) -> None:
        """Admits what is no duplicate."""
        while True:
            for item in await ctx.hub.lease(PROPOSALS, 4, wait_s=5.0):
                if await self._drops(ctx, PROPOSALS, item):
                    continue
                number = int(item.id[1:])
                source = (
                    f"class E{0 if number % 9 == 8 else number}Env:\n    size = {0 if number % 9 == 8 else number}\n"
                )
                verdict = await ask(ctx, "memory", CheckDuplicate(design=item.id, source=source))
                fails = verdict.duplicate  # type: ignore[attr-defined]
                result = Admission(
                    admitted=not fails, environment=item.body["environment"], failed="duplicate" if fails else ""
                )
                await ctx.hub.complete(
                    PROPOSALS, [Completion(id=item.id, lease=item.lease, result=msgspec.to_builtins(result))]
                )

    async def agent(self, ctx: Context) -> None:
        """Plays many at once; a few environments fail."""
        async with trio.open_nursery() as nursery:
            while True:
                for item in await ctx.hub.lease(PLAYS, 16, wait_s=5.0):
                    if not await self._drops(ctx, PLAYS, item):
                        nursery.start_soon(self._play, ctx, item)

    async def _play(self, ctx: Context, item: Leased) -> None:
        play = msgspec.convert(item.body, PlayItem)
        fails = play.purpose == "train" and int(play.trial[1:]) % 11 == 10
        reward = float(random.Random(f"{play.seed}{play.arm}").random() < 0.5)
        (tokens, mask, logprobs), frames = arrays([1, 2, 3, 4], [0, 0, 1, 1], -0.5)
        message = DeliverTrajectory(
            play=item.id, trial=play.trial, attempt=item.attempt, arm=play.arm, index=play.index,
            purpose=play.purpose, outcome="failed" if fails else "finished", ending="hang" if fails else "terminated",
            blame="environment" if fails else "", rewards=[] if fails else [reward], terminated=not fails,
            turns=[Turn(observation="o", action="a", reward=reward)], tokens=tokens, mask=mask,
            logprobs=logprobs, versions=[(self.version, 2, 4)], temperature=1.0, agent=ctx.name,
        )  # fmt: skip
        await ask(ctx, "judge", message, frames)
        self._move()
        result = msgspec.to_builtins(PlayResult(outcome=message.outcome, ending=message.ending))
        await ctx.hub.complete(PLAYS, [Completion(id=item.id, lease=item.lease, result=result)])

    async def learner(self, ctx: Context) -> None:
        """Takes batches, publishes, completes what it trained every second step."""
        await ctx.hub.publish(
            WeightsPublished(version=0, step=0, parent=0, path="w", sha256=""), retain=True, id="weights-0"
        )
        held: list[Leased] = []
        pool: list[Leased] = []
        while self.step < self.steps:
            pool += await ctx.hub.lease(SAMPLES, self.batch, wait_s=5.0)
            pool = await self._without_stale(ctx, pool)
            if len(pool) < self.batch:
                continue
            self.ages += [(item.body["oldest"], self.version) for item in pool]
            self.trained_at |= {item.id: self.version for item in pool}
            batch, pool = pool, []
            reply = await ask(ctx, "judge", FetchSamples(ids=[item.id for item in batch][:64]))
            assert reply.missing == []  # type: ignore[attr-defined]
            for item in batch:
                assert msgspec.convert(item.body, SampleItem).advantage != 0.0
            held += batch
            self.step += 1
            self.version += 1
            self.plays = 0
            final = self.step == self.steps
            await ctx.hub.publish(
                WeightsPublished(version=self.version, step=self.step, parent=self.version - 1, path="w", sha256=""),
                retain=True,
            )
            await ctx.hub.publish(
                WeightsApplied(version=self.version, generator="generator-1", paused_ms=1.0, total_ms=2.0)
            )
            stepped = LearnerStepped(
                step=self.step, version=self.version, samples=len(batch), stale=0, by_role={}, staleness={}, metrics={},
                seconds=0.1, final=final,
            )  # fmt: skip
            await ctx.hub.publish(stepped)
            if final or self.step % 2 == 0:
                checkpointed = LearnerCheckpointed(step=self.step, version=self.version, path="c")
                await ctx.hub.complete(
                    SAMPLES,
                    [Completion(id=i.id, lease=i.lease, result={"outcome": "trained"}) for i in held],
                    events=[ctx.hub.outgoing(checkpointed)],
                )
                self.trained += [item.id for item in held]
                held = []
        await trio.sleep_forever()

    async def _without_stale(self, ctx: Context, pool: list[Leased]) -> list[Leased]:
        old = {item.group for item in pool if self.version - item.body["oldest"] > self.bound}
        stale = [Completion(id=i.id, lease=i.lease, result={"outcome": "stale"}) for i in pool if i.group in old]
        if stale:
            await ctx.hub.complete(SAMPLES, stale)
        return [item for item in pool if item.group not in old]

    async def reaches(self, progress: float) -> None:
        """Returns when the run is this far, in steps; the fraction counts plays between two steps."""
        while self.step + min(self.plays / 40, 0.99) < progress:
            self.moved = trio.Event()
            await self.moved.wait()

    def _move(self) -> None:
        self.plays += 1
        self.moved.set()

    async def play(self, ctx: Context) -> None:
        """Everybody plays until the judge says that the run is complete."""
        async with trio.open_nursery() as nursery:
            for task in (self.designer, self.sandbox, self.agent, self.learner):
                nursery.start_soon(task, ctx)
            await self._until_complete(ctx)
            nursery.cancel_scope.cancel()

    async def _until_complete(self, ctx: Context) -> None:
        async with ctx.events(RunState) as events:
            async for event in events:
                assert isinstance(event.message, RunState)
                if event.message.state == "complete":
                    return
