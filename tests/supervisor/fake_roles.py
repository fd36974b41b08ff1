"""Actors that only come, wait and go, for runs of the supervisor without the real roles."""

import os

import trio

from spade_actors.runtime.actor import Actor
from spade_actors.runtime.context import Context
from spade_protocols.sample import Fact, LearnerStepped, RunState


class Idle(Actor):
    """Waits for its drain and says in which order it went."""

    role = "idle"

    async def run(self) -> None:
        await self.ctx.ready()
        await self.work()
        await self.ctx.draining.wait()
        with (self.ctx.run_dir / "order.txt").open("a") as file:
            file.write(f"{self.ctx.name}\n")

    async def work(self) -> None:
        """Nothing."""


class Learner(Idle):
    """One update, then as many as were missing."""

    async def work(self) -> None:
        for step in range(1, self.ctx.config.run.steps + 1):
            await self.ctx.hub.publish(
                LearnerStepped(
                    step=step, version=step, samples=1, stale=0, by_role={}, staleness={}, metrics={}, seconds=0.1
                ),
                id=f"step-{step}",
            )


class Judge(Idle):
    """Declares the run complete once the last update and the agent's second life were seen, unless it is to be endless."""

    async def work(self) -> None:
        seen = {"update": False, "agent": self.ctx.config.run.seed == 99}
        async with self.ctx.events(LearnerStepped, Fact, after=0) as events:
            while not all(seen.values()):
                event = (await anext(events)).message
                if isinstance(event, LearnerStepped):
                    seen["update"] = event.step >= self.ctx.config.run.steps
                elif isinstance(event, Fact) and event.name == "agent.second.life":
                    seen["agent"] = True
        if self.ctx.config.run.seed == 1:
            await self.ctx.hub.publish(RunState(state="complete"), retain=True)


class Agent(Idle):
    """Dies once of SIGKILL at its first life."""

    async def work(self) -> None:
        marker = self.ctx.run_dir / "agent-was-here"
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), 9)
        await self.ctx.hub.publish(Fact(name="agent.second.life"))


class Broken(Idle):
    """Cannot start."""

    async def work(self) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("run.model: there is no such folder")


def make(ctx: Context) -> Actor:
    """The actor of a role."""
    if ctx.config.run.seed == 13 and ctx.role == "memory":
        return Broken(ctx)
    return {"learner": Learner, "judge": Judge, "agent": Agent}.get(ctx.role, Idle)(ctx)
