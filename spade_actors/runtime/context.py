"""What an actor gets: its place in the run, the hub, its peers, and the means to serve, call, follow and be seen.

What always holds after `join`: this process is registered, or registering again; heartbeats go on whatever the actor does
(as long as the loop runs); the peer table and `draining` follow the run's events.
"""

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import trio
import zmq

from spade_actors.runtime.calls import Caller, Callers, Identity
from spade_actors.runtime.errors import CallFailed, CallTimeout, PeerGone
from spade_actors.runtime.hub_client import HubClient
from spade_actors.runtime.metrics import LagMonitor, Metrics, Waits
from spade_actors.runtime.peers import PeerTable
from spade_actors.runtime.server import Handler, Server
from spade_actors.runtime.sockets import Socket, SocketFactory
from spade_actors.runtime.subscription import Subscription
from spade_actors.runtime.timers import Timers
from spade_protocols.codec import DEFAULT_LIMITS, Limits
from spade_protocols.directory import Heartbeat, Leave, Peer, PeerDown, PeerUp, Register, Registered
from spade_protocols.registry import Call, Event
from spade_protocols.sample import RunState

if TYPE_CHECKING:
    from spade_actors.config.schema import Config

_IPC_LIMIT = 103
_ENDING = frozenset({"draining", "complete", "failed"})


def ipc_address(folder: Path, name: str) -> str:
    """The ipc address of a socket file in the run's private folder.

    Raises:
        ValueError: the path is longer than the system allows for a socket.
    """
    path = folder / f"{name}.sock"
    if len(os.fsencode(path)) > _IPC_LIMIT:
        raise ValueError(f"socket path {path} is longer than {_IPC_LIMIT} bytes; use a shorter run folder")
    return f"ipc://{path}"


