"""Following events without gaps, as a pure machine: what to deliver, what to drop, when to ask for a replay.

One cursor: everything of the followed types up to it has been delivered or was part of the snapshot. With every event the
hub tells the newest sequence number of each type before it; a followed type's number beyond the cursor says that something
was missed. Always holds: delivered sequence numbers only grow, and nothing of the followed types between two is left out.
"""

from collections.abc import Mapping
from enum import Enum


class Verdict(Enum):
    """What to do with an event that came in."""

    DELIVER = "deliver"
    DROP = "drop"
    REPLAY = "replay"
    """ask for everything after the cursor, then look at this event again"""


class Follower:
    """The cursor of one subscription. `types` empty: every type."""

    def __init__(self, types: frozenset[str], cursor: int) -> None:
        self.types = types
        self.cursor = cursor

    def wants(self, type_: str, seq: int) -> bool:
        """Whether this event is news to this subscription; `seq` 0 (a greeting) always is."""
        return not seq or (seq > self.cursor and (not self.types or type_ in self.types))

    def on_event(self, type_: str, seq: int, newest: Mapping[str, int]) -> Verdict:
        """An event from the socket, with the newest number of every type before it; `seq` 0 brings nothing but those."""
        if not self.wants(type_, seq):
            return Verdict.DROP
        if self.behind(newest):
            return Verdict.REPLAY
        return Verdict.DELIVER if seq else Verdict.DROP

    def behind(self, newest: Mapping[str, int]) -> bool:
        """Whether the hub's newest sequence numbers by type show something not seen yet."""
        return any(seq > self.cursor for type_, seq in newest.items() if not self.types or type_ in self.types)

    def delivered(self, seq: int) -> None:
        """The event was handed on; from a replay's end also: everything up to `seq` was covered."""
        self.cursor = max(self.cursor, seq)
