"""The designer role: writes environments with hints from briefs and proposes them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spade_actors.runtime.actor import Actor
    from spade_actors.runtime.context import Context


def make(ctx: "Context") -> "Actor":
    """The role's actor."""
    from spade_actors.designer.actor import Designer

    return Designer(ctx)