class Context:
    """One process's part in the run. Made by `run_actor` (or `testing.context`) inside the actor's nursery."""

    hub: HubClient

    def __init__(
        self,
        *,
        name: str,
        role: str,
        hub: str,
        run_dir: Path,
        sockets: Path,
        config: "Config",
        log: structlog.stdlib.BoundLogger,
        nursery: trio.Nursery,
        factory: SocketFactory,
        limits: Limits = DEFAULT_LIMITS,
        follows_run_state: bool = True,
    ) -> None:
        self._follows_run_state = follows_run_state
        self.name = name
        self.role = role
        self.incarnation = uuid.uuid4().hex[:10]
        self.run_dir = run_dir
        self.sockets = sockets
        self.config = config
        self.log = log
        self.nursery = nursery
        """ends with the process; tasks started here are cancelled when the actor's `run` returns"""
        self.hub_address = hub
        self.peers = PeerTable()
        self.metrics = Metrics()
        self.waits = Waits()
        self.lag = LagMonitor()
        self.draining = trio.Event()
        self.server: Server | None = None
        self._limits = limits
        self._who = Identity(name, self.incarnation)
        self._factory = factory
        self._timers = Timers()
        self._callers = Callers(nursery, self._factory, self._who, self._timers, limits, self.metrics)
        self._subscriptions: list[Subscription] = []
        self._address = ""
        self._attributes: dict[str, str] = {}
        self._state = "starting"
        self._welcome: Registered | None = None
        self._beat_now = trio.Event()
        trio.lowlevel.add_instrument(self.lag)
        nursery.start_soon(self._timers.run)

    @property
    def run(self) -> str:
        """The run's id; empty before `join`."""
        return self._who.run

    @run.setter
    def run(self, run: str) -> None:
        self._who.run = run

    @property
    def timers(self) -> Timers:
        """The process's clock for many deadlines."""
        return self._timers

    @property
    def joined(self) -> bool:
        """Whether the hub has welcomed this process."""
        return self._welcome is not None

    def open_socket(self, kind: int) -> Socket:
        """A socket of this ZeroMQ type, closed with the process."""
        return self._factory.open(kind)

    async def join(self) -> None:
        """Registers (waiting for the hub as long as it takes), then starts heartbeats and the peer table."""
        self.hub = HubClient(self.caller(self.hub_address), self._who, self.waits, self.metrics, self.nursery)
        with self.waits("register", on="hub"):
            await self._register()
        self.nursery.start_soon(self._heartbeats)
        await self.nursery.start(self._follow)

    async def leave(self) -> None:
        """Says goodbye, at most 2 s; leases still held return."""
        with trio.move_on_after(2.0) as scope:
            scope.shield = True
            try:
                await self.hub.call(Leave(name=self.name, incarnation=self.incarnation), timeout=2.0)
            except (CallTimeout, CallFailed, PeerGone) as error:
                self.log.warning("the hub did not take the goodbye", error=str(error))

    async def serve(self, handlers: Mapping[type[Call], Handler], *, tasks: int = 256, backlog: int = 4096) -> None:
        """Binds this process's address and answers calls from now on; once, before anything else.

        `async def` handlers run in a task each (`tasks` at once, `backlog` waiting) and are cancelled at the call's
        deadline; plain functions run at once on the loop and must be short.
        """
        if self.server is not None:
            raise RuntimeError(f"{self.name} serves already")
        address = ipc_address(self.sockets, self.name)
        router = self._factory.open(zmq.ROUTER)
        router.bind(address)
        self._address = address
        self.server = Server(
            router,
            handlers,
            self.nursery,
            self._who,
            self._limits,
            self.metrics,
            self.log,
            tasks=tasks,
            backlog=backlog,
        )
        self.nursery.start_soon(self.server.run, name="calls")
        if self._welcome is not None:
            await self._register()

    async def advertise(self, **attributes: str) -> None:
        """Sets attributes others choose this peer by (e.g. a generator's `url`); a `peer.up` event tells them."""
        self._attributes.update(attributes)
        if self._welcome is not None:
            await self._register()

    async def ready(self) -> None:
        """From now on the directory shows this process as running."""
        self._state = "running"
        self._beat_now.set()
        await trio.lowlevel.checkpoint()

    def events(self, *types: type[Event], snapshot: bool = True, after: int | None = None) -> Subscription:
        """Events of these types (all if none is named).

        `snapshot`: first the retained ones, then what follows. `after`: instead, everything after that number.
        """
        return self._subscribe(types, snapshot, after)

    def _subscribe(
        self,
        types: Sequence[type[Event]],
        snapshot: bool = True,
        after: int | None = None,
        on_news: Callable[[], None] | None = None,
    ) -> Subscription:
        assert self._welcome is not None, "join first"
        subscription = Subscription(
            self.hub,
            self._factory,
            self._welcome.events,
            types,
            self._limits,
            self.metrics,
            snapshot=snapshot,
            after=after,
            on_news=on_news,
        )
        self._subscriptions.append(subscription)
        return subscription

    def caller(self, address: str) -> Caller:
        """The connection to an address, shared by the whole process."""
        return self._callers.get(address)

    async def peer(self, role: str, *, deadline: float = float("inf")) -> Caller:
        """A living peer of this role, in turn if there are several; waits for one until `deadline` (epoch seconds).

        Raises:
            PeerGone: none came in time.
        """
        with self.waits(f"peer {role}", on=role, deadline=0.0 if deadline == float("inf") else deadline):
            with trio.move_on_after(max(deadline - time.time(), 0.0)):
                while True:
                    peer = self.peers.pick(role)
                    if peer is not None:
                        return self.caller(peer.address)
                    await self.peers.changed()
        raise PeerGone(f"no living {role} serves calls")

    async def _register(self) -> None:
        peer = Peer(
            role=self.role,
            name=self.name,
            incarnation=self.incarnation,
            address=self._address,
            pid=os.getpid(),
            host=socket.gethostname(),
            attributes=dict(self._attributes),
        )
        while True:
            try:
                welcome: Registered = await self.hub.call(Register(peer=peer), timeout=30.0)
            except CallTimeout:
                self.log.warning("the hub is silent", hub=self.hub_address)
                continue
            self._welcome = welcome
            self._who.run = welcome.run
            return

    async def _heartbeats(self) -> None:
        assert self._welcome is not None
        while True:
            self._beat_now = trio.Event()
            beat = Heartbeat(
                name=self.name,
                incarnation=self.incarnation,
                state="draining" if self.draining.is_set() else self._state,
                gauges=dict(self.metrics.gauges),
                counters=dict(self.metrics.counters),
                waits=self.waits.current(),
                lag_ms=self.lag.take_ms(),
            )
            try:
                answer = await self.hub.call(beat, timeout=2 * self._welcome.heartbeat_s)
            except CallTimeout:
                self.metrics.count("heartbeats_missed")
                continue
            if not answer.known:
                await self._register()
            self._subscriptions = [subscription for subscription in self._subscriptions if not subscription.closed]
            for subscription in self._subscriptions:
                subscription.note(answer.seqs)
            with trio.move_on_after(self._welcome.heartbeat_s):
                await self._beat_now.wait()

    async def _follow(self, task_status: trio.TaskStatus[None]) -> None:
        again = self.caller(
            self.hub_address
        ).resend  # the hub greets after its restart: what it never saw goes out again
        async with self._subscribe((PeerUp, PeerDown, RunState), on_news=again) as events:
            task_status.started()
            async for event in events:
                message = event.message
                if isinstance(message, PeerUp):
                    self._peer_up(message.peer)
                elif isinstance(message, PeerDown):
                    self._peer_down(message.peer, message.reason)
                elif self._follows_run_state and isinstance(message, RunState) and message.state in _ENDING:
                    self.draining.set()

    def _peer_up(self, peer: Peer) -> None:
        before = self.peers.get(peer.name)
        self.peers.up(peer)
        caller = self._callers.known(peer.address)
        if caller is not None and (before is None or before.incarnation != peer.incarnation):
            caller.resend()

    def _peer_down(self, peer: Peer, reason: str) -> None:
        self.peers.down(peer)
        if peer.address and reason != "replaced" and not any(p.address == peer.address for p in self.peers):
            self._callers.drop(peer.address, f"{peer.name} is gone ({reason})")
