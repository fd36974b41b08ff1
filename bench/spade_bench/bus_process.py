"""The other process of the bus benchmarks: `python -m spade_bench.bus_process bare|typed|task|hub|idle ARGUMENT...`."""

import sys
from pathlib import Path

import structlog
import trio
import zmq

from spade_actors.config.schema import Config
from spade_actors.hub import make as make_hub
from spade_actors.runtime import Actor, CallContext, ProcessSettings, run_actor
from spade_actors.runtime.calls import Identity
from spade_actors.runtime.metrics import Metrics
from spade_actors.runtime.server import Server
from spade_actors.runtime.sockets import SocketFactory
from spade_protocols.codec import DEFAULT_LIMITS
from spade_protocols.play import SessionStepped, StepSession

STEPPED = SessionStepped(observation="you see a door and a key", reward=0.0, terminated=False, truncated=False)


def bare(address: str) -> None:
    """A blocking echo: what pyzmq does without us."""
    socket: zmq.Socket[bytes] = zmq.Context().socket(zmq.ROUTER)
    socket.bind(address)
    while True:
        socket.send_multipart(socket.recv_multipart())


def typed(address: str, *, task: bool) -> None:
    """The runtime's server; `task`: the handler is a coroutine function with a task per call."""

    def step(call: CallContext) -> SessionStepped:
        assert isinstance(call.message, StepSession)
        return SessionStepped(observation=STEPPED.observation, reward=0.0, terminated=False, truncated=False)

    async def step_in_a_task(call: CallContext) -> SessionStepped:
        return step(call)

    async def serve() -> None:
        sockets = SocketFactory(DEFAULT_LIMITS.buffer)
        socket = sockets.open(zmq.ROUTER)
        socket.bind(address)
        async with trio.open_nursery() as nursery:
            server = Server(
                socket,
                {StepSession: step_in_a_task if task else step},
                nursery,
                Identity("server", "0" * 10, "bench"),
                DEFAULT_LIMITS,
                Metrics(),
                structlog.get_logger(),
            )
            await server.run()

    trio.run(serve)


class Idle(Actor):
    """Registered, heartbeats, nothing to do."""

    role = "agent"

    async def run(self) -> None:
        """Until drained."""
        await self.ctx.serve({})
        await self.ctx.ready()
        await self.ctx.draining.wait()


def actor(kind: str, hub: str, run_dir: Path) -> int:
    """A hub or an idle actor, as in a run."""
    settings = ProcessSettings(
        role="hub" if kind == "hub" else Idle.role,
        name=kind,
        hub=hub,
        run_dir=run_dir,
        config=Config(),
        sockets=run_dir,
        log=run_dir / f"{kind}.log",
    )
    return run_actor(make_hub if kind == "hub" else Idle, settings)


def main() -> int:
    """Runs until killed."""
    kind, argument = sys.argv[1], sys.argv[2]
    if kind == "bare":
        bare(argument)
    elif kind in ("typed", "task"):
        typed(argument, task=kind == "task")
    return actor(kind, argument, Path(sys.argv[3]))


if __name__ == "__main__":
    sys.exit(main())
