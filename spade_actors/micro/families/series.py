"""Series: a number on a ring of known size moves by one or two hidden steps; foretell it a few times."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

from spade_actors.micro.families.base import END, RESET, Family, Params, numbers, turns

BODY = (
    """\
        self.adds = ${adds}
"""
    + RESET
    + """\
        self.${left} = ${need}
        self.${pos} = ${rng}.randrange(${mod})
        return f"now {self.${pos}}", {}

    def step(self, action):
        self.${pos} = (self.${pos} + self.adds[self.${turn} % ${size}]) % ${mod}
        self.${turn} += 1
        if action.strip() == str(self.${pos}):
            self.${left} -= 1
        if self.${left} == 0:
            return "yes", 1.0, True, False, {}
        return f"now {self.${pos}}", """
    + END
)


def draw(rng: Random, difficulty: str) -> dict[str, Any]:
    """Steps of 1 to 9 on a ring of 10 (the last digit), sometimes of 12."""
    mod = rng.choice((10, 10, 10, 12))
    size = 1 if rng.random() < {"easy": 0.9, "medium": 0.7, "hard": 0.4}[difficulty] else 2
    adds = [rng.randint(1, 9) for _ in range(size)]
    need = rng.choice((2, 3)) if difficulty != "hard" else 3
    return {"mod": mod, "adds": adds, "need": need, "turns": turns(rng, difficulty, need + size)}


def expert(p: Params, knows: bool, obs: Sequence[str], acts: Sequence[str], rng: Random) -> str:
    """Adds the step; without the rule the one seen two turns ago, or the last one."""
    seen = [numbers(o)[0] for o in obs]
    steps = [(b - a) % p["mod"] for a, b in pairwise(seen)]
    if knows:
        step = p["adds"][len(acts) % len(p["adds"])]
    elif not steps:
        step = rng.randint(1, 9)
    else:
        step = steps[-2] if len(steps) > 1 else steps[-1]
    return str((seen[-1] + step) % p["mod"])


FAMILY = Family(
    name="series",
    skill="pattern",
    classes=("Series", "Ring", "Clock"),
    body=BODY,
    draw=draw,
    fill=lambda p: {"adds": p["adds"], "need": p["need"], "mod": p["mod"], "size": len(p["adds"])},
    core=lambda p: [p["mod"], p["adds"]],
    groups=(("adds",), ("mod",), ("need", "turns"), ("turns",)),
    hint=lambda p: " then ".join(f"add {add}" for add in p["adds"]),
    expert=expert,
    guess=lambda p, obs, rng: str(rng.randrange(p["mod"])),
)
