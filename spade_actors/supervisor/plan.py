"""Configuration -> the processes of this node, hub first. Pure; the one place that knows which tables a role reads."""

from typing import NamedTuple

from spade_actors.config.schema import Config


class Planned(NamedTuple):
    """One process to be."""

    name: str
    """unique in the run: the role, or `role-N` for roles that can be many"""
    role: str
    tables: tuple[str, ...]
    """configuration tables the role reads"""


TABLES: dict[str, tuple[str, ...]] = {
    "hub": ("hub",),
    "memory": ("run", "memory"),
    "judge": ("run", "judge", "agent", "learner"),
    "generator": ("run", "generator"),
    "learner": ("run", "learner", "judge"),
    "sandbox": ("sandbox",),
    "agent": ("agent", "sandbox"),
    "designer": ("run", "designer", "agent"),
}


def plan(config: Config) -> list[Planned]:
    """Every process `up` starts, in starting order; a count of 0 leaves a role to other nodes or to hand-started processes."""
    counts = {
        "generator": config.generator.count,
        "sandbox": config.sandbox.count,
        "agent": config.agent.count,
        "designer": config.designer.count,
    }
    processes: list[Planned] = []
    for role, tables in TABLES.items():
        if role in counts:
            processes += [Planned(f"{role}-{number}", role, tables) for number in range(1, counts[role] + 1)]
        else:
            processes.append(Planned(role, role, tables))
    return processes
