"""The hub's process: calls in, decisions by the pure machines, one journal commit, then the answer and the events.

What always holds: nothing is answered or published before its commit; memory changes at once on the loop, so decisions are
in one order; only puts become visible after their commit, because the journal knows which ids are new.
"""

from collections.abc import Callable, Sequence

import trio
import zmq

from spade_actors.hub.desk import Desk, check_size, outgoing
from spade_actors.hub.directory import Directory, Down, Replaced, Up
from spade_actors.hub.journal import Committed, Journal, Outcome, Sent, Work
from spade_actors.runtime.actor import Actor
from spade_actors.runtime.context import Context, ipc_address
from spade_actors.runtime.errors import CallError
from spade_actors.runtime.server import CallContext, Handler
from spade_actors.runtime.sockets import Socket
from spade_protocols.codec import pack_header, pack_news
from spade_protocols.common import Ack, Ping
from spade_protocols.directory import (
    GetStatus,
    Heartbeat,
    HeartbeatAck,
    Leave,
    Lookup,
    Peer,
    PeerDown,
    Peers,
    PeerStatus,
    PeerUp,
    Register,
    Registered,
    Status,
    Wait,
)
from spade_protocols.events import Events, Publish, Published, Replay, Snapshot, Stored
from spade_protocols.queues import Cancel, Complete, Find, Lease, Put, Release
from spade_protocols.registry import Call

MAX_REPLAY = 1000
MAX_REPLAY_BYTES = 512 << 10
NEWS = "event.news"
"""type in the header of a greeting, which is no event"""


