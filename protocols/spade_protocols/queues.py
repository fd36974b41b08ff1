"""Hub: leased work queues. Every hand-over of owned work is an item here; events only inform.

An item is `ready`, `leased`, or ended: `completed`, `cancelled` or `dead`. It ends exactly once. A lease belongs to the
holder's incarnation, lives by its heartbeats and returns at release, failure or death with the next attempt number.
"""

from typing import Any

from spade_protocols.events import Outgoing
from spade_protocols.registry import Call, Event, Message, Reply, message_type

DESIGNS = "designs"
PROPOSALS = "proposals"
PLAYS = "plays"
SAMPLES = "samples"
QUEUES = (DESIGNS, PROPOSALS, PLAYS, SAMPLES)

MAX_ITEM_BYTES = 8192


class Item(Message, frozen=True, kw_only=True):
    """Work to be put. The id is made by the caller; putting an id again is acknowledged and counted as a duplicate."""

    id: str
    body: dict[str, Any]
    """at most 8 KiB packed"""
    group: str = ""
    """ready items of one group are leased together"""
    priority: int = 0
    """higher first, then first in first out"""
    attempts: int = 3
    """failures after which the item is dead"""


class Leased(Message, frozen=True, kw_only=True):
    """An item in a holder's hands."""

    id: str
    lease: str
    attempt: int
    """1 for the first"""
    body: dict[str, Any]
    group: str
    put_at: float


class PutTo(Message, frozen=True, kw_only=True):
    """Items for one queue."""

    queue: str
    items: list[Item]


@message_type("queue.put_reply")
class Accepted(Reply, frozen=True, kw_only=True):
    """How many were new and how many were there already."""

    new: int
    duplicates: int


@message_type("queue.put", reply=Accepted)
class Put(Call, frozen=True, kw_only=True):
    """Puts items, all or none, durable when answered."""

    queue: str
    items: list[Item]


@message_type("queue.leases")
class Leases(Reply, frozen=True, kw_only=True):
    """What was leased; empty when nothing became ready in time."""

    items: list[Leased]


@message_type("queue.lease", reply=Leases)
class Lease(Call, frozen=True, kw_only=True):
    """Takes up to `count` ready items (whole groups: a first group larger than `count` comes whole), waiting up to `wait_s` for one."""

    queue: str
    holder: str
    incarnation: str
    count: int
    wait_s: float = 0.0
    where: dict[str, str] = {}
    """only items whose body has these string values"""


class Completion(Message, frozen=True, kw_only=True):
    """The one end of one item by its holder."""

    id: str
    lease: str
    result: dict[str, Any] = {}


@message_type("queue.ends")
class Ends(Reply, frozen=True, kw_only=True):
    """`done`: ids ended by this call or by the same call before; `lost`: ids whose lease was no longer the caller's."""

    done: list[str]
    lost: list[str]


@message_type("queue.complete", reply=Ends)
class Complete(Call, frozen=True, kw_only=True):
    """Ends items, puts what follows and publishes events in one transaction. If any lease is lost, nothing follows unless `partial`."""

    queue: str
    completions: list[Completion]
    puts: list[PutTo] = []
    events: list[Outgoing] = []
    partial: bool = True


class Return(Message, frozen=True, kw_only=True):
    """One lease given back."""

    id: str
    lease: str
    reason: str
    counts: bool = True
    """a failed attempt (towards `attempts`); false: handed back unused"""


@message_type("queue.release", reply=Ends)
class Release(Call, frozen=True, kw_only=True):
    """Gives leases back: items become ready again, or dead when their attempts are used up."""

    queue: str
    returns: list[Return]


@message_type("queue.cancel", reply=Ends)
class Cancel(Call, frozen=True, kw_only=True):
    """Ends items that are ready or leased as cancelled; a holder's later completion is `lost`. By ids or by groups."""

    queue: str
    ids: list[str] = []
    groups: list[str] = []
    reason: str


@message_type("queue.found")
class Found(Reply, frozen=True, kw_only=True):
    """States of items: id -> (state, result)."""

    states: dict[str, str]
    results: dict[str, dict[str, Any]]


@message_type("queue.find", reply=Found)
class Find(Call, frozen=True, kw_only=True):
    """The states of items by id; ids that never were are left out."""

    queue: str
    ids: list[str]


@message_type("item.ended")
class ItemEnded(Event, frozen=True, kw_only=True):
    """An item's one end, published with it. The event's key is the queue."""

    queue: str
    id: str
    state: str
    """completed | cancelled | dead"""
    result: dict[str, Any] = {}
    reason: str = ""
    attempt: int = 0
    holder: str = ""


@message_type("item.returned")
class ItemReturned(Event, frozen=True, kw_only=True):
    """A leased item became ready again."""

    queue: str
    id: str
    attempt: int
    reason: str
    holder: str = ""
