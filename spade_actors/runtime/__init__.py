"""Actors over ZeroMQ under trio: sockets, typed calls, events, leased queues, processes. Knows nothing of SPADE."""

from spade_actors.runtime.actor import Actor, ProcessSettings, run_actor
from spade_actors.runtime.calls import Answer, Caller
from spade_actors.runtime.context import Context, ipc_address
from spade_actors.runtime.errors import CallError, CallFailed, CallTimeout, PeerGone, StoreError
from spade_actors.runtime.hub_client import HubClient
from spade_actors.runtime.server import CallContext, Handler
from spade_actors.runtime.store import Store
from spade_actors.runtime.subscription import Received, Subscription

__all__ = [
    "Actor",
    "Answer",
    "CallContext",
    "CallError",
    "CallFailed",
    "CallTimeout",
    "Caller",
    "Context",
    "Handler",
    "HubClient",
    "PeerGone",
    "ProcessSettings",
    "Received",
    "Store",
    "StoreError",
    "Subscription",
    "ipc_address",
    "run_actor",
]
