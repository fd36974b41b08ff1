"""Which weight version a server has and which it should have. Pure.

Always holds: what is due is the newest published version and never an older one; versions in between are skipped; a
version the server refused is not due again until a newer one comes or the server is another.
"""

from typing import NamedTuple


class Published(NamedTuple):
    """A version that exists."""

    version: int
    path: str
    """relative to the run folder"""
    at: float
    """seconds since the epoch: its event's commit"""


class Versions:
    """`newest`: published; `applied`: what the server has, None = no server."""

    def __init__(self) -> None:
        self.newest: Published | None = None
        self.applied: int | None = None
        self.skipped = 0
        self._refused: int | None = None

    def offer(self, published: Published) -> bool:
        """A version was published. True when it is news."""
        if self.newest is not None and published.version <= self.newest.version:
            return False
        if self.newest is not None and self.applied is not None and self.newest.version > self.applied:
            self.skipped += 1
        self.newest = published
        return True

    def started(self, version: int) -> None:
        """A server came up with these weights."""
        self.applied, self._refused = version, None

    def stopped(self) -> None:
        """There is no server."""
        self.applied = None

    def due(self) -> Published | None:
        """What the server has to load now."""
        if self.newest is None or self.applied is None or self.newest.version == self.applied:
            return None
        return None if self.newest.version == self._refused else self.newest

    def loaded(self, version: int) -> None:
        """The server has them."""
        self.applied = version

    def refused(self, version: int) -> None:
        """The server would not."""
        self._refused = version
