"""Who is there, as a pure machine: time is passed in, seconds on any monotonic clock.

Always holds: a name belongs to one incarnation; an incarnation that was replaced never comes back; a peer that was heard of
within `ttl_s` is alive. Silence is measured on the hub's own clock only while the hub itself was awake: a gap between two
looks longer than half the ttl (a suspended machine, a stuck loop) is not counted against anyone.
"""

from collections import deque
from typing import NamedTuple

from spade_protocols.directory import Heartbeat, Peer, PeerStatus

_REPLACED_KEPT = 16


class Up(NamedTuple):
    """A peer joined or changed."""

    peer: Peer


class Down(NamedTuple):
    """A peer is gone: left | silent | replaced."""

    peer: Peer
    reason: str


class Replaced(Exception):
    """A newer incarnation has taken this name."""


class _Entry:
    __slots__ = ("beat", "heard", "peer", "since")

    def __init__(self, peer: Peer, now: float) -> None:
        self.peer = peer
        self.since = now
        self.heard = now
        self.beat: Heartbeat | None = None


class Directory:
    """The peers of one run."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl = ttl_s
        self._entries: dict[str, _Entry] = {}
        self._replaced: dict[str, deque[str]] = {}
        self._looked: float | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def restore(self, peers: list[Peer], now: float) -> None:
        """After a restart: everyone counts as heard of now, so nobody is declared dead within one ttl."""
        for peer in peers:
            self._entries[peer.name] = _Entry(peer, now)

    def register(self, peer: Peer, now: float) -> list[Up | Down]:
        """Adds or renews a peer; the changes in order, none when nothing changed.

        Raises:
            Replaced: this incarnation was replaced before.
        """
        if peer.incarnation in self._replaced.get(peer.name, ()):
            raise Replaced(f"{peer.name} of incarnation {peer.incarnation} was replaced by a newer process")
        entry = self._entries.get(peer.name)
        if entry is None:
            self._entries[peer.name] = _Entry(peer, now)
            return [Up(peer)]
        if entry.peer.incarnation != peer.incarnation:
            self._replaced.setdefault(peer.name, deque(maxlen=_REPLACED_KEPT)).append(entry.peer.incarnation)
            self._entries[peer.name] = _Entry(peer, now)
            return [Down(entry.peer, "replaced"), Up(peer)]
        entry.heard = now
        if entry.peer == peer:
            return []
        entry.peer = peer
        return [Up(peer)]

    def heartbeat(self, beat: Heartbeat, now: float) -> bool:
        """Renews a peer; False when this incarnation is not registered."""
        entry = self._entries.get(beat.name)
        if entry is None or entry.peer.incarnation != beat.incarnation:
            return False
        entry.heard = now
        entry.beat = beat
        return True

    def knows(self, name: str, incarnation: str) -> bool:
        """Whether this incarnation is alive."""
        entry = self._entries.get(name)
        return entry is not None and entry.peer.incarnation == incarnation

    def was_replaced(self, name: str, incarnation: str) -> bool:
        """Whether a newer incarnation took this one's name."""
        return incarnation in self._replaced.get(name, ())

    def leave(self, name: str, incarnation: str) -> Down | None:
        """A clean end."""
        if not self.knows(name, incarnation):
            return None
        return Down(self._entries.pop(name).peer, "left")

    def expire(self, now: float) -> list[Down]:
        """The peers silent for longer than the ttl, now removed. Call it several times per ttl."""
        gap = now - self._looked if self._looked is not None else 0.0
        self._looked = now
        if gap > self._ttl / 2:
            for entry in self._entries.values():
                entry.heard += gap
            return []
        silent = [entry.peer for entry in self._entries.values() if now - entry.heard > self._ttl]
        for peer in silent:
            del self._entries[peer.name]
        return [Down(peer, "silent") for peer in silent]

    def lookup(self, role: str) -> list[Peer]:
        """The living peers of a role; all if it is empty."""
        return [entry.peer for entry in self._entries.values() if role in ("", entry.peer.role)]

    def status(self, now: float) -> list[PeerStatus]:
        """Every peer with what its last heartbeat said."""
        shown = []
        for entry in self._entries.values():
            beat = entry.beat
            shown.append(
                PeerStatus(
                    peer=entry.peer,
                    state=beat.state if beat else "starting",
                    age_s=now - entry.since,
                    silent_s=max(now - entry.heard, 0.0),
                    gauges=beat.gauges if beat else {},
                    counters=beat.counters if beat else {},
                    waits=beat.waits if beat else [],
                    lag_ms=beat.lag_ms if beat else 0.0,
                )
            )
        return shown
