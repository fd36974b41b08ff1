"""The learner role: batches of samples in, weight versions and checkpoints out.

Read `loss.py` first, then `trainer.py`. Imports torch only when the actor is made.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spade_actors.runtime.actor import Actor
    from spade_actors.runtime.context import Context


def make(ctx: "Context") -> "Actor":
    """The role's actor."""
    from spade_actors.learner.actor import Learner

    return Learner(ctx)
