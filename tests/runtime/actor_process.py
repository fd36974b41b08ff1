"""A small actor in a process of its own: `python actor_process.py KIND NAME HUB RUN_DIR SOCKETS [PARENT_FD]`.

Kinds: `idle` waits for the order to drain; `stuck` never drains; `blocked` keeps its loop busy; `crash` raises.
"""

import sys
import threading
from pathlib import Path

import trio

from spade_actors.config.schema import Config
from spade_actors.runtime import Actor, ProcessSettings, run_actor
from spade_protocols.common import Ack, Ping


class Small(Actor):
    role = "agent"
    kind = ""

    async def run(self) -> None:
        await self.ctx.serve({Ping: lambda call: Ack()})
        await self.ctx.ready()
        if self.kind == "crash":
            raise RuntimeError("as asked")
        if self.kind == "blocked":
            await trio.sleep(0.2)
            threading.Event().wait()
        await self.ctx.draining.wait()
        if self.kind == "stuck":
            await trio.sleep_forever()


Small.kind = sys.argv[1]
name, hub, run_dir, sockets = sys.argv[2], sys.argv[3], Path(sys.argv[4]), Path(sys.argv[5])
settings = ProcessSettings(
    role="agent",
    name=name,
    hub=hub,
    run_dir=run_dir,
    config=Config(),
    sockets=sockets,
    log=run_dir / "logs" / f"{name}.log",
    parent_fd=int(sys.argv[6]) if len(sys.argv) > 6 else None,
)
sys.exit(run_actor(Small, settings))