class HubActor(Actor):
    """Directory, event bus, leased queues, journal."""

    role = "hub"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        hub = ctx.config.hub
        self._heartbeat_s = hub.heartbeat_s
        self._ttl_s = hub.ttl_s
        self._journal = Journal(ctx.run_dir / "journal.sqlite", hub.commit_ms)
        self._directory = Directory(hub.ttl_s)
        self._desk = Desk(self._journal, self._directory, ctx.timers, ctx.name)
        self._events_address = ipc_address(ctx.sockets, "events")
        self._socket: Socket | None = None
        self._started = trio.current_time()
        self._alone = trio.Event()

    async def run(self) -> None:
        """Serves until drained: until every peer has left, or one ttl after the order to drain."""
        ctx = self.ctx
        try:
            loaded = await self._journal.load(ctx.run_dir.name)
            ctx.run = loaded.run
            self._desk.restore(loaded)
            self._directory.restore(loaded.peers, trio.current_time())
            self._socket = ctx.open_socket(zmq.XPUB)
            self._socket.raw.setsockopt(zmq.XPUB_VERBOSE, 1)
            self._socket.bind(self._events_address)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._journal.run, self._publish)
                nursery.start_soon(self._greet, self._socket)
                nursery.start_soon(self._tick)
                await ctx.serve(self._handlers())
                ctx.log.info(
                    "serving", run=loaded.run, seq=loaded.seq, items=len(loaded.items), peers=len(loaded.peers)
                )
                await ctx.draining.wait()
                with trio.move_on_after(self._ttl_s):
                    await self._alone.wait()
                await self._flushed()
                nursery.cancel_scope.cancel()
        finally:
            self._journal.close()

    def _handlers(self) -> dict[type[Call], Handler]:
        desk = self._desk
        return {
            Ping: lambda call: Ack(),
            Register: self._register,
            Heartbeat: self._heartbeat,
            Leave: self._leave,
            Lookup: self._lookup,
            GetStatus: self._status,
            Publish: self._publish_call,
            Snapshot: self._snapshot,
            Replay: self._replay,
            Put: desk.put,
            Lease: desk.lease,
            Complete: desk.complete,
            Release: desk.release,
            Cancel: desk.cancel,
            Find: desk.find,
        }

    def _register(self, call: CallContext) -> None:
        message = call.message
        assert isinstance(message, Register)
        try:
            changes = self._directory.register(message.peer, trio.current_time())
        except Replaced as error:
            raise CallError("replaced", str(error)) from None
        call.defer()
        self._change(changes, lambda: call.answer(self._welcome()))

    def _heartbeat(self, call: CallContext) -> HeartbeatAck:
        assert isinstance(call.message, Heartbeat)
        known = self._directory.heartbeat(call.message, trio.current_time())
        return HeartbeatAck(known=known, seqs=self._journal.latest)

    def _leave(self, call: CallContext) -> None:
        assert isinstance(call.message, Leave)
        down = self._directory.leave(call.message.name, call.message.incarnation)
        call.defer()
        self._change([down] if down else [], lambda: call.answer(Ack()))

    def _lookup(self, call: CallContext) -> Peers:
        assert isinstance(call.message, Lookup)
        return Peers(peers=self._directory.lookup(call.message.role))

    def _publish_call(self, call: CallContext) -> None:
        message = call.message
        assert isinstance(message, Publish)
        for event in message.events:
            check_size(f"event {event.type}", event.body)
        call.defer()
        work = Work(lambda outcome: call.answer(Published(seqs=outcome.seqs)))
        work.events = [Sent(event, call.header.sender, call.header.trace) for event in message.events]
        self._journal.submit(work)

    def _snapshot(self, call: CallContext) -> None:
        message = call.message
        assert isinstance(message, Snapshot)
        call.defer()

        def answer(_: Outcome) -> None:
            retained = self._journal.retained.values()
            chosen = [stored for stored in retained if not message.types or stored.type in message.types]
            chosen.sort(key=lambda stored: stored.seq)
            call.answer(Events(events=chosen, seq=self._journal.seq))

        self._journal.submit(Work(answer))

    async def _replay(self, call: CallContext) -> Events:
        message = call.message
        assert isinstance(message, Replay)
        limit = max(1, min(message.limit, MAX_REPLAY))
        seq = self._journal.seq
        events = await self._journal.replay(message.after, message.types, limit + 1)
        cut = _within(events[:limit], MAX_REPLAY_BYTES)
        more = len(cut) < len(events)
        return Events(events=cut, seq=max(seq, cut[-1].seq if cut else 0), more=more)

    def _status(self, call: CallContext) -> Status:
        now = trio.current_time()
        ctx = self.ctx
        itself = PeerStatus(
            peer=Peer(role="hub", name=ctx.name, incarnation=ctx.incarnation, address=ctx.hub_address),
            state="draining" if ctx.draining.is_set() else "running",
            age_s=now - self._started,
            silent_s=0.0,
            gauges={**ctx.metrics.gauges, "commit_ms": self._journal.commit_ms},
            counters=dict(ctx.metrics.counters),
            waits=ctx.waits.current(),
            lag_ms=ctx.lag.take_ms(),
        )
        waiters: list[Wait] = self._desk.waiters()
        return Status(
            run=ctx.run,
            seq=self._journal.seq,
            uptime_s=now - self._started,
            peers=[itself, *self._directory.status(now)],
            queues=self._desk.status(),
            waiters=waiters,
            errors=dict(ctx.server.refused) if ctx.server else {},
        )

    def _welcome(self) -> Registered:
        return Registered(
            run=self.ctx.run,
            events=self._events_address,
            seq=self._journal.seq,
            heartbeat_s=self._heartbeat_s,
            ttl_s=self._ttl_s,
        )

    def _change(self, changes: Sequence[Up | Down], then: Callable[[], None]) -> None:
        """Journals peers that came and went, with the return of what the gone ones held."""
        work = Work(lambda _: then())
        for change in changes:
            peer = change.peer
            if isinstance(change, Up):
                work.peers[peer.name] = peer
                work.events.append(Sent(outgoing(PeerUp(peer=peer), peer.name, retain=True), self.ctx.name, ""))
            else:
                work.peers[peer.name] = None
                work.forget.append(("peer.up", peer.name))
                self.ctx.log.info("peer down", peer=peer.name, reason=change.reason)
                work.events.append(
                    Sent(outgoing(PeerDown(peer=peer, reason=change.reason), peer.name), self.ctx.name, "")
                )
                self._desk.holder_gone(work, peer.incarnation, f"holder {peer.name} {change.reason}", change.reason)
        self._journal.submit(work)
        self._desk.serve_all()

    async def _tick(self) -> None:
        every = min(self._ttl_s / 8, 0.5)
        while True:
            await trio.sleep(every)
            if self.ctx.draining.is_set() and not len(self._directory):
                self._alone.set()
            down = self._directory.expire(trio.current_time())
            if down:
                self._change(down, lambda: None)

    async def _flushed(self) -> None:
        done = trio.Event()
        self._journal.submit(Work(lambda _: done.set()))
        await done.wait()

    def _publish(self, event: Committed) -> None:
        assert self._socket is not None
        stored = event.stored
        topic = f"{stored.type}:{stored.key}" if stored.key else stored.type
        header = pack_header("event", stored.type, "", self.ctx.run, stored.trace, stored.sender, stored.at, stored.seq)
        self._socket.try_send([topic.encode(), header, stored.body, pack_news(self._journal.latest)])

    async def _greet(self, socket: Socket) -> None:
        """Tells every new subscriber the newest number of each type, so that it knows what it missed while joining."""
        while True:
            try:
                (frame,) = await socket.recv()
            except trio.ClosedResourceError:
                return
            if frame[:1] == b"\x01":
                header = pack_header("event", NEWS, "", self.ctx.run, "", self.ctx.name)
                socket.try_send([frame[1:], header, b"\x80", pack_news(self._journal.latest)])


def _within(events: list[Stored], most: int) -> list[Stored]:
    """As many of the first events as fit into `most` bytes, at least one."""
    size = 0
    for index, stored in enumerate(events):
        size += len(stored.body) + 128
        if size > most and index:
            return events[:index]
    return events
