"""Graph walk: rooms on a hidden ring, three exits of which one, taken again and again, leads to the goal."""

from collections.abc import Sequence
from random import Random
from typing import Any

from spade_actors.micro.families.base import END, RESET, STEP, Family, Params, turns

ROOMS = "abcdefghijkmnpqrs"
PLACES = ("first", "second", "third")

BODY = (
    """\
        self.rooms = "${rooms}"
        self.moves = ${moves}
"""
    + RESET
    + """\
        self.${pos} = ${rng}.randrange(${n})
        self.${goal} = (self.${pos} + ${good} * ${rng}.randint(2, ${far})) % ${n}
        return self.look(), {}

    def look(self):
        exits = [self.rooms[(self.${pos} + m) % ${n}] for m in self.moves]
        return "to " + self.rooms[self.${goal}] + ": " + " ".join(exits)
"""
    + STEP
    + """\
        if ${text} in self.look().split()[2:]:
            self.${pos} = self.rooms.index(${text})
        if self.${pos} == self.${goal}:
            return "out", 1.0, True, False, {}
        return self.look(), """
    + END
)


def draw(rng: Random, difficulty: str) -> dict[str, Any]:
    """A prime ring, so that no number of good moves below its size comes back to the start."""
    n = rng.choice((11, 13, 17))
    far = rng.choice((2, 3, 3, 4))
    moves = rng.sample(range(1, n), 3)
    return {"n": n, "moves": moves, "best": rng.randrange(3), "far": far, "turns": turns(rng, difficulty, max(3, far))}


def fill(p: Params) -> dict[str, Any]:
    """Template fields."""
    return {"rooms": ROOMS[: p["n"]], "moves": p["moves"], "n": p["n"], "good": p["moves"][p["best"]], "far": p["far"]}


def expert(p: Params, knows: bool, obs: Sequence[str], acts: Sequence[str], rng: Random) -> str:
    """Takes the goal when it is an exit; else the good exit, or without the rule one exit three times, then another."""
    goal, exits = _read(obs[-1])
    if goal in exits:
        return goal
    if knows:
        return exits[p["best"]]
    if not acts:
        return rng.choice(exits)
    taken = [_read(o)[1].index(a) if a in _read(o)[1] else 0 for o, a in zip(obs, acts, strict=False)]
    same = len(taken) - next((i for i, t in enumerate(reversed(taken)) if t != taken[-1]), len(taken))
    return exits[taken[-1]] if len(taken) - same < 3 else exits[(taken[-1] + 1) % 3]


def guess(p: Params, obs: str, rng: Random) -> str:
    """Any exit."""
    return rng.choice(_read(obs)[1])


def _read(obs: str) -> tuple[str, list[str]]:
    goal, _, exits = obs.removeprefix("to ").partition(": ")
    return goal, exits.split() or ["a"]


FAMILY = Family(
    name="walk",
    skill="planning",
    classes=("Walk", "Path", "Maze"),
    body=BODY,
    draw=draw,
    fill=fill,
    core=lambda p: [p["n"], p["moves"], p["best"]],
    groups=(("n", "moves"), ("best",), ("far", "turns"), ("turns",)),
    hint=lambda p: f"keep to the {PLACES[p['best']]} exit",
    expert=expert,
    guess=guess,
)
