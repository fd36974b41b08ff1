"""Leased work queues as a pure machine: items, leases, attempts, groups, parked lease calls.

What always holds: an item ends exactly once (completed, cancelled or dead); it is ready, or in the hands of exactly one
lease, or ended; a lease that is not its item's current one can end nothing; an item comes back until its failures reach
`attempts`, then it is dead. Parked lease calls are served in the order they came.
"""

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from spade_actors.hub.ready import Entry, ReadySet, Where

P = TypeVar("P")


class Parked(NamedTuple, Generic[P]):
    """A lease call that waits for items."""

    most: int
    where: Where
    lease: str
    holder: str
    incarnation: str
    since: float
    until: float
    token: P
    """whatever the owner answers by"""


class Queue(Generic[P]):
    """One queue: what has not ended, and how many ended how."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: dict[str, Entry] = {}
        self.ready = ReadySet()
        self.ended = {"completed": 0, "cancelled": 0, "dead": 0}
        self._by_lease: dict[str, set[str]] = {}
        self._by_incarnation: dict[str, set[str]] = {}
        self._by_group: dict[str, set[str]] = {}
        self._parked: dict[str, Parked[P]] = {}

    @property
    def leased(self) -> int:
        """Items in somebody's hands."""
        return len(self.entries) - self.ready.count

    def add(self, entry: Entry) -> bool:
        """A new item, or a restored one with its lease; False when the id is there already."""
        if entry.id in self.entries:
            return False
        self.entries[entry.id] = entry
        if entry.group:
            self._by_group.setdefault(entry.group, set()).add(entry.id)
        if entry.state == "leased":
            self._index(entry)
        else:
            self.ready.add(entry)
        return True

    def lease(self, count: int, where: Where, lease: str, holder: str, incarnation: str) -> list[Entry]:
        """Hands out ready items under one lease id; the same lease id again gives what it still holds."""
        held = self._by_lease.get(lease)
        if held:
            return sorted((self.entries[id_] for id_ in held), key=lambda entry: entry.order)
        taken = self.ready.take(max(count, 1), where)
        for entry in taken:
            entry.state = "leased"
            entry.lease = lease
            entry.holder = holder
            entry.incarnation = incarnation
            entry.leases += 1
            self._index(entry)
        return taken

    def park(self, parked: Parked[P]) -> None:
        """The call waits; parking the same lease id again replaces its token and keeps its place."""
        self._parked[parked.lease] = parked

    def serve(self) -> Iterator[tuple[Parked[P], list[Entry]]]:
        """Parked calls that can be served now, with what they get; those are no longer parked."""
        for parked in list(self._parked.values()):
            if not self.ready.count:
                return
            taken = self.lease(parked.most, parked.where, parked.lease, parked.holder, parked.incarnation)
            if taken:
                del self._parked[parked.lease]
                yield parked, taken

    def overdue(self, now: float) -> list[Parked[P]]:
        """Parked calls that have waited long enough, no longer parked."""
        late = [parked for parked in self._parked.values() if parked.until <= now]
        for parked in late:
            del self._parked[parked.lease]
        return late

    def parked(self) -> list[Parked[P]]:
        """The calls that wait."""
        return list(self._parked.values())

    def holds(self, id_: str, lease: str) -> Entry | None:
        """The item if it is in this lease's hands."""
        entry = self.entries.get(id_)
        return entry if entry is not None and entry.state == "leased" and entry.lease == lease else None

    def end(self, entry: Entry, state: str) -> None:
        """Ends an item: completed | cancelled | dead."""
        if entry.state == "leased":
            self._unindex(entry)
        else:
            self.ready.remove(entry)
        del self.entries[entry.id]
        if entry.group:
            members = self._by_group[entry.group]
            members.discard(entry.id)
            if not members:
                del self._by_group[entry.group]
        entry.state = state
        self.ended[state] += 1

    def give_back(self, entry: Entry, counts: bool) -> bool:
        """Returns a leased item; True: it is ready again, False: its attempts are used up and it ended as dead."""
        entry.failures += counts
        if entry.failures >= entry.attempts:
            self.end(entry, "dead")
            return False
        self._unindex(entry)
        entry.state = "ready"
        entry.lease = ""
        self.ready.add(entry)
        return True

    def of_group(self, group: str) -> list[Entry]:
        """The items of a group that have not ended."""
        return [self.entries[id_] for id_ in sorted(self._by_group.get(group, ()))]

    def of_incarnation(self, incarnation: str) -> list[Entry]:
        """What a process holds."""
        held = [self.entries[id_] for id_ in self._by_incarnation.get(incarnation, ())]
        return sorted(held, key=lambda entry: entry.order)

    def unpark(self, incarnation: str) -> list[Parked[P]]:
        """The parked calls of a process, no longer parked."""
        gone = [parked for parked in self._parked.values() if parked.incarnation == incarnation]
        for parked in gone:
            del self._parked[parked.lease]
        return gone

    def _index(self, entry: Entry) -> None:
        self._by_lease.setdefault(entry.lease, set()).add(entry.id)
        self._by_incarnation.setdefault(entry.incarnation, set()).add(entry.id)

    def _unindex(self, entry: Entry) -> None:
        for index, key in ((self._by_lease, entry.lease), (self._by_incarnation, entry.incarnation)):
            held = index[key]
            held.discard(entry.id)
            if not held:
                del index[key]
