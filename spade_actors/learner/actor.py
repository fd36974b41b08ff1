"""The learner: leases samples, trains, publishes weights, checkpoints. Thin: what is decided is in the modules beside it.

Always holds: a sample's lease is ended by the checkpoint that contains it, in one transaction with
`learner.checkpointed`, or earlier when it is refused or stale; training, checkpoint and publication run on a worker
thread, so heartbeats go on; versions are the newest in the journal plus one.
"""

import time
from pathlib import Path
from typing import ClassVar

import msgspec
import trio

from spade_actors.learner import checkpoint, publish
from spade_actors.learner.batch import AGENT, DESIGNER, Held, staleness
from spade_actors.learner.consumed import Consumed
from spade_actors.learner.intake import Intake, rules
from spade_actors.learner.resume import CHECKPOINTS, WEIGHTS, Opened, open_run
from spade_actors.learner.trainer import Trainer
from spade_actors.runtime.actor import Actor
from spade_actors.runtime.context import Context
from spade_protocols.codec import unpack_body
from spade_protocols.directory import Peer
from spade_protocols.queues import SAMPLES
from spade_protocols.registry import BY_CLASS
from spade_protocols.sample import (
    LearnerCheckpointed,
    LearnerStarted,
    LearnerStepped,
    WeightsApplied,
    WeightsPublished,
)

# One completion is about 100 bytes on the wire; a call's body is bounded by 1 MiB.
_COMPLETIONS = 4000


