"""The ready items of one queue in the order they are handed out: priority first, then first in first out, whole groups.

Always holds: items of one group that are ready at the same time are handed out together; handing out costs O(log n), with a
filter too (a heap per filter in use). A pure machine.
"""

import heapq
from typing import Any

_FILTERS = 32

Where = tuple[tuple[str, str], ...]


class Entry:
    """One item that has not ended, as the hub holds it."""

    __slots__ = (
        "attempts",
        "body",
        "failures",
        "group",
        "holder",
        "id",
        "incarnation",
        "lease",
        "leases",
        "order",
        "priority",
        "put_at",
        "state",
    )

    def __init__(
        self, *, id: str, body: dict[str, Any], group: str, priority: int, attempts: int, order: int, put_at: float
    ) -> None:
        self.id = id
        self.body = body
        self.group = group
        self.priority = priority
        self.attempts = attempts
        self.order = order
        """of being put; unique in the journal"""
        self.put_at = put_at
        self.state = "ready"
        self.lease = ""
        self.holder = ""
        self.incarnation = ""
        self.leases = 0
        """times it was leased: the attempt number of the current or last lease"""
        self.failures = 0
        """returns that counted"""


class Unit:
    """A group, or a single item without one."""

    __slots__ = ("members", "stamp")

    def __init__(self) -> None:
        self.members: dict[str, Entry] = {}
        self.stamp = 0

    def matches(self, where: Where) -> bool:
        """Whether every member's body has these values."""
        return all(entry.body.get(key) == value for key, value in where for entry in self.members.values())


_Row = tuple[int, int, int, Unit]


class ReadySet:
    """The ready items of one queue."""

    def __init__(self) -> None:
        self._units: dict[tuple[str, str], Unit] = {}
        self._heaps: dict[Where, list[_Row]] = {(): []}
        self._stamp = 0
        self.count = 0

    def add(self, entry: Entry) -> None:
        """The item is ready (again)."""
        key = (entry.group, "" if entry.group else entry.id)
        unit = self._units.get(key)
        if unit is None:
            unit = self._units[key] = Unit()
        unit.members[entry.id] = entry
        self.count += 1
        self._rank(unit)

    def remove(self, entry: Entry) -> None:
        """The item is no longer ready, other than by `take`."""
        unit = self._drop(entry)
        if unit.members:
            self._rank(unit)

    def take(self, count: int, where: Where = ()) -> list[Entry]:
        """Removes and returns the next items: whole groups, the first even if it is larger than `count`."""
        heap = self._heap_of(where)
        taken: list[Entry] = []
        while heap:
            _, _, stamp, unit = heap[0]
            if stamp != unit.stamp or not unit.members:
                heapq.heappop(heap)
                continue
            if taken and len(taken) + len(unit.members) > count:
                break
            heapq.heappop(heap)
            members = sorted(unit.members.values(), key=lambda entry: entry.order)
            taken.extend(members)
            for entry in members:
                self._drop(entry)
            if len(taken) >= count:
                break
        return taken

    def oldest(self) -> float | None:
        """When the item that has been waiting longest was put."""
        return min((e.put_at for unit in self._units.values() for e in unit.members.values()), default=None)

    def _drop(self, entry: Entry) -> Unit:
        key = (entry.group, "" if entry.group else entry.id)
        unit = self._units[key]
        del unit.members[entry.id]
        self.count -= 1
        if not unit.members:
            del self._units[key]
        return unit

    def _rank(self, unit: Unit) -> None:
        self._stamp += 1
        unit.stamp = self._stamp
        for where, heap in self._heaps.items():
            if unit.matches(where):
                self._push(heap, unit)
                if len(heap) > 2 * len(self._units) + 64:
                    heap[:] = [row for row in heap if row[2] == row[3].stamp and row[3].members]
                    heapq.heapify(heap)

    def _heap_of(self, where: Where) -> list[_Row]:
        heap = self._heaps.get(where)
        if heap is None:
            if len(self._heaps) >= _FILTERS:
                del self._heaps[next(key for key in self._heaps if key)]
            heap = self._heaps[where] = []
            for unit in self._units.values():
                if unit.matches(where):
                    self._push(heap, unit)
        return heap

    @staticmethod
    def _push(heap: list[_Row], unit: Unit) -> None:
        members = unit.members.values()
        priority = max(entry.priority for entry in members)
        order = min(entry.order for entry in members)
        heapq.heappush(heap, (-priority, order, unit.stamp, unit))
