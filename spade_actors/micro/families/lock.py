"""Sign lock: a code of letters, right letters stay visible, and one wheel is the same in every instance."""

from collections.abc import Sequence
from random import Random
from typing import Any

from spade_actors.micro.families.base import END, RESET, Family, Params, turns

SIGNS = ("abcd", "efgh", "kmnp", "rstu", "wxyz", "abcde", "kmnpq", "rstuv")
PLACES = ("first", "second", "third", "fourth")

BODY = (
    """\
        self.signs = "${signs}"
"""
    + RESET
    + """\
        self.code = [${rng}.choice(self.signs) for _ in range(${size})]
        self.code[${wheel}] = "${letter}"
        return "use " + " ".join(self.signs) + ":${dots} " + self.code[-1], {}

    def step(self, action):
        self.${turn} += 1
        ${text} = action.split()
        if ${text} == self.code:
            return "open", 1.0, True, False, {}
        marks = [a if a == b else "." for a, b in zip(self.code, ${text})]
        return "no " + " ".join(marks), """
    + END
)


def draw(rng: Random, difficulty: str) -> dict[str, Any]:
    """The last wheel is shown at the start; the fixed one is among the others."""
    signs = rng.choice(SIGNS)
    size = rng.choice({"easy": (3,), "medium": (3, 3, 4), "hard": (3, 4)}[difficulty])
    wheel = rng.randrange(size - 1)
    return {
        "signs": signs,
        "size": size,
        "wheel": wheel,
        "letter": rng.choice(signs),
        "turns": turns(rng, difficulty, 3 if size == 3 else 4),
    }


def fill(p: Params) -> dict[str, Any]:
    """Template fields."""
    return {key: p[key] for key in ("signs", "size", "wheel", "letter")} | {"dots": " ." * (p["size"] - 1)}


def expert(p: Params, knows: bool, obs: Sequence[str], acts: Sequence[str], rng: Random) -> str:
    """Keeps what is known, and tries on every other wheel a letter not tried there yet."""
    signs, shown = obs[0].removeprefix("use ").split(":")
    letters, size = signs.split(), len(shown.split())
    known: dict[int, str] = {size - 1: shown.split()[-1]}
    if knows:
        known[p["wheel"]] = p["letter"]
    tried: list[set[str]] = [set() for _ in range(size)]
    for act, after in zip(acts, obs[1:], strict=False):
        for i, (a, mark) in enumerate(zip(act.split(), after.split()[1:], strict=False)):
            tried[i].add(a)
            if mark != ".":
                known[i] = mark
    parts = [known.get(i) or rng.choice([c for c in letters if c not in tried[i]] or letters) for i in range(size)]
    return " ".join(parts)


def guess(p: Params, obs: str, rng: Random) -> str:
    """Any code of the right size."""
    return " ".join(rng.choice(p["signs"]) for _ in range(p["size"]))


FAMILY = Family(
    name="lock",
    skill="deduction",
    classes=("Lock", "Safe", "Code"),
    body=BODY,
    draw=draw,
    fill=fill,
    core=lambda p: [p["signs"], p["size"], p["wheel"], p["letter"]],
    groups=(("signs", "size", "wheel", "letter"), ("turns",)),
    hint=lambda p: f"the {PLACES[p['wheel']]} is {p['letter']}",
    expert=expert,
    guess=guess,
)