class Learner(Actor):
    """One learner process."""

    role: ClassVar[str] = "learner"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.config = ctx.config.learner
        self.step = 0
        self.version = 0
        """newest published"""
        self.parent = 0
        """version the trained weights were last published as, or restored from"""
        self.trained = 0
        self.saved_step = 0
        self.applied: dict[str, int] = {}
        """generator -> version it said it has"""
        self._starting: dict[str, int] = {}

    async def run(self) -> None:
        """Trains until the configured step or drain, then idles until drain. Cancelled: stops at once, losing at most
        the steps since the last checkpoint, whose samples return to the queue."""
        newest = await self._newest()
        opened = await trio.to_thread.run_sync(
            lambda: open_run(self.ctx.run_dir, self.ctx.config, published=newest is not None)
        )
        await self._begin(opened, newest)
        await self.ctx.ready()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_applied)
            nursery.start_soon(self.intake.run)
            while self.step < self.ctx.config.run.steps:
                began = time.time()
                batch = await self.intake.next_batch(self.version)
                if not batch:
                    break
                await self._train(batch, time.time() - began)
            await self.intake.settle()
            nursery.cancel_scope.cancel()
        if self.step > self.saved_step:
            await self._save(None)
        await self.intake.let_go()
        await self.ctx.draining.wait()

    async def _newest(self) -> WeightsPublished | None:
        spec = BY_CLASS[WeightsPublished]
        kept = await self.ctx.hub.snapshot([spec.name])
        messages = [unpack_body(stored.type, stored.body) for stored in kept.events]
        return max((m for m in messages if isinstance(m, WeightsPublished)), key=lambda m: m.version, default=None)

    async def _begin(self, opened: Opened, newest: WeightsPublished | None) -> None:
        """Stands where the checkpoint left off and tells everybody, mending what a crash left unsaid."""
        self.trainer, self.base, meta = opened.trainer, opened.base, opened.meta
        self.consumed = Consumed(meta.consumed if meta else ())
        vocabulary = self.trainer.model.config.vocab_size
        self.intake = Intake(self.ctx, rules(self.ctx.config), self.consumed, vocabulary)
        if meta is not None:
            self.step = self.saved_step = meta.step
            self.trained = meta.trained
            await self._mend(meta)
        self.parent = meta.version if meta else 0
        if newest is None:
            manifest = publish.folder_of(self.ctx.run_dir / WEIGHTS, 0) / publish.MANIFEST
            await self._announce(msgspec.json.decode(manifest.read_bytes(), type=publish.Manifest))
        elif newest.step > self.step or newest.version < self.parent:
            # Steps were lost: samplers hold weights that no longer have a future.
            self.version = newest.version
            await self._publish()
        else:
            self.version = self.parent = newest.version
        await self.ctx.hub.publish(LearnerStarted(step=self.step, version=self.version))
        self.ctx.log.info("learner starts", step=self.step, version=self.version, pending=len(self.consumed.saved))

    async def _mend(self, meta: checkpoint.Meta) -> None:
        """Says what the crash may have cut off; all of it is acknowledged once only."""
        for start in range(0, len(meta.consumed), _COMPLETIONS):
            found = await self.ctx.hub.find(SAMPLES, meta.consumed[start : start + _COMPLETIONS])
            self.consumed.ended(i for i, state in found.states.items() if state not in ("ready", "leased"))
        if meta.stepped:
            stepped = msgspec.convert(meta.stepped, LearnerStepped)
            await self.ctx.hub.publish(stepped, id=_stepped_id(stepped))
        event = self._checkpointed(meta.step, meta.version)
        await self.ctx.hub.publish(event, id=_checkpointed_id(event))

    async def _follow_applied(self) -> None:
        async with self.ctx.events(WeightsApplied) as events:
            async for stored in events:
                if isinstance(stored.message, WeightsApplied):
                    self.applied[stored.message.generator] = stored.message.version

    async def _train(self, batch: list[Held], waited_s: float) -> None:
        started = time.time()
        at_version = self.version
        samples = self.intake.hand_out(batch)
        number = self.step + 1
        result = await trio.to_thread.run_sync(self.trainer.step, samples, number, abandon_on_cancel=True)
        self.step = number
        self.trained += len(batch)
        final = self.step >= self.ctx.config.run.steps
        published = time.time()
        if final or self.step % self.config.publish_every == 0:
            await self._publish()
        metrics = {
            **result.metrics,
            "tokens": float(sum(len(s.tokens) for s in samples)),
            "seconds_wait": waited_s,
            "seconds_publish": time.time() - published,
        }
        stepped = LearnerStepped(
            step=self.step,
            version=self.version,
            samples=len(batch),
            stale=self.intake.stale,
            by_role={role: sum(h.role == role for h in batch) for role in (AGENT, DESIGNER)},
            staleness=staleness(batch, at_version),
            metrics=metrics,
            seconds=time.time() - started,
            final=final,
        )
        self.intake.stale = 0
        self.ctx.metrics.count("samples_trained", len(batch))
        self._gauges()
        if final or self.step % self.config.checkpoint_every == 0:
            await self._save(stepped)
        else:
            await self.ctx.hub.publish(stepped, id=_stepped_id(stepped))

    async def _publish(self) -> None:
        """A new version of the weights: folder, event, pruning of what no generator needs."""
        applied = [self._has(peer) for peer in self.ctx.peers.of("generator")]
        manifest = await trio.to_thread.run_sync(self._write_version, self.version + 1)
        await self._announce(manifest)
        root, keep = self.ctx.run_dir / WEIGHTS, self.config.keep_weights
        await trio.to_thread.run_sync(lambda: publish.prune(root, keep=keep, applied=applied))

    def _has(self, generator: Peer) -> int:
        """The version a generator has; one that is still starting reads what was the newest when we first saw it."""
        starts_with = self._starting.setdefault(generator.incarnation, self.version)
        return self.applied.get(generator.name, starts_with)

    def _write_version(self, version: int) -> publish.Manifest:
        root = self.ctx.run_dir / WEIGHTS
        return publish.write(root, self.trainer.model, self.base, version=version, step=self.step, parent=self.parent)

    async def _announce(self, manifest: publish.Manifest) -> None:
        folder = publish.folder_of(Path(WEIGHTS), manifest.version)
        event = WeightsPublished(
            version=manifest.version,
            step=manifest.step,
            parent=manifest.parent,
            path=str(folder),
            sha256=manifest.sha256,
        )
        await self.ctx.hub.publish(event, retain=True, id=f"weights.published/{manifest.version}")
        self.version = self.parent = manifest.version

    async def _save(self, stepped: LearnerStepped | None) -> None:
        """A checkpoint, then the events it vouches for, then the ends of its samples. `stepped`: not yet published."""
        meta = checkpoint.Meta(
            step=self.step,
            version=self.version,
            consumed=self.consumed.ids(),
            trained=self.trained,
            initial=str(publish.folder_of(Path(WEIGHTS), 0)),
            stepped=msgspec.to_builtins(stepped) if stepped else {},
        )
        root = self.ctx.run_dir / CHECKPOINTS
        started = time.time()
        await trio.to_thread.run_sync(_write_checkpoint, root, meta, self.trainer, self.config.keep_last)
        self.ctx.metrics.gauge("checkpoint_s", time.time() - started)
        self.saved_step = self.step
        if stepped is not None:
            await self.ctx.hub.publish(stepped, id=_stepped_id(stepped))
        due = list(self.consumed.checkpointed().items())
        event = self._checkpointed(self.step, self.version)
        outgoing = self.ctx.hub.outgoing(event, id=_checkpointed_id(event))
        for start in range(0, max(1, len(due)), _COMPLETIONS):
            part = dict(due[start : start + _COMPLETIONS])
            last = start + _COMPLETIONS >= len(due)
            await self.intake.end(part, {"outcome": "trained", "step": self.step}, [outgoing] if last else [])

    def _checkpointed(self, step: int, version: int) -> LearnerCheckpointed:
        return LearnerCheckpointed(step=step, version=version, path=f"{CHECKPOINTS}/s{step:06d}")

    def _gauges(self) -> None:
        self.ctx.metrics.gauge("step", self.step)
        self.ctx.metrics.gauge("version", self.version)
        self.intake.gauges()


def _write_checkpoint(root: Path, meta: checkpoint.Meta, trainer: Trainer, keep_last: int) -> None:
    checkpoint.write(root, meta, trainer.state())
    checkpoint.prune(root, keep_last)


def _stepped_id(stepped: LearnerStepped) -> str:
    return f"learner.stepped/{stepped.step}/{stepped.version}"


def _checkpointed_id(event: LearnerCheckpointed) -> str:
    return f"learner.checkpointed/{event.step}/{event.version}"
