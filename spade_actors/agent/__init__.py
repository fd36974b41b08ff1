"""The agent role: plays environments by the current policy and delivers trajectories."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spade_actors.runtime.actor import Actor
    from spade_actors.runtime.context import Context


def make(ctx: "Context") -> "Actor":
    """The role's actor."""
    from spade_actors.agent.actor import Agent

    return Agent(ctx)
