"""Role name -> the factory of its actor. A new role is one line here; a role of somebody else's is `package.module:factory`.

Factories are imported only in the process that runs the role, so a sandbox host needs no torch.
"""

import importlib
from collections.abc import Callable
from typing import Any

ROLES: dict[str, str] = {
    "hub": "spade_actors.hub:make",
    "memory": "spade_actors.memory:make",
    "judge": "spade_actors.judge:make",
    "generator": "spade_actors.generator:make",
    "learner": "spade_actors.learner:make",
    "sandbox": "spade_sandbox.actor:make",
    "agent": "spade_actors.agent:make",
    "designer": "spade_actors.designer:make",
    "scorer": "spade_actors.scoring.process:make",
}

SINGLE = ("hub", "memory", "judge", "learner")
"""roles of which a run has one process, named like the role"""


class UnknownRole(Exception):
    """One line for the user."""


def factory(role: str) -> Callable[[Any], Any]:
    """The function that makes the role's actor from its context.

    Raises:
        UnknownRole: no such role, module or function, or what it needs is not installed.
    """
    target = ROLES.get(role, role)
    module, colon, name = target.partition(":")
    if not colon:
        raise UnknownRole(f"unknown role {role!r}: expected {', '.join(ROLES)} or package.module:factory")
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        extra = (
            "; install it with `pip install 'spade-actors[learner]'`"
            if error.name in ("torch", "safetensors", "numpy")
            else ""
        )
        raise UnknownRole(f"role {role}: there is no module {error.name}{extra}") from None
    except AttributeError:
        raise UnknownRole(f"role {role}: module {module} has no function {name}") from None
    if not callable(found):
        raise UnknownRole(f"role {role}: {target} is not callable")
    made: Callable[[Any], Any] = found
    return made
