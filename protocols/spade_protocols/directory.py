"""Hub: who is there, how they are, what the run is doing."""

from spade_protocols.common import Ack
from spade_protocols.registry import Call, Event, Message, Reply, message_type


class Peer(Message, frozen=True, kw_only=True):
    """One registered process."""

    role: str
    name: str
    """unique in the run, e.g. `agent-2`"""
    incarnation: str
    """made at every start of the process; leases belong to an incarnation"""
    address: str = ""
    """ZeroMQ address it serves calls on, or empty"""
    pid: int = 0
    host: str = ""
    attributes: dict[str, str] = {}
    """what others may choose by, e.g. a generator's `url`"""


class Wait(Message, frozen=True, kw_only=True):
    """Something a process is waiting for: nothing waits silently."""

    name: str
    on: str
    """from whom"""
    since: float
    deadline: float = 0.0
    """0 = no deadline, `on` owns the end"""


@message_type("peer.registered")
class Registered(Reply, frozen=True, kw_only=True):
    """Welcome: what a process needs to take part."""

    run: str
    events: str
    """address of the event socket"""
    seq: int
    """the newest event's sequence number"""
    heartbeat_s: float
    ttl_s: float
    """silent for longer than this, a peer is dead and its leases return"""


@message_type("peer.register", reply=Registered)
class Register(Call, frozen=True, kw_only=True):
    """Joins the directory. The same name with a new incarnation replaces the old one, whose leases return at once."""

    peer: Peer


@message_type("peer.heartbeat_ack")
class HeartbeatAck(Reply, frozen=True, kw_only=True):
    """`known` false: register again (the hub restarted or gave the peer up)."""

    known: bool
    seqs: dict[str, int] = {}
    """event type -> its newest sequence number; a follower that waits although it has not seen it replays"""


@message_type("peer.heartbeat", reply=HeartbeatAck)
class Heartbeat(Call, frozen=True, kw_only=True):
    """Renews the peer and all its leases; carries what `status` shows of it."""

    name: str
    incarnation: str
    state: str = "running"
    """starting | running | draining"""
    gauges: dict[str, float] = {}
    counters: dict[str, int] = {}
    waits: list[Wait] = []
    lag_ms: float = 0.0
    """worst lag of its event loop since the last heartbeat"""


@message_type("peer.leave", reply=Ack)
class Leave(Call, frozen=True, kw_only=True):
    """A clean end; leases still held return."""

    name: str
    incarnation: str


@message_type("peer.list")
class Peers(Reply, frozen=True, kw_only=True):
    """The living peers of the roles asked for."""

    peers: list[Peer]


@message_type("peer.lookup", reply=Peers)
class Lookup(Call, frozen=True, kw_only=True):
    """Peers by role; empty role = all."""

    role: str = ""


@message_type("peer.up")
class PeerUp(Event, frozen=True, kw_only=True):
    """A process joined."""

    peer: Peer


@message_type("peer.down")
class PeerDown(Event, frozen=True, kw_only=True):
    """A process left or died."""

    peer: Peer
    reason: str
    """left | silent | replaced"""


class PeerStatus(Message, frozen=True, kw_only=True):
    """A peer as `status` shows it."""

    peer: Peer
    state: str
    age_s: float
    silent_s: float
    gauges: dict[str, float]
    counters: dict[str, int]
    waits: list[Wait]
    lag_ms: float


class QueueStatus(Message, frozen=True, kw_only=True):
    """A queue as `status` shows it; counts of items."""

    queue: str
    ready: int
    leased: int
    completed: int
    cancelled: int
    dead: int
    oldest_ready_s: float


@message_type("hub.status_reply")
class Status(Reply, frozen=True, kw_only=True):
    """The whole picture at one moment."""

    run: str
    seq: int
    uptime_s: float
    peers: list[PeerStatus]
    queues: list[QueueStatus]
    waiters: list[Wait]
    """lease calls that are parked at the hub"""
    errors: dict[str, int]
    """refused messages by code"""


@message_type("hub.status", reply=Status)
class GetStatus(Call, frozen=True, kw_only=True):
    """What is there, what is queued, what waits for what."""
