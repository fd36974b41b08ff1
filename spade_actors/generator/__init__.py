"""The generator role: one process per inference server, which it starts or attaches to, keeps at the newest weights and watches."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spade_actors.runtime.actor import Actor
    from spade_actors.runtime.context import Context


def make(ctx: "Context") -> "Actor":
    """The role's actor."""
    from spade_actors.generator.actor import Generator

    return Generator(ctx)
