"""Which generator a role samples from: the living servers, how busy we keep each, and the weight version each has.

Always holds: a conversation stays with its server while that lives, so its prefix stays cached there, and keeps the cache key
it began with (the weight version at its first turn); a server that fails is tried again only after the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import trio

from spade_actors.runtime.context import Context
from spade_actors.sampling.client import GenerateClient, Generation, SamplingParams
from spade_actors.sampling.errors import DeadlineExceeded, ServerUnavailable
from spade_protocols.sample import WeightsApplied

_RETRY_S = 0.25
_LONGEST_RETRY_S = 2.0
_QUIET_S = 5.0
"""failures of one server are logged at most this often"""
_POLL_S = 1.0


class Server:
    """One living generator as seen from here."""

    def __init__(self, name: str, url: str) -> None:
        self.name, self.url = name, url
        self.client = GenerateClient(url)
        self.in_flight = 0
        self.failed_at = -math.inf


class Conversation:
    """What must not change within one episode: server (while it lives) and cache key."""

    __slots__ = ("begun", "extra_key", "server")

    def __init__(self) -> None:
        self.begun = False
        self.server: Server | None = None
        self.extra_key: str | None = None


class Servers:
    """The generators of a run. Start `follow` in the role's nursery; `close` at the end."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._servers: dict[str, Server] = {}
        self._versions: dict[str, int] = {}

    async def follow(self) -> None:
        """Keeps the versions current; runs until cancelled."""
        async with self._ctx.events(WeightsApplied) as events:
            async for stored in events:
                if isinstance(stored.message, WeightsApplied):
                    self._versions[stored.message.generator] = stored.message.version

    def living(self) -> list[Server]:
        """Generators that serve now; the same object for a server as long as it lives at its address."""
        current: dict[str, Server] = {}
        for peer in self._ctx.peers.of("generator"):
            url = peer.attributes.get("url", "")
            if not url:
                continue
            known = self._servers.get(peer.name)
            current[peer.name] = known if known is not None and known.url == url else Server(peer.name, url)
        for name, server in self._servers.items():
            if current.get(name) is not server:
                server.client.close()
        self._servers = current
        return list(current.values())

    def close(self) -> None:
        """Closes idle connections."""
        for server in self._servers.values():
            server.client.close()

    async def generate(
        self,
        conversation: Conversation,
        input_ids: Sequence[int],
        params: SamplingParams,
        *,
        rid: str,
        timeout: float,
    ) -> Generation:
        """One generation, on another server when the first is lost (tokens in, tokens out: nothing depends on which).

        Raises `DeadlineExceeded` when none answered within `timeout` seconds, and `ServerRefused`. Cancellation aborts
        the request at the server.
        """
        deadline = trio.current_time() + timeout
        pause = _RETRY_S
        while True:
            server = await self._server(conversation, deadline)
            if not conversation.begun:
                conversation.begun = True
                version = self._versions.get(server.name)
                conversation.extra_key = None if version is None else f"v{version}"
            server.in_flight += 1
            try:
                made = await server.client.generate(
                    input_ids, params, rid=rid, extra_key=conversation.extra_key, deadline=deadline
                )
                if made.finish != "abort":
                    return made
                self._failed(server, f"aborted by the server: {made.message}")
            except ServerUnavailable as error:
                self._failed(server, str(error))
            finally:
                server.in_flight -= 1
            conversation.server = None
            with self._ctx.waits("generate again", on=server.name):
                await trio.sleep(pause)
            pause = min(2 * pause, _LONGEST_RETRY_S)
            if trio.current_time() >= deadline:
                raise DeadlineExceeded(f"no generator answered within {timeout:g} s")

    def _failed(self, server: Server, error: str) -> None:
        now = trio.current_time()
        self._ctx.metrics.count("generations_failed")
        if now - server.failed_at > _QUIET_S:
            self._ctx.log.warning("generations fail and are tried again", server=server.name, error=error)
        server.failed_at = now

    async def _server(self, conversation: Conversation, deadline: float) -> Server:
        """The conversation's server, or the least busy one; waits for one to come."""
        living = self.living()
        if conversation.server in living and conversation.server is not None:
            return conversation.server
        with self._ctx.waits("a generator", on="generator"):
            while not living:
                if trio.current_time() >= deadline:
                    raise DeadlineExceeded("no generator is there")
                await trio.sleep(min(_POLL_S, max(0.0, deadline - trio.current_time())))
                living = self.living()
        now = trio.current_time()
        conversation.server = min(living, key=lambda s: (now - s.failed_at < 2.0, s.in_flight, s.name))
        return conversation.server
