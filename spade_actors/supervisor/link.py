"""The supervisor's and the commands' own ends of the bus, inside a loop that is not an actor's."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from spade_actors.runtime.actor import ProcessSettings
from spade_actors.runtime.calls import Caller, Callers, Identity
from spade_actors.runtime.context import Context
from spade_actors.runtime.logs import open_log
from spade_actors.runtime.metrics import Metrics
from spade_actors.runtime.sockets import SocketFactory
from spade_actors.runtime.timers import Timers
from spade_protocols.codec import DEFAULT_LIMITS


@asynccontextmanager
async def open_context(settings: ProcessSettings) -> AsyncIterator[Context]:
    """A registered place in the run: waits for the hub as long as it takes, says goodbye at the end.

    Cancellation: leaves at once, after at most 2 s for the goodbye.
    """
    sockets = SocketFactory(DEFAULT_LIMITS.buffer)
    try:
        async with trio.open_nursery() as nursery:
            context = Context(
                name=settings.name,
                role=settings.role,
                hub=settings.hub,
                run_dir=settings.run_dir,
                sockets=settings.sockets,
                config=settings.config,
                log=open_log(settings.log, process=settings.name),
                nursery=nursery,
                factory=sockets,
            )
            try:
                await context.join()
                await context.ready()
                yield context
            finally:
                if context.joined:
                    await context.leave()
            nursery.cancel_scope.cancel()
    finally:
        sockets.close()


@asynccontextmanager
async def ask_hub(address: str) -> AsyncIterator[Caller]:
    """A bare connection to the hub that registers nothing, for one-off questions."""
    async with trio.open_nursery() as nursery:
        factory, timers = SocketFactory(DEFAULT_LIMITS.buffer), Timers()
        who = Identity("command", uuid.uuid4().hex[:10])
        nursery.start_soon(timers.run)
        try:
            yield Callers(nursery, factory, who, timers, DEFAULT_LIMITS, Metrics()).get(address)
        finally:
            factory.close()
        nursery.cancel_scope.cancel()
