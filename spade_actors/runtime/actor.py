"""A role as an operating-system process: one trio loop, signals, the death pipe, an exit code.

What always holds: the first SIGTERM or SIGINT sets `draining`, the second cancels everything; when the parent's end of the
death pipe closes the process stops, at the latest `DEATH_GRACE_S` later even if its loop is stuck; the actor's goodbye and
the closing of its sockets happen on every way out but the last.
"""

import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec
import structlog
import trio

from spade_actors.runtime.context import Context
from spade_actors.runtime.logs import open_log
from spade_actors.runtime.sockets import SocketFactory
from spade_protocols.codec import DEFAULT_LIMITS

if TYPE_CHECKING:
    from spade_actors.config.schema import Config

DEATH_GRACE_S = 2.0
EXIT_ORPHAN = 70
"""exit code of a process whose parent died"""
EXIT_INTERRUPTED = 130


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is started with."""

    role: str
    name: str
    hub: str
    """address of the hub's ROUTER"""
    run_dir: Path
    config: "Config"
    sockets: Path
    """0700 folder for ipc sockets"""
    log: Path | None = None
    """None: stderr"""
    parent_fd: int | None = None
    """read end of the death pipe, or None when started by hand"""


class Actor(ABC):
    """Base of every role."""

    role: ClassVar[str]

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    @abstractmethod
    async def run(self) -> None:
        """The role's life; returns after `ctx.draining`. Cancelled at once on the second signal."""


def run_actor(make: Callable[[Context], Actor], settings: ProcessSettings) -> int:
    """Runs one role until it has drained; the process's exit code: 0 drained, 1 failed, 130 stopped at once."""
    log = open_log(settings.log, process=settings.name)
    settings.sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
    log.info("start", role=settings.role, pid=os.getpid())
    try:
        code = trio.run(_live, make, settings, log, strict_exception_groups=True)
    except (KeyboardInterrupt, trio.Cancelled):
        code = EXIT_INTERRUPTED
    except BaseException as error:
        log.error("failed", exc_info=error)
        if not isinstance(error, (Exception, BaseExceptionGroup)):
            raise
        code = 1
    log.info("end", code=code)
    return code


async def _live(make: Callable[[Context], Actor], settings: ProcessSettings, log: structlog.stdlib.BoundLogger) -> int:
    life = trio.CancelScope()
    orphaned = False

    def orphan() -> None:
        nonlocal orphaned
        orphaned = True
        life.cancel()

    sockets = SocketFactory(DEFAULT_LIMITS.buffer)
    try:
        async with trio.open_nursery() as services:
            ctx = Context(
                name=settings.name,
                role=settings.role,
                hub=settings.hub,
                run_dir=settings.run_dir,
                sockets=settings.sockets,
                config=settings.config,
                log=log,
                nursery=services,
                factory=sockets,
                # Its supervisor drains it in order, role by role.
                follows_run_state=settings.parent_fd is None,
            )
            services.start_soon(_signals, ctx, life)
            if settings.parent_fd is not None:
                _watch_parent(settings.parent_fd, orphan, log)
            with life:
                if settings.role != "hub":
                    await ctx.join()
                await make(ctx).run()
            # not after a crash: then the leases come back with the restart, as failed attempts
            if ctx.joined and not orphaned:
                await ctx.leave()
            services.cancel_scope.cancel()
    finally:
        sockets.close()
    return EXIT_ORPHAN if orphaned else EXIT_INTERRUPTED if life.cancelled_caught else 0


async def _signals(ctx: Context, life: trio.CancelScope) -> None:
    asked = False
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            ctx.log.info("signal", number=int(number), again=asked)
            if asked:
                life.cancel()
            asked = True
            ctx.draining.set()


def _watch_parent(fd: int, stop: Callable[[], None], log: structlog.stdlib.BoundLogger) -> None:
    """A thread of its own, since the loop may be stuck in a long step when the parent dies."""
    token = trio.lowlevel.current_trio_token()

    def wait() -> None:
        while os.read(fd, 64):
            pass
        try:
            token.run_sync_soon(stop)
        except trio.RunFinishedError:
            return
        threading.Event().wait(DEATH_GRACE_S)
        log.error("the parent is gone and the loop did not stop")
        os._exit(EXIT_ORPHAN)

    os.set_inheritable(fd, False)
    threading.Thread(target=wait, name="death pipe", daemon=True).start()
