"""The learner's intake: leases samples, fetches their arrays, chooses batches, and ends what is not trained. Thin.

Always holds: every leased sample is in the pool, refused, stale, handed out in one batch, or given back; a sample that a
durable checkpoint contains is ended when it is leased again, never handed out.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import trio

from spade_actors.config.schema import Config
from spade_actors.learner.batch import AGENT, DESIGNER, Held, Pool, Rules
from spade_actors.learner.consumed import Consumed, Seen
from spade_actors.learner.fetch import Refused, arrange, chunks, leases
from spade_actors.learner.trainer import Sample
from spade_actors.runtime.context import Context
from spade_actors.runtime.errors import CallFailed, CallTimeout, PeerGone
from spade_protocols.events import Outgoing
from spade_protocols.queues import SAMPLES, Completion, Leased, Return
from spade_protocols.sample import FetchSamples, Samples

_FETCH_S = 30.0
_LEASE_S = 10.0
_SETTLE_S = 30.0


def rules(config: Config) -> Rules:
    """The batch rules of a configuration."""
    learner = config.learner
    return Rules(
        batch=learner.batch,
        designer_share=learner.designer_share,
        min_batch=learner.min_batch,
        max_wait_s=learner.max_wait_s,
        max_staleness={role: config.judge.staleness_bound(role) for role in (AGENT, DESIGNER)},
    )


class Intake:
    """Samples in hand. `run` goes on beside the training."""

    def __init__(self, ctx: Context, rules: Rules, consumed: Consumed, vocabulary: int) -> None:
        self.ctx = ctx
        self.rules = rules
        self.consumed = consumed
        self.pool = Pool()
        self.stale = 0
        """dropped by age since it was last set to 0"""
        self._vocabulary = vocabulary
        self._samples: dict[str, Sample] = {}
        self._came = trio.Event()

    async def run(self) -> None:
        """Keeps up to two batches in hand until cancelled; what it holds then is `let_go`'s."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._wake_on_drain)
            await self._collect()

    async def _collect(self) -> None:
        while True:
            missing = 2 * self.rules.batch - self.pool.count()
            if missing <= 0:
                await self._came.wait()
                continue
            items = await self.ctx.hub.lease(SAMPLES, missing, wait_s=_LEASE_S)
            new: list[Leased] = []
            for item in items:
                seen = self.consumed.leased(item.id, item.lease)
                if seen is Seen.SAVED:
                    await self.end({item.id: item.lease}, {"outcome": "trained"})
                    self._wake()
                elif seen is Seen.NEW:
                    new.append(item)
            if new:
                await self._take_in(new)

    async def _take_in(self, items: list[Leased]) -> None:
        answers = []
        for ids in chunks([item.id for item in items]):
            answer = await self._fetch(ids)
            answers.append(answer)
        sorted_ = arrange(items, answers, self._vocabulary)
        await self._refuse(sorted_.refused)
        # While it was fetched, an earlier lease's copy of a sample may have gone into a batch.
        held = [h for h in sorted_.held if self.consumed.leased(h.id, h.lease) is Seen.NEW]
        self._samples |= {h.id: sorted_.samples[h.id] for h in held}
        self.pool.add(held)
        self._wake()

    async def _fetch(self, ids: list[str]) -> tuple[Samples, list[bytes]]:
        """Asks the judge until it answers: its death costs time, not samples."""
        while True:
            try:
                judge = await self.ctx.peer("judge", deadline=time.time() + _FETCH_S)
                with self.ctx.waits("fetch samples", on="judge"):
                    answer = await judge.call(FetchSamples(ids=ids), timeout=_FETCH_S)
            except (CallTimeout, CallFailed, PeerGone) as error:
                self.ctx.metrics.count("fetch_failures")
                self.ctx.log.warning("samples not fetched, asking again", error=str(error))
                await trio.sleep(1.0)
                continue
            assert isinstance(answer.message, Samples)
            return answer.message, list(answer.buffers)

    async def _refuse(self, refused: list[Refused]) -> None:
        for sample in refused:
            self.ctx.metrics.count("samples_refused")
            self.ctx.log.warning("sample refused", sample=sample.id, reason=sample.reason)
            await self.end({sample.id: sample.lease}, {"outcome": "refused", "reason": sample.reason[:500]})

    async def next_batch(self, version: int) -> list[Held]:
        """The next batch at weight `version`; empty on drain. Names what it waits for."""
        since = trio.current_time()
        while not self.ctx.draining.is_set():
            stale = self.pool.take_stale(version, self.rules)
            if stale:
                await self._drop(stale, version)
            now = trio.current_time()
            if not self.pool.count():
                since = now
            batch = self.pool.take_batch(self.rules, now - since)
            self.gauges()
            if batch:
                self._wake()
                return batch
            have = self.pool.count()
            name = f"a batch: {have} of {self.rules.batch} samples"
            with self.ctx.waits(name, on="judge"), trio.move_on_after(self._patience(now - since)):
                await self._came.wait()
        return []

    async def settle(self) -> None:
        """Waits until the samples of the checkpoint that this process started from are ended: a crash between that
        checkpoint and their ends leaves them in the queue, also when no step is left to train. Gives up on drain or
        after `_SETTLE_S`; the next start then does it."""
        with self.ctx.waits("samples of the last checkpoint", on="hub"), trio.move_on_after(_SETTLE_S):
            while self.consumed.saved and not self.ctx.draining.is_set():
                await self._came.wait()

    def _patience(self, waited: float) -> float:
        left = self.rules.max_wait_s - waited
        return left if left > 0 else self.rules.max_wait_s

    def _wake(self) -> None:
        """Something changed: samples came or went, or the process drains."""
        self._came.set()
        self._came = trio.Event()

    async def _wake_on_drain(self) -> None:
        await self.ctx.draining.wait()
        self._wake()

    def hand_out(self, batch: list[Held]) -> list[Sample]:
        """A batch's arrays. From now on its samples count as trained: one leased again meanwhile is not new."""
        self.consumed.trained(leases(batch))
        return [self._samples.pop(held.id) for held in batch]

    async def _drop(self, stale: list[Held], version: int) -> None:
        self.stale += len(stale)
        self.ctx.metrics.count("samples_stale", len(stale))
        for sample in stale:
            self._samples.pop(sample.id, None)
        await self.end(leases(stale), {"outcome": "stale", "version": version})
        self._wake()

    async def end(self, held: Mapping[str, str], result: dict[str, Any], events: Sequence[Outgoing] = ()) -> None:
        """Ends samples at the hub. Ends that were no longer ours to give are asked about: they may have happened."""
        completions = [Completion(id=id_, lease=lease, result=result) for id_, lease in held.items()]
        ends = await self.ctx.hub.complete(SAMPLES, completions, events=list(events))
        self.consumed.ended(ends.done)
        if ends.lost:
            found = await self.ctx.hub.find(SAMPLES, ends.lost)
            self.consumed.ended(i for i in ends.lost if found.states.get(i) not in ("ready", "leased"))
            self.ctx.metrics.count("leases_lost", len(ends.lost))

    async def let_go(self) -> None:
        """Hands back what was leased and not trained."""
        held = [sample for members in self.pool.groups.values() for sample in members]
        returns = [Return(id=s.id, lease=s.lease, reason="the learner stops", counts=False) for s in held]
        if returns:
            await self.ctx.hub.release(SAMPLES, returns)
        self.pool, self._samples = Pool(), {}
        self.gauges()

    def gauges(self) -> None:
        gauge = self.ctx.metrics.gauge
        gauge("in_hand_agent", self.pool.count(AGENT))
        gauge("in_hand_designer", self.pool.count(DESIGNER))
        gauge("unsaved", len(self.consumed.unsaved))
