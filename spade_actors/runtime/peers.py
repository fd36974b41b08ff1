"""Who is there: the directory as one process knows it, kept current by `peer.up` and `peer.down`.

Always holds: a peer in the table was alive by the newest event this process has seen; a name is there once.
"""

from collections.abc import Callable, Iterator

import trio

from spade_protocols.directory import Peer


class PeerTable:
    """The living peers by name."""

    def __init__(self) -> None:
        self._peers: dict[str, Peer] = {}
        self._changed = trio.Event()
        self._watchers: list[Callable[[Peer, bool], None]] = []
        self._turn = 0

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    def get(self, name: str) -> Peer | None:
        """A living peer by name."""
        return self._peers.get(name)

    def of(self, role: str) -> list[Peer]:
        """The living peers of a role, by name."""
        return sorted((p for p in self._peers.values() if p.role == role), key=lambda p: p.name)

    def pick(self, role: str) -> Peer | None:
        """The next living peer of a role that serves calls, in turn; None if there is none."""
        serving = [p for p in self.of(role) if p.address]
        if not serving:
            return None
        self._turn += 1
        return serving[self._turn % len(serving)]

    async def changed(self) -> None:
        """Waits for the next change of the table."""
        await self._changed.wait()

    def watch(self, callback: Callable[[Peer, bool], None]) -> None:
        """Calls `callback(peer, up)` on every change, on the trio thread; it must not raise."""
        self._watchers.append(callback)

    def up(self, peer: Peer) -> None:
        """A peer joined, or changed its address or attributes."""
        self._peers[peer.name] = peer
        self._notify(peer, True)

    def down(self, peer: Peer) -> None:
        """A peer is gone; ignored when a newer incarnation took its name already."""
        known = self._peers.get(peer.name)
        if known is not None and known.incarnation == peer.incarnation:
            del self._peers[peer.name]
            self._notify(peer, False)

    def _notify(self, peer: Peer, up: bool) -> None:
        self._changed.set()
        self._changed = trio.Event()
        for watcher in self._watchers:
            watcher(peer, up)
