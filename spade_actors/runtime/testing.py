"""A real hub and real sockets inside a test's own loop, for role tests.

`async with running_hub(tmp_path) as address, context("agent-1", role="agent", hub=address) as ctx: ...`
"""

import importlib
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from spade_actors.runtime.context import Context, ipc_address
from spade_actors.runtime.logs import open_log
from spade_actors.runtime.sockets import SocketFactory
from spade_protocols.codec import DEFAULT_LIMITS

if TYPE_CHECKING:
    from spade_actors.config.schema import Config


def default_config() -> "Config":
    """The configuration of a run without a file."""
    config: Config = importlib.import_module("spade_actors.config.schema").Config()  # tests only: not a runtime import
    return config


@asynccontextmanager
async def running_hub(
    run_dir: Path, *, config: "Config | None" = None, sockets: Path | None = None
) -> AsyncIterator[str]:
    """A hub on the run folder's journal; yields its address. Without `sockets` the folder is a short temporary one."""
    folder = sockets or Path(tempfile.mkdtemp(prefix="spade-"))
    address = ipc_address(folder, "hub")
    make = importlib.import_module(
        "spade_actors.hub"
    ).make  # the kit serves role tests; the runtime itself needs no hub
    try:
        async with _bare("hub", "hub", address, run_dir, folder, config) as ctx:
            ctx.nursery.start_soon(make(ctx).run)
            yield address
    finally:
        if sockets is None:
            shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def context(
    name: str, *, role: str, hub: str, run_dir: Path | None = None, config: "Config | None" = None, leave: bool = True
) -> AsyncIterator[Context]:
    """A joined context, as an actor gets it; with `leave` it says goodbye at the end, else it just falls silent."""
    folder = Path(hub.removeprefix("ipc://")).parent
    async with _bare(name, role, hub, run_dir or folder, folder, config) as ctx:
        await ctx.join()
        yield ctx
        if leave:
            await ctx.leave()


@asynccontextmanager
async def _bare(
    name: str, role: str, hub: str, run_dir: Path, sockets: Path, config: "Config | None"
) -> AsyncIterator[Context]:
    failure: Exception | None = None
    factory = SocketFactory(DEFAULT_LIMITS.buffer)
    try:
        async with trio.open_nursery() as nursery:
            ctx = Context(
                name=name,
                role=role,
                hub=hub,
                run_dir=run_dir,
                sockets=sockets,
                config=config or default_config(),
                log=open_log(run_dir / "logs" / f"{name}.log", process=name),
                nursery=nursery,
                factory=factory,
            )
            try:
                yield ctx
            except Exception as error:  # raised again below, outside the nursery, so that a test sees it alone
                failure = error
            finally:
                nursery.cancel_scope.cancel()
    finally:
        # A context that is collected while sockets are open blocks the whole process.
        factory.close()
    if failure is not None:
        raise failure
