"""The judge role: the trial machine around a scorer. `make(ctx)` gives the actor; `machine` has the decisions."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spade_actors.judge.actor import Judge
    from spade_actors.runtime.context import Context


def make(ctx: "Context") -> "Judge":
    """The actor of this role."""
    from spade_actors.judge.actor import Judge

    return Judge(ctx)
