"""The queue calls: from messages to the queue machines and the journal, and back.

What always holds: an item's end, the items that follow it and its events are one commit; `item.ended` is published for
every end and `item.returned` for every return; a lease is answered after its commit.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import msgpack  # type: ignore[import-untyped]
import trio

from spade_actors.hub.directory import Directory
from spade_actors.hub.journal import Ended, Journal, Loaded, NewItem, Outcome, Sent, Work
from spade_actors.hub.queues import Parked, Queue
from spade_actors.hub.ready import Entry
from spade_actors.runtime.errors import CallError
from spade_actors.runtime.server import CallContext
from spade_actors.runtime.timers import Timers
from spade_protocols.codec import pack_body
from spade_protocols.directory import QueueStatus, Wait
from spade_protocols.events import Outgoing
from spade_protocols.queues import (
    Accepted,
    Cancel,
    Complete,
    Ends,
    Find,
    Found,
    Item,
    ItemEnded,
    ItemReturned,
    Lease,
    Leased,
    Leases,
    Put,
    PutTo,
    Release,
)
from spade_protocols.registry import BY_CLASS, Event

MAX_BODY = 8192
_RECENT = 2_000


def outgoing(event: Event, key: str = "", retain: bool = False) -> Outgoing:
    """An event of the hub's own."""
    return Outgoing(type=BY_CLASS[type(event)].name, body=pack_body(event), key=key, retain=retain)


def check_size(what: str, packed: bytes) -> None:
    """Bodies of items and events are small; bulk goes from role to role."""
    if len(packed) > MAX_BODY:
        raise CallError("too_large", f"{what} has {len(packed)} bytes, at most {MAX_BODY}; send bulk by content hash")


