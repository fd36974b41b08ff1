"""The judge: opens trials, pairs plays, spools trajectories, keeps the capacity rule and releases samples.

Thin: decisions are `machine.Machine`, their journal is `desk.Desk`, what they cause is carried out by `lanes.Lanes`,
scores come from `marking.Marking`, calls are answered by `serving.Serving`. A killed judge goes on from its last commit:
it replays the events after the newest one it took in and repeats effects that were not seen to happen.
"""

from typing import ClassVar

import trio

from spade_actors.judge import report, spool
from spade_actors.judge.desk import Desk
from spade_actors.judge.heldout import load_heldout
from spade_actors.judge.lanes import Lanes
from spade_actors.judge.machine import Machine
from spade_actors.judge.marking import Marking
from spade_actors.judge.rules import rules_of
from spade_actors.judge.serving import Serving
from spade_actors.judge.skills import profile_skills
from spade_actors.runtime.actor import Actor
from spade_actors.runtime.store import Store
from spade_protocols.design import DeliverDesign
from spade_protocols.play import DeliverTrajectory
from spade_protocols.queues import DESIGNS, PLAYS, PROPOSALS, SAMPLES, ItemEnded
from spade_protocols.registry import Event
from spade_protocols.sample import (
    FetchSamples,
    LearnerCheckpointed,
    LearnerStarted,
    LearnerStepped,
    RunState,
    WeightsApplied,
    WeightsPublished,
)

TICK_S = 0.5
APPLY_S = 20.0
"""a generator that has not applied a version by then holds nobody up any longer"""
DRAIN_S = 40.0
FLUSH_S = 5.0
EVENTS_PER_COMMIT = 256
DRAINED_BEFORE = ("designer", "agent", "sandbox", "learner")


class Judge(Actor):
    """See the module."""

    role: ClassVar[str] = "judge"

    async def run(self) -> None:
        """Judges until drained: others leave first, so that their last deliveries are still stored."""
        ctx = self.ctx
        config = ctx.config
        heldout = load_heldout(config.judge.heldout)
        rules = rules_of(config, profile_skills(config.run.profile))
        async with Store(ctx.run_dir / "judge.sqlite", spool.SCHEMA) as store:
            saved, left = await store.read(spool.load)
            self._machine = Machine(rules, heldout, saved)
            self._version, self._version_since = saved.meta.version, trio.current_time()
            desk = self._desk = Desk(store, self._machine, list(left))
            lanes = Lanes(ctx, desk, store, rules, heldout)
            marking = Marking(ctx, desk, config.judge)
            serving = Serving(desk, store, ctx.metrics)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(desk.commit_forever, self._plan)
                await ctx.serve(
                    {
                        DeliverDesign: serving.design,
                        DeliverTrajectory: serving.trajectory,
                        FetchSamples: serving.samples,
                    }
                )
                for lane in desk.lanes:
                    nursery.start_soon(lanes.run, lane)
                nursery.start_soon(marking.run)
                nursery.start_soon(self._follow)
                nursery.start_soon(self._tick)
                await ctx.ready()
                desk.touch()
                await self._drained()
                nursery.cancel_scope.cancel()

    def _plan(self) -> None:
        if self.ctx.draining.is_set():
            return
        machine, now = self._machine, trio.current_time()
        if machine.meta.version != self._version:
            self._version, self._version_since = machine.meta.version, now
        synchronised = machine.synchronised(self._generators())
        machine.plan(synchronised or now - self._version_since > APPLY_S)

    async def _follow(self) -> None:
        types = (
            ItemEnded, LearnerStarted, LearnerStepped, LearnerCheckpointed, WeightsPublished, WeightsApplied,
            RunState,
        )  # fmt: skip
        async with self.ctx.events(*types, after=self._machine.meta.seq) as events:
            count = 0
            async for stored in events:
                self._take_in(stored.message)
                self._machine.meta.seq = stored.seq
                self._desk.touch()
                count += 1
                if count % EVENTS_PER_COMMIT == 0:
                    await self._desk.saved()

    def _take_in(self, event: Event) -> None:
        machine = self._machine
        match event:
            case ItemEnded(queue=queue):
                ended = {
                    DESIGNS: machine.design_ended,
                    PROPOSALS: machine.proposal_ended,
                    PLAYS: machine.play_ended,
                    SAMPLES: machine.sample_ended,
                }.get(queue)
                if ended is not None:
                    ended(event)
            case LearnerStepped():
                machine.stepped(event)
            case LearnerStarted():
                machine.started(event.step, event.version)
            case LearnerCheckpointed():
                machine.checkpointed(event.step)
            case WeightsPublished():
                machine.published(event.version)
            case WeightsApplied():
                machine.applied(event.generator, event.version)
            case RunState(state="running"):
                machine.resumed()
            case _:
                pass

    def _generators(self) -> list[str]:
        return [peer.name for peer in self.ctx.peers.of("generator") if peer.attributes.get("url")]

    async def _tick(self) -> None:
        with report.Standing(self.ctx.waits) as standing:
            while True:
                report.publish(self.ctx.metrics, self._machine, self._desk.backlog)
                standing.update(report.awaited(self._machine, self._generators()))
                # Planning also depends on time and on who lives.
                self._desk.touch()
                await trio.sleep(TICK_S)

    async def _drained(self) -> None:
        ctx = self.ctx
        await ctx.draining.wait()
        with trio.move_on_after(DRAIN_S), ctx.waits("others to drain", on=", ".join(DRAINED_BEFORE)):
            while any(ctx.peers.of(role) for role in DRAINED_BEFORE):
                await ctx.peers.changed()
        with trio.move_on_after(FLUSH_S), ctx.waits("effects to be carried out", on="hub, memory"):
            await self._desk.idle()
        await self._desk.saved()
