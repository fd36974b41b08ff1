"""Which samples were trained and not yet ended at the hub: what keeps a sample from being trained twice. Pure.

A trained sample is `unsaved` until a checkpoint contains it, then `saved` until the hub confirms its end. What a crash
does: unsaved samples return to the queue and are trained again, in a history that never contained them; saved samples
are named in the checkpoint, and when they are leased again they are ended, not trained.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto


class Seen(Enum):
    """What a leased sample is."""

    NEW = auto()
    UNSAVED = auto()
    """trained by this process; its lease had been lost and is ours again"""
    SAVED = auto()
    """in a durable checkpoint: end it now"""


class Consumed:
    """Always holds: an id is in at most one of `unsaved` and `saved`."""

    def __init__(self, saved: Iterable[str] = ()) -> None:
        self.unsaved: dict[str, str] = {}
        """id -> lease"""
        self.saved: set[str] = set(saved)

    def leased(self, id_: str, lease: str) -> Seen:
        """Tells what a sample that was just leased is."""
        if id_ in self.saved:
            return Seen.SAVED
        if id_ in self.unsaved:
            self.unsaved[id_] = lease
            return Seen.UNSAVED
        return Seen.NEW

    def trained(self, leases: Mapping[str, str]) -> None:
        """A step used these (id -> lease)."""
        self.unsaved.update(leases)

    def ids(self) -> list[str]:
        """What the next checkpoint has to name."""
        return sorted(self.saved | self.unsaved.keys())

    def checkpointed(self) -> dict[str, str]:
        """A checkpoint with `ids()` is durable: returns what to end now, id -> lease."""
        due, self.unsaved = self.unsaved, {}
        self.saved |= due.keys()
        return due

    def ended(self, ids: Iterable[str]) -> None:
        """The hub confirmed these ends."""
        self.saved.difference_update(ids)
