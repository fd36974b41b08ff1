"""Everything a process asks of the hub.

Every method sends the same call again until the hub has answered or `timeout` is over, so a restart of the hub is a pause
and not a failure. What the hub answers is durable.
"""

import itertools
import time
from collections.abc import Sequence
from typing import Any

import trio

from spade_actors.runtime.calls import Answer, Caller, Identity
from spade_actors.runtime.errors import CallFailed, CallTimeout
from spade_actors.runtime.metrics import Metrics, Waits
from spade_protocols.codec import pack_body
from spade_protocols.directory import GetStatus, Lookup, Peer, Peers, Status
from spade_protocols.events import Events, Outgoing, Publish, Published, Replay, Snapshot
from spade_protocols.queues import (
    Accepted,
    Cancel,
    Complete,
    Completion,
    Ends,
    Find,
    Found,
    Item,
    Lease,
    Leased,
    Leases,
    Put,
    PutTo,
    Release,
    Return,
)
from spade_protocols.registry import BY_CLASS, Call, Event

TIMEOUT_S = 30.0
_PAUSE_S = 0.2


class HubClient:
    """The hub, as seen from one process. Raises `CallTimeout` when the hub is silent for `timeout`, `CallFailed` when it refuses."""

    def __init__(self, caller: Caller, who: Identity, waits: Waits, metrics: Metrics, nursery: trio.Nursery) -> None:
        self._caller = caller
        self._who = who
        self._waits = waits
        self._metrics = metrics
        self._nursery = nursery
        self._events = itertools.count(1)

    async def put(self, queue: str, items: Sequence[Item], *, timeout: float = TIMEOUT_S) -> Accepted:
        """Puts items, all or none; ids that are or were there already are counted, not put again."""
        reply = await self.call(Put(queue=queue, items=list(items)), timeout=timeout)
        assert isinstance(reply, Accepted)
        return reply

    async def lease(
        self,
        queue: str,
        count: int,
        *,
        wait_s: float,
        where: dict[str, str] | None = None,
        timeout: float = TIMEOUT_S,
    ) -> list[Leased]:
        """Takes up to `count` ready items (whole groups), waiting up to `wait_s` for the first; may be empty.

        Cancellation never loses an item: one that was granted meanwhile is given back when its reply arrives, or when
        this process dies.
        """
        message = Lease(
            queue=queue,
            holder=self._who.name,
            incarnation=self._who.incarnation,
            count=count,
            wait_s=wait_s,
            where=where or {},
        )

        def give_back(answer: Answer) -> None:
            if isinstance(answer.message, Leases) and answer.message.items:
                self._metrics.count("late_leases", len(answer.message.items))
                returns = [
                    Return(id=item.id, lease=item.lease, reason="lease call was cancelled", counts=False)
                    for item in answer.message.items
                ]
                self._nursery.start_soon(self._release_late, queue, returns)

        with self._waits(f"lease {queue}", on="hub", deadline=time.time() + wait_s):
            reply = await self.call(message, timeout=wait_s + timeout, on_late=give_back)
        assert isinstance(reply, Leases)
        return reply.items

    async def complete(
        self,
        queue: str,
        completions: Sequence[Completion],
        *,
        puts: Sequence[PutTo] = (),
        events: Sequence[Outgoing] = (),
        partial: bool = True,
        timeout: float = TIMEOUT_S,
    ) -> Ends:
        """Ends items, puts what follows and publishes, in one transaction; the same completion again answers done."""
        message = Complete(
            queue=queue, completions=list(completions), puts=list(puts), events=list(events), partial=partial
        )
        return _ends(await self.call(message, timeout=timeout))

    async def release(self, queue: str, returns: Sequence[Return], *, timeout: float = TIMEOUT_S) -> Ends:
        """Gives leases back."""
        return _ends(await self.call(Release(queue=queue, returns=list(returns)), timeout=timeout))

    async def cancel(
        self,
        queue: str,
        *,
        ids: Sequence[str] = (),
        groups: Sequence[str] = (),
        reason: str,
        timeout: float = TIMEOUT_S,
    ) -> Ends:
        """Ends ready and leased items as cancelled; `done` has the ids that were ended."""
        message = Cancel(queue=queue, ids=list(ids), groups=list(groups), reason=reason)
        return _ends(await self.call(message, timeout=timeout))

    async def find(self, queue: str, ids: Sequence[str], *, timeout: float = TIMEOUT_S) -> Found:
        """States (and results of ended ones) of items by id."""
        reply = await self.call(Find(queue=queue, ids=list(ids)), timeout=timeout)
        assert isinstance(reply, Found)
        return reply

    async def publish(
        self, event: Event, *, key: str = "", retain: bool = False, id: str = "", timeout: float = TIMEOUT_S
    ) -> int:
        """Commits and publishes one event; returns its sequence number. With the same `id` it happens once."""
        return (await self.publish_all([self.outgoing(event, key, retain, id)], timeout=timeout))[0]

    async def publish_all(self, events: Sequence[Outgoing], *, timeout: float = TIMEOUT_S) -> list[int]:
        """Commits events in one transaction and publishes them; their sequence numbers, in order."""
        reply = await self.call(Publish(events=list(events)), timeout=timeout)
        assert isinstance(reply, Published)
        return reply.seqs

    def outgoing(self, event: Event, key: str = "", retain: bool = False, id: str = "") -> Outgoing:
        """An event for `complete(events=...)` or `publish_all`; without an `id` it gets one of this process."""
        name = BY_CLASS[type(event)].name
        made = id or f"{self._who.incarnation}:{next(self._events)}"
        return Outgoing(type=name, body=pack_body(event), key=key, retain=retain, id=made)

    async def snapshot(self, types: Sequence[str], *, timeout: float = TIMEOUT_S) -> Events:
        """The retained events of these types and the newest sequence number."""
        reply = await self.call(Snapshot(types=list(types)), timeout=timeout)
        assert isinstance(reply, Events)
        return reply

    async def replay(
        self, after: int, types: Sequence[str], *, limit: int = 1000, timeout: float = TIMEOUT_S
    ) -> Events:
        """Events of these types after a sequence number."""
        reply = await self.call(Replay(after=after, types=list(types), limit=limit), timeout=timeout)
        assert isinstance(reply, Events)
        return reply

    async def status(self, *, timeout: float = TIMEOUT_S) -> Status:
        """The whole picture at one moment."""
        reply = await self.call(GetStatus(), timeout=timeout)
        assert isinstance(reply, Status)
        return reply

    async def lookup(self, role: str = "", *, timeout: float = TIMEOUT_S) -> list[Peer]:
        """The living peers of a role, or all."""
        reply = await self.call(Lookup(role=role), timeout=timeout)
        assert isinstance(reply, Peers)
        return reply.peers

    async def call(self, message: Call, *, timeout: float = TIMEOUT_S, on_late: Any = None) -> Any:
        """Any call to the hub; refusals marked `retry` are tried again until the timeout."""
        until = trio.current_time() + timeout
        while True:
            left = max(until - trio.current_time(), 0.001)
            try:
                return (await self._caller.call(message, timeout=left, on_late=on_late)).message
            except CallFailed as error:
                if not error.retry or trio.current_time() + _PAUSE_S >= until:
                    raise
            await trio.sleep(_PAUSE_S)

    async def _release_late(self, queue: str, returns: list[Return]) -> None:
        try:
            await self.release(queue, returns)
        except (CallFailed, CallTimeout):
            self._metrics.count("late_leases_lost", len(returns))


def _ends(reply: object) -> Ends:
    assert isinstance(reply, Ends)
    return reply
