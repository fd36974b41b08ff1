"""Sums with a hidden rule: two numbers are shown, the answer follows from them by a rule to be found."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

from spade_actors.micro.families.base import END, STEP, Family, Params, numbers, turns

RULES: dict[str, tuple[str, str]] = {
    "sum": ("sum([self.a, self.b])", "sum"),
    "max": ("max([self.a, self.b])", "larger"),
    "min": ("min([self.a, self.b])", "smaller"),
    "first": ("self.a", "first"),
    "second": ("self.b", "second"),
}

BODY = (
    """
    def reset(self, seed=None):
        self.${rng} = random.Random(seed)
        self.${turn} = 0
        self.${left} = ${need}
        return self.ask(), {}

    def ask(self):
        self.a = self.${rng}.randint(1, ${top})
        self.b = self.${rng}.randint(1, ${top})
        return f"take {self.a} and {self.b}"
"""
    + STEP
    + """\
        ${goal} = ${rule} + ${plus}
        if ${text} == str(${goal}):
            self.${left} -= 1
        if self.${left} == 0:
            return "yes", 1.0, True, False, {}
        return f"was {${goal}}, {self.ask()}", """
    + END
)


def draw(rng: Random, difficulty: str) -> dict[str, Any]:
    """A rule of two numbers plus a constant."""
    top = rng.choice({"easy": (4, 5, 6), "medium": (5, 6, 7), "hard": (6, 7, 8, 9)}[difficulty])
    need = rng.choice((2, 3))
    return {
        "rule": rng.choice(list(RULES)),
        "plus": rng.randint(1, 9),
        "top": top,
        "need": need,
        "turns": turns(rng, difficulty, need + 1),
    }


def value(rule: str, a: int, b: int) -> int:
    """The rule without its constant."""
    return {"sum": a + b, "max": max(a, b), "min": min(a, b), "first": a, "second": b}[rule]


def expert(p: Params, knows: bool, obs: Sequence[str], acts: Sequence[str], rng: Random) -> str:
    """Applies the rule; without it, any rule and constant that fit all answers seen."""
    rule, plus = p["rule"], p["plus"]
    if not knows:
        seen = [(*numbers(o)[-2:], numbers(after)[0]) for o, after in pairwise(obs)]
        fits = [(r, k) for r in RULES for k in range(1, 10) if all(value(r, a, b) + k == right for a, b, right in seen)]
        rule, plus = rng.choice(fits or [(rule, plus)])
    a, b = numbers(obs[-1])[-2:]
    return str(value(rule, a, b) + plus)


FAMILY = Family(
    name="sums",
    skill="pattern",
    classes=("Sums", "Rule", "Pair"),
    body=BODY,
    draw=draw,
    fill=lambda p: {"rule": RULES[p["rule"]][0], "plus": p["plus"], "top": p["top"], "need": p["need"]},
    core=lambda p: [p["rule"], p["plus"]],
    groups=(("rule",), ("plus",), ("top",), ("need", "turns")),
    hint=lambda p: f"{RULES[p['rule']][1]} plus {p['plus']}",
    expert=expert,
    guess=lambda p, obs, rng: str(rng.randint(2, 15)),
)