class Desk:
    """All queues of the run."""

    def __init__(self, journal: Journal, directory: Directory, timers: Timers, name: str) -> None:
        self._journal = journal
        self._directory = directory
        self._timers = timers
        self._name = name
        self._queues: dict[str, Queue[CallContext]] = {}
        self._order = 0
        self._recent: OrderedDict[tuple[str, str], Ended] = OrderedDict()

    def restore(self, loaded: Loaded) -> None:
        """The open work of a journal."""
        self._order = loaded.order
        for name, counts in loaded.counts.items():
            self._queue(name).ended = dict(zip(("completed", "cancelled", "dead"), counts, strict=True))
        for name, entry in loaded.items:
            self._queue(name).add(entry)

    def put(self, call: CallContext) -> None:
        """`queue.put`."""
        message = call.message
        assert isinstance(message, Put)
        rows = self._rows([PutTo(queue=message.queue, items=message.items)])
        call.defer()

        def done(outcome: Outcome) -> None:
            new = self._appear(rows, outcome)
            call.answer(Accepted(new=new, duplicates=len(rows) - new))

        work = Work(done)
        work.puts = rows
        self._journal.submit(work)

    def lease(self, call: CallContext) -> None:
        """`queue.lease`: answered at once, or parked until items come or `wait_s` is over."""
        message = call.message
        assert isinstance(message, Lease)
        if not self._directory.knows(message.holder, message.incarnation):
            if self._directory.was_replaced(message.holder, message.incarnation):
                raise CallError("replaced", f"{message.holder} was replaced by a newer process")
            raise CallError("unknown_peer", f"{message.holder} is not registered", retry=True)
        queue = self._queue(message.queue)
        where = tuple(sorted(message.where.items()))
        lease = call.header.id
        call.defer()
        entries = queue.lease(message.count, where, lease, message.holder, message.incarnation)
        if entries:
            self._grant(queue, call, entries)
            return
        if message.wait_s <= 0:
            call.answer(Leases(items=[]))
            return
        now = trio.current_time()
        until = now + min(message.wait_s, call.remaining)
        queue.park(Parked(message.count, where, lease, message.holder, message.incarnation, time.time(), until, call))
        self._timers.at(until, lambda now: self._overdue(queue, now))

    def complete(self, call: CallContext) -> None:
        """`queue.complete`."""
        message = call.message
        assert isinstance(message, Complete)
        for completion in message.completions:
            check_size(f"result of {completion.id}", _pack(completion.result))
        for event in message.events:
            check_size(f"event {event.type}", event.body)
        rows = self._rows(message.puts)
        call.defer()
        self._with_history(
            message.queue, [c.id for c in message.completions], lambda known: self._complete(call, message, rows, known)
        )

    def release(self, call: CallContext) -> None:
        """`queue.release`."""
        message = call.message
        assert isinstance(message, Release)
        queue = self._queue(message.queue)
        done: list[str] = []
        lost: list[str] = []
        work = Work(lambda _: call.answer(Ends(done=done, lost=lost)))
        for item in message.returns:
            entry = queue.holds(item.id, item.lease)
            if entry is None:
                lost.append(item.id)
                continue
            done.append(item.id)
            self._give_back(work, queue, entry, item.reason, item.counts)
        call.defer()
        self._journal.submit(work)
        self._serve(queue)

    def cancel(self, call: CallContext) -> None:
        """`queue.cancel`."""
        message = call.message
        assert isinstance(message, Cancel)
        call.defer()
        self._with_history(message.queue, message.ids, lambda known: self._cancel(call, message, known))

    def find(self, call: CallContext) -> None:
        """`queue.find`."""
        message = call.message
        assert isinstance(message, Find)
        queue = self._queue(message.queue)
        call.defer()

        def answer(known: dict[str, Ended]) -> None:
            states = {id_: ended.state for id_, ended in known.items()}
            states |= {id_: queue.entries[id_].state for id_ in message.ids if id_ in queue.entries}
            results = {id_: ended.result for id_, ended in known.items() if id_ not in queue.entries}
            call.answer(Found(states=states, results=results))

        self._with_history(message.queue, message.ids, answer)

    def holder_gone(self, work: Work, incarnation: str, reason: str, how: str) -> None:
        """A process is gone: its parked calls end, what it held returns. Only a clean leave does not count as a failure."""
        for queue in self._queues.values():
            for parked in queue.unpark(incarnation):
                parked.token.fail(CallError("unknown_peer", reason, retry=True))
            for entry in queue.of_incarnation(incarnation):
                self._give_back(work, queue, entry, reason, counts=how != "left")

    def serve_all(self) -> None:
        """Serves parked calls of every queue."""
        for queue in self._queues.values():
            self._serve(queue)

    def status(self) -> list[QueueStatus]:
        """Counts per queue."""
        now = time.time()
        shown = []
        for queue in self._queues.values():
            oldest = queue.ready.oldest()
            shown.append(
                QueueStatus(
                    queue=queue.name,
                    ready=queue.ready.count,
                    leased=queue.leased,
                    completed=queue.ended["completed"],
                    cancelled=queue.ended["cancelled"],
                    dead=queue.ended["dead"],
                    oldest_ready_s=max(now - oldest, 0.0) if oldest is not None else 0.0,
                )
            )
        return shown

    def waiters(self) -> list[Wait]:
        """The parked lease calls, by who waits for what."""
        return [
            Wait(name=f"{parked.holder} leases {queue.name}", on=queue.name, since=parked.since)
            for queue in self._queues.values()
            for parked in queue.parked()
        ]

    def _complete(self, call: CallContext, message: Complete, rows: list[NewItem], known: dict[str, Ended]) -> None:
        queue = self._queue(message.queue)
        held: list[tuple[Entry, dict[str, Any]]] = []
        done: list[str] = []
        lost: list[str] = []
        for completion in message.completions:
            entry = queue.holds(completion.id, completion.lease)
            before = known.get(completion.id)
            if entry is not None:
                held.append((entry, completion.result))
            elif before is not None and before.state == "completed" and before.lease == completion.lease:
                done.append(completion.id)
            else:
                lost.append(completion.id)
        if lost and not message.partial:
            call.answer(Ends(done=done, lost=lost))
            return
        follows = bool(held) or not message.completions

        def committed(outcome: Outcome) -> None:
            if follows:
                self._appear(rows, outcome)
            call.answer(Ends(done=done, lost=lost))

        work = Work(committed)
        for entry, result in held:
            done.append(entry.id)
            self._end(work, queue, entry, "completed", result=result)
        if follows:
            work.puts = rows
            work.events += [Sent(event, call.header.sender, call.header.trace) for event in message.events]
        self._journal.submit(work)

    def _cancel(self, call: CallContext, message: Cancel, known: dict[str, Ended]) -> None:
        queue = self._queue(message.queue)
        done: list[str] = []
        lost: list[str] = []
        work = Work(lambda _: call.answer(Ends(done=done, lost=lost)))
        entries = {entry.id: entry for group in message.groups for entry in queue.of_group(group)}
        for id_ in message.ids:
            if id_ in queue.entries:
                entries[id_] = queue.entries[id_]
            elif id_ in known and known[id_].state == "cancelled":
                done.append(id_)
            else:
                lost.append(id_)
        for entry in entries.values():
            done.append(entry.id)
            self._end(work, queue, entry, "cancelled", reason=message.reason)
        self._journal.submit(work)

    def _grant(self, queue: Queue[CallContext], call: CallContext, entries: Sequence[Entry]) -> None:
        items = [
            Leased(
                id=entry.id,
                lease=entry.lease,
                attempt=entry.leases,
                body=entry.body,
                group=entry.group,
                put_at=entry.put_at,
            )
            for entry in entries
        ]
        work = Work(lambda _: call.answer(Leases(items=items)))
        for entry in entries:
            work.update(entry)
        self._journal.submit(work)

    def _serve(self, queue: Queue[CallContext]) -> None:
        for parked, entries in queue.serve():
            self._grant(queue, parked.token, entries)

    def _overdue(self, queue: Queue[CallContext], now: float) -> None:
        for parked in queue.overdue(now):
            parked.token.answer(Leases(items=[]))

    def _end(
        self,
        work: Work,
        queue: Queue[CallContext],
        entry: Entry,
        state: str,
        *,
        result: dict[str, Any] | None = None,
        reason: str = "",
    ) -> None:
        queue.end(entry, state)
        self._record_end(work, queue, entry, result or {}, reason)

    def _record_end(
        self, work: Work, queue: Queue[CallContext], entry: Entry, result: dict[str, Any], reason: str
    ) -> None:
        work.update(entry, _pack(result) if result else None, reason)
        ended = queue.ended
        work.counts[queue.name] = (ended["completed"], ended["cancelled"], ended["dead"])
        self._recent[queue.name, entry.id] = Ended(entry.state, entry.lease, result)
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        event = ItemEnded(
            queue=queue.name,
            id=entry.id,
            state=entry.state,
            result=result,
            reason=reason,
            attempt=entry.leases,
            holder=entry.holder,
        )
        work.events.append(Sent(outgoing(event, queue.name), self._name, ""))

    def _give_back(self, work: Work, queue: Queue[CallContext], entry: Entry, reason: str, counts: bool) -> None:
        if not queue.give_back(entry, counts):
            self._record_end(work, queue, entry, {}, reason)
            return
        work.update(entry, reason=reason)
        event = ItemReturned(queue=queue.name, id=entry.id, attempt=entry.leases, reason=reason, holder=entry.holder)
        work.events.append(Sent(outgoing(event, queue.name), self._name, ""))

    def _rows(self, puts: Sequence[PutTo]) -> list[NewItem]:
        rows = []
        for put in puts:
            for item in put.items:
                packed = _pack(item.body)
                check_size(f"item {item.id}", packed)
                rows.append(NewItem(put.queue, self._entry(item), packed))
        return rows

    def _entry(self, item: Item) -> Entry:
        self._order += 1
        return Entry(
            id=item.id,
            body=item.body,
            group=item.group,
            priority=item.priority,
            attempts=max(item.attempts, 1),
            order=self._order,
            put_at=time.time(),
        )

    def _appear(self, rows: Sequence[NewItem], outcome: Outcome) -> int:
        """Items the journal has accepted as new become ready; how many there were."""
        queues: dict[str, Queue[CallContext]] = {}
        for row, new in zip(rows, outcome.new, strict=True):
            if new:
                queues[row.queue] = self._queue(row.queue)
                queues[row.queue].add(row.entry)
        for queue in queues.values():
            self._serve(queue)
        return sum(outcome.new)

    def _with_history(self, name: str, ids: Sequence[str], then: Callable[[dict[str, Ended]], None]) -> None:
        """Calls `then` with what is known of the ids that are not open, from memory if possible, else from the journal."""
        queue = self._queue(name)
        known: dict[str, Ended] = {}
        missing = []
        for id_ in ids:
            if id_ in queue.entries:
                continue
            recent = self._recent.get((name, id_))
            if recent is None:
                missing.append(id_)
            else:
                known[id_] = recent
        if not missing:
            then(known)
            return
        work = Work(lambda outcome: then(known | outcome.found))
        work.look = (name, missing)
        self._journal.submit(work)

    def _queue(self, name: str) -> Queue[CallContext]:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = Queue(name)
        return queue


def _pack(value: dict[str, Any]) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed
