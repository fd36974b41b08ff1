"""The hub: directory, event bus, leased queues, journal. Knows nothing of SPADE."""

from spade_actors.hub.actor import HubActor
from spade_actors.runtime.actor import Actor
from spade_actors.runtime.context import Context


def make(ctx: Context) -> Actor:
    """The hub's actor; its process is named `hub`."""
    return HubActor(ctx)
