"""Carrying out effects: one task per lane, in order, each until it happened.

Always holds: an effect that cannot happen now (hub or memory away) is tried again under a named wait and holds up only
its own lane; one that is refused again and again is given up, and the machine ends what depended on it with the reason.
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import trio

from spade_actors.judge import effects, files, spool
from spade_actors.judge.desk import Desk
from spade_actors.judge.evaluation import PRIORITY, Evaluation
from spade_actors.judge.heldout import HeldOut
from spade_actors.judge.rules import Rules
from spade_actors.judge.spool import Statement
from spade_actors.runtime.context import Context
from spade_actors.runtime.errors import CallFailed, CallTimeout, PeerGone
from spade_actors.runtime.store import Store
from spade_actors.scoring.title import class_title
from spade_protocols.design import (
    Environment,
    GetEnvironment,
    GrantBriefs,
    PutEnvironment,
    StoreJudged,
    Verdict,
)
from spade_protocols.play import HINTED, PlayItem
from spade_protocols.queues import PLAYS, SAMPLES, Item
from spade_protocols.registry import BY_NAME, Call, Event, Reply

CALL_S = 30.0
PAUSE_S = 0.5
REFUSALS = 8
"""after so many an effect is given up; a peer that has just restarted may refuse once or twice"""
PLAY_ATTEMPTS = 5
SAMPLE_ATTEMPTS = 50
"""a sample is lost only by its own fault, never by a learner that is restarted often"""
CHUNK = 256
"""items per put"""
AT_ONCE = 16
"""held-out environments stored at once"""


class Lanes:
    """Executes effects with the runtime's means."""

    def __init__(self, ctx: Context, desk: Desk, store: Store, rules: Rules, heldout: list[HeldOut]) -> None:
        self._ctx = ctx
        self._desk = desk
        self._store = store
        self._rules = rules
        self._heldout = {entry.environment: entry for entry in heldout}
        self._how: dict[type[effects.Effect], Callable[[Any], Awaitable[list[Statement]]]] = {
            effects.GrantDesigns: self._grant,
            effects.FetchHint: self._fetch_hint,
            effects.StoreHeldOut: self._store_heldout,
            effects.TellMemory: self._tell_memory,
            effects.PutPlays: self._put_plays,
            effects.PutEvalPlays: self._put_eval_plays,
            effects.PutSamples: self._put_samples,
            effects.CancelItems: self._cancel,
            effects.Announce: self._announce,
            effects.WriteDesign: self._write_design,
            effects.WriteEpisodes: self._write_episodes,
            effects.WriteEvaluation: self._write_evaluation,
        }

    async def run(self, lane: str) -> None:
        """Carries out the lane's effects for ever. Cancellation leaves the current one to the next process."""
        async for number, effect in self._desk.lanes[lane]:
            extra = await self._until_done(effect)
            self._desk.carried_out(number, effect, *extra)
            if lane == "memory":
                # What an answer decided (a trial opens) must be decided before the lane's next question.
                await self._desk.saved()

    async def _until_done(self, effect: effects.Effect) -> list[Statement]:
        name, refusals = type(effect).__name__, 0
        while True:
            try:
                return await self._how[type(effect)](effect)
            except (CallTimeout, PeerGone) as error:
                self._ctx.metrics.count("effects_retried")
                self._ctx.log.warning("effect is tried again", effect=name, reason=str(error))
            except CallFailed as error:
                refusals += not error.retry
                self._ctx.metrics.count("effects_refused")
                self._ctx.log.warning("effect was refused", effect=name, reason=str(error), times=refusals)
                if refusals >= REFUSALS:
                    self._desk.machine.refused(effect, f"{name} was refused: {error}"[:300])
                    return []
            with self._ctx.waits(f"to repeat {name}", on=effects.LANES[type(effect)]):
                await trio.sleep(PAUSE_S)

    async def _memory(self, message: Call) -> Reply:
        memory = await self._ctx.peer("memory", deadline=time.time() + CALL_S)
        return (await memory.call(message, timeout=CALL_S)).message

    # memory

    async def _grant(self, effect: effects.GrantDesigns) -> list[Statement]:
        designs = self._desk.machine.designs
        grants = [grant for grant in effect.grants if grant.id in designs and designs[grant.id].state == "granted"]
        if grants:
            await self._memory(GrantBriefs(grants=grants))
        return []

    async def _environment(self, name: str) -> Environment | None:
        try:
            reply = await self._memory(GetEnvironment(environment=name))
        except CallFailed as error:
            if error.code == "unknown":
                return None
            raise
        assert isinstance(reply, Environment)
        return reply

    async def _fetch_hint(self, effect: effects.FetchHint) -> list[Statement]:
        found = await self._environment(effect.environment)
        if found is None:
            self._desk.machine.hint_failed(effect.trial, f"memory does not have environment {effect.environment}")
        else:
            self._desk.machine.hint_ready(effect.trial, class_title(found.source), found.hint)
        return []

    async def _store_heldout(self, effect: effects.StoreHeldOut) -> list[Statement]:
        examination = self._desk.machine.evaluations.get(effect.evaluation)
        names = sorted({play.environment for play in examination.plays.values()}) if examination else []
        limit = trio.CapacityLimiter(AT_ONCE)

        async def put(name: str) -> None:
            async with limit:
                entry = self._heldout[name]
                await self._memory(PutEnvironment(environment=name, source=entry.source, hint=entry.hint))

        try:
            async with trio.open_nursery() as nursery:
                for name in names:
                    nursery.start_soon(put, name)
        except* (CallTimeout, PeerGone, CallFailed) as group:
            raise _first(group) from None
        self._desk.machine.heldout_ready(effect.evaluation)
        return []

    async def _tell_memory(self, effect: effects.TellMemory) -> list[Statement]:
        await self._memory(
            StoreJudged(
                design=effect.design,
                environment=effect.environment,
                skill=effect.skill,
                parent="",
                version=effect.version,
                admitted=effect.admitted,
                verdicts=msgspec.convert(effect.verdicts, list[Verdict]),
                scores=effect.scores,
            )
        )
        return []

    # hub

    async def _put_plays(self, effect: effects.PutPlays) -> list[Statement]:
        trial = self._desk.machine.trials.get(effect.trial)
        if trial is None:
            return []
        items = [
            Item(
                id=play.id,
                group=f"{trial.id}.{play.index}",
                attempts=PLAY_ATTEMPTS,
                body=msgspec.to_builtins(
                    PlayItem(
                        trial=trial.id,
                        environment=trial.environment,
                        arm=play.arm,
                        index=play.index,
                        seed=play.seed,
                        hint=effect.hint if play.arm == HINTED else "",
                        max_turns=self._rules.max_turns,
                    )
                ),
            )
            for play in trial.plays.values()
        ]
        await self._ctx.hub.put(PLAYS, items)
        return []

    async def _put_eval_plays(self, effect: effects.PutEvalPlays) -> list[Statement]:
        examination = self._desk.machine.evaluations.get(effect.evaluation)
        items = self._eval_items(examination) if examination else []
        for start in range(0, len(items), CHUNK):
            await self._ctx.hub.put(PLAYS, items[start : start + CHUNK])
        return []

    def _eval_items(self, examination: Evaluation) -> list[Item]:
        return [
            Item(
                id=play.id,
                priority=PRIORITY,
                attempts=PLAY_ATTEMPTS,
                body=msgspec.to_builtins(
                    PlayItem(
                        trial=examination.id,
                        environment=play.environment,
                        arm=play.arm,
                        index=play.index,
                        seed=play.seed,
                        purpose="eval",
                        hint=self._heldout[play.environment].hint if play.arm == HINTED else "",
                        max_turns=self._rules.max_turns,
                        sampling_seed=play.sampling_seed,
                    )
                ),
            )
            for play in examination.plays.values()
        ]

    async def _put_samples(self, effect: effects.PutSamples) -> list[Statement]:
        items = [
            Item(id=name, group=effect.group, attempts=SAMPLE_ATTEMPTS, body=body)
            for name, body in effect.items.items()
        ]
        await self._ctx.hub.put(SAMPLES, items)
        return []

    async def _cancel(self, effect: effects.CancelItems) -> list[Statement]:
        await self._ctx.hub.cancel(effect.queue, ids=effect.ids, reason=effect.reason)
        return []

    async def _announce(self, effect: effects.Announce) -> list[Statement]:
        event = msgspec.convert(effect.body, BY_NAME[effect.event].cls)
        assert isinstance(event, Event)
        await self._ctx.hub.publish(event, key=effect.key, retain=effect.retain, id=effect.id)
        return []

    # record

    async def _write_design(self, effect: effects.WriteDesign) -> list[Statement]:
        found = await self._environment(effect.environment) if effect.environment else None
        text = ""
        if found is None:
            sql = "SELECT text FROM generations WHERE design = ?"
            row = await self._store.read(lambda c: c.execute(sql, (effect.design,)).fetchone())
            text = (row and row[0]) or ""
        source, hint = (found.source, found.hint) if found else (None, "")
        await trio.to_thread.run_sync(files.write_design, self._ctx.run_dir, effect, source, hint, text)
        return [spool.forget_text(effect.design)]

    async def _write_episodes(self, effect: effects.WriteEpisodes) -> list[Statement]:
        trial = await self._store.read(partial(spool.read_trial, name=effect.trial))
        turns = await self._store.read(partial(spool.read_turns, trial=effect.trial))
        if trial is not None and turns:
            await trio.to_thread.run_sync(files.write_episodes, self._ctx.run_dir, trial, effect.returns, turns)
        return spool.forget_turns(effect.trial, effect.keep)

    async def _write_evaluation(self, effect: effects.WriteEvaluation) -> list[Statement]:
        turns = await self._store.read(partial(spool.read_turns, trial=effect.evaluation))
        examination = await self._store.read(partial(spool.read_evaluation, name=effect.evaluation))
        if examination is not None and turns:
            await trio.to_thread.run_sync(files.write_evaluation, self._ctx.run_dir, examination, turns)
        return spool.forget_turns(effect.evaluation, [])


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
