"""Hub: the event bus. Events have a per-run sequence number and are published after their commit."""

from spade_protocols.registry import Call, Message, Reply, message_type


class Stored(Message, frozen=True, kw_only=True):
    """One event of the journal as bytes: `body` decodes as the type's class."""

    seq: int
    type: str
    sender: str
    trace: str
    at: float
    """seconds since the epoch"""
    body: bytes
    key: str = ""


class Outgoing(Message, frozen=True, kw_only=True):
    """An event to be committed and published."""

    type: str
    body: bytes
    """packed body, at most 8 KiB"""
    key: str = ""
    """with `retain`: the snapshot keeps the newest event per (type, key)"""
    retain: bool = False
    id: str = ""
    """caller-made; a second publish with the same id is acknowledged with the first one's seq"""


@message_type("event.published")
class Published(Reply, frozen=True, kw_only=True):
    """Sequence numbers, in order."""

    seqs: list[int]


@message_type("event.publish", reply=Published)
class Publish(Call, frozen=True, kw_only=True):
    """Commits events, then publishes them."""

    events: list[Outgoing]


@message_type("event.list")
class Events(Reply, frozen=True, kw_only=True):
    """Events in order; `seq` is the newest of the run at that moment; `more` when `limit` cut the list."""

    events: list[Stored]
    seq: int
    more: bool = False


@message_type("event.snapshot", reply=Events)
class Snapshot(Call, frozen=True, kw_only=True):
    """The retained events of these types (all if empty): the state to start from before following from `seq`."""

    types: list[str] = []


@message_type("event.replay", reply=Events)
class Replay(Call, frozen=True, kw_only=True):
    """Events of these types (all if empty) after a sequence number."""

    after: int
    types: list[str] = []
    limit: int = 1000
