"""Lamps (unseen): pressing a lamp also flips another one at a hidden distance; light them all."""

from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any

from spade_actors.micro.families.base import END, RESET, STEP, Family, Params, turns

BODY = (
    RESET
    + """\
        self.lit = [True] * ${n}
        for i in ${rng}.sample(range(${n}), ${start}):
            self.flip(i)
        return self.look(), {}

    def flip(self, i):
        for j in [i, (i + ${reach}) % ${n}]:
            self.lit[j] = not self.lit[j]

    def look(self):
        return "press 1 to ${n}: " + " ".join("on" if i else "off" for i in self.lit)
"""
    + STEP
    + """\
        if ${text} in ${keys}:
            self.flip(int(${text}) - 1)
        if all(self.lit):
            return "bright", 1.0, True, False, {}
        return self.look(), """
    + END
)


def draw(rng: Random, difficulty: str) -> dict[str, Any]:
    """Three to five lamps; the start needs one or two presses, never as many as come back to all lit."""
    n = rng.choice((4, 5))
    return {
        "n": n,
        "reach": rng.choice([1, n - 1] if n == 4 else [1, 2, 3, 4]),
        "start": 1 if difficulty == "easy" else rng.choice((1, 2)),
        "turns": turns(rng, difficulty, 3, 1),
    }


def expert(p: Params, knows: bool, obs: Sequence[str], acts: Sequence[str], rng: Random) -> str:
    """Solves by search with the reach it knows or saw; a first press shows it."""
    lit = [word == "on" for word in obs[-1].partition(": ")[2].split()]
    n, reach = len(lit), p["reach"]
    if not knows:
        if len(obs) < 2:
            return str(lit.index(False) + 1)
        before = [word == "on" for word in obs[-2].partition(": ")[2].split()]
        pressed = int(acts[-1]) - 1 if acts[-1].isdecimal() and 0 < int(acts[-1]) <= n else 0
        changed = [i for i in range(n) if before[i] != lit[i] and i != pressed]
        reach = (changed[0] - pressed) % n if changed else 1
    for presses in sorted(product((0, 1), repeat=n), key=sum):
        after = list(lit)
        for i in (i for i in range(n) if presses[i]):
            after[i], after[(i + reach) % n] = not after[i], not after[(i + reach) % n]
        if all(after) and any(presses):
            return str(presses.index(1) + 1)
    return str(rng.randint(1, n))


FAMILY = Family(
    name="lamps",
    skill="planning",
    classes=("Lamps", "Lights", "Glow"),
    body=BODY,
    draw=draw,
    fill=lambda p: {
        "n": p["n"],
        "start": p["start"],
        "reach": p["reach"],
        "keys": str([str(i + 1) for i in range(p["n"])]).replace("'", '"'),
    },
    core=lambda p: [p["n"], p["reach"], p["start"], p["turns"]],
    groups=(("n", "reach", "start"), ("turns",)),
    hint=lambda p: f"a press also flips the lamp {p['reach']} further",
    expert=expert,
    guess=lambda p, obs, rng: str(rng.randint(1, p["n"])),
)
