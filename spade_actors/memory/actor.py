"""The memory: thin around `archive`, one SQLite file in the run folder.

Always holds: an answer follows its commit; briefs of a grant are written before their items are put into `designs`, and
both happen once however often the grant is repeated.
"""

from functools import partial
from typing import ClassVar

import msgspec
import trio

from spade_actors.memory import archive
from spade_actors.memory.passages import load_corpus
from spade_actors.runtime.actor import Actor
from spade_actors.runtime.errors import CallError
from spade_actors.runtime.server import CallContext
from spade_actors.runtime.store import Store
from spade_protocols.common import Ack
from spade_protocols.content import content_hash
from spade_protocols.design import (
    Brief,
    CheckDuplicate,
    DesignItem,
    DuplicateVerdict,
    Environment,
    GetBrief,
    GetEnvironment,
    GetMemoryStats,
    GrantBriefs,
    MemoryStats,
    PutEnvironment,
    StoreJudged,
)
from spade_protocols.queues import DESIGNS, Item

DESIGN_ATTEMPTS = 4
DRAIN_S = 60.0
DRAINED_BEFORE = ("designer", "sandbox", "judge")


class Memory(Actor):
    """See the module."""

    role: ClassVar[str] = "memory"

    async def run(self) -> None:
        """Serves until drained."""
        self._config = self.ctx.config.memory
        self._seed = self.ctx.config.run.seed
        self._passages = load_corpus(self._config.corpus)
        async with Store(self.ctx.run_dir / "memory.sqlite", archive.SCHEMA) as store:
            self._store = store
            await self.ctx.serve(
                {
                    GrantBriefs: self._grant,
                    GetBrief: self._brief,
                    PutEnvironment: self._put,
                    GetEnvironment: self._get,
                    CheckDuplicate: self._duplicate,
                    StoreJudged: self._judged,
                    GetMemoryStats: self._stats,
                }
            )
            await self.ctx.ready()
            await self.ctx.draining.wait()
            with trio.move_on_after(DRAIN_S), self.ctx.waits("others to drain", on=", ".join(DRAINED_BEFORE)):
                while any(self.ctx.peers.of(role) for role in DRAINED_BEFORE):
                    await self.ctx.peers.changed()

    async def _grant(self, call: CallContext) -> Ack:
        message = call.message
        assert isinstance(message, GrantBriefs)
        await self._store.write(
            partial(
                archive.write_briefs,
                grants=message.grants,
                passages=self._passages,
                config=self._config,
                seed=self._seed,
            )
        )
        items = [
            Item(
                id=grant.id,
                attempts=DESIGN_ATTEMPTS,
                body=msgspec.to_builtins(
                    DesignItem(brief=grant.id, group=grant.group, skill=grant.skill, seed=grant.seed)
                ),
            )
            for grant in message.grants
        ]
        await self.ctx.hub.put(DESIGNS, items)
        self.ctx.metrics.count("briefs", len(items))
        return Ack()

    async def _brief(self, call: CallContext) -> Brief:
        message = call.message
        assert isinstance(message, GetBrief)
        found = await self._store.read(partial(archive.read_brief, name=message.id))
        if found is None:
            raise CallError("unknown", f"brief {message.id!r} was never written")
        return found

    async def _put(self, call: CallContext) -> Ack:
        message = call.message
        assert isinstance(message, PutEnvironment)
        right = content_hash(message.source, message.hint)
        if message.environment != right:
            raise CallError("bad_hash", f"environment {message.environment!r}: its source and hint hash to {right}")
        await self._store.write(partial(archive.put_environment, what=message))
        return Ack()

    async def _get(self, call: CallContext) -> Environment:
        message = call.message
        assert isinstance(message, GetEnvironment)
        found = await self._store.read(partial(archive.get_environment, name=message.environment))
        if found is None:
            raise CallError("unknown", f"environment {message.environment!r} was never put")
        return found

    async def _duplicate(self, call: CallContext) -> DuplicateVerdict:
        message = call.message
        assert isinstance(message, CheckDuplicate)
        verdict = await self._store.read(
            partial(archive.check_duplicate, what=message, window=self._config.duplicate_window)
        )
        self.ctx.metrics.count("duplicates_checked")
        if verdict.duplicate:
            self.ctx.metrics.count(f"duplicates_{verdict.how}")
        return verdict

    async def _judged(self, call: CallContext) -> Ack:
        message = call.message
        assert isinstance(message, StoreJudged)
        await self._store.write(partial(archive.store_judged, what=message))
        return Ack()

    async def _stats(self, call: CallContext) -> MemoryStats:
        return await self._store.read(partial(archive.stats, passages=len(self._passages)))
