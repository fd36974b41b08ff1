"""Two ends of the runtime's calls in one loop, over real ipc sockets."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import structlog
import trio
import zmq

from spade_actors.runtime.calls import Caller, Callers, Identity
from spade_actors.runtime.metrics import Metrics
from spade_actors.runtime.server import Handler, Server
from spade_actors.runtime.sockets import SocketFactory
from spade_actors.runtime.timers import Timers
from spade_protocols.codec import DEFAULT_LIMITS
from spade_protocols.registry import Call

LOG = structlog.wrap_logger(structlog.ReturnLogger())


class Ends(NamedTuple):
    caller: Caller
    server: Server
    metrics: Metrics
    """of both ends"""
    sockets: SocketFactory
    address: str
    callers: Callers


@asynccontextmanager
async def folder() -> AsyncIterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="spade-t-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def ends(handlers: Mapping[type[Call], Handler], *, tasks: int = 256, backlog: int = 4096) -> AsyncIterator[Ends]:
    async with folder() as path:
        address = f"ipc://{path}/s.sock"
        factory = SocketFactory(DEFAULT_LIMITS.buffer)
        metrics = Metrics()
        timers = Timers()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            router = factory.open(zmq.ROUTER)
            router.bind(address)
            server = Server(
                router,
                handlers,
                nursery,
                Identity("server", "s" * 8, "run"),
                DEFAULT_LIMITS,
                metrics,
                LOG,
                tasks=tasks,
                backlog=backlog,
            )
            nursery.start_soon(server.run)
            callers = Callers(nursery, factory, Identity("client", "c" * 8, "run"), timers, DEFAULT_LIMITS, metrics)
            yield Ends(callers.get(address), server, metrics, factory, address, callers)
            nursery.cancel_scope.cancel()
        factory.close()
