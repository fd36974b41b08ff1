"""The memory role: archive, exemplars, passages, duplicates; writes briefs. `make(ctx)` gives the actor."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spade_actors.memory.actor import Memory
    from spade_actors.runtime.context import Context


def make(ctx: "Context") -> "Memory":
    """The actor of this role."""
    from spade_actors.memory.actor import Memory

    return Memory(ctx)
