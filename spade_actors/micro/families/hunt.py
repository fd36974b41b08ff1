"""Number hunt: a hidden number in a range, two feedback words whose meaning differs from class to class."""

from collections.abc import Sequence
from random import Random
from typing import Any

from spade_actors.micro.families.base import END, RESET, STEP, WORDS, Family, Params, numbers, turns

BODY = (
    RESET
    + """\
        low = 10 * ${rng}.randint(2, 5)
        self.${goal} = low + ${rng}.randint(0, ${width})
        return f"from {low} to {low + ${width}}", {}
"""
    + STEP
    + """\
        if ${text} == str(self.${goal}):
            return "yes", 1.0, True, False, {}
        ${obs} = "number"
        if ${text}[:4].isdecimal():
            ${obs} = "${up}" if int(${text}[:4]) < self.${goal} else "${down}"
        return ${obs}, """
    + END
)


def draw(rng: Random, difficulty: str) -> dict[str, Any]:
    """Half of the classes say up and down; the others use any two words."""
    up, down = ("up", "down") if rng.random() < 0.5 else rng.sample(WORDS, 2)
    width = rng.choice(
        {"easy": (4, 5, 6, 7, 8), "medium": (6, 7, 8, 9, 10, 12), "hard": (9, 10, 12, 14, 16, 19)}[difficulty]
    )
    return {"width": width, "up": up, "down": down, "turns": turns(rng, difficulty, 4)}


def expert(p: Params, knows: bool, obs: Sequence[str], acts: Sequence[str], rng: Random) -> str:
    """Halves what is left; without the rule it keeps both readings of the words alive, and opens near the low end."""
    low, high = numbers(obs[0])[:2]
    said = list(zip(acts, obs[1:], strict=False))
    alive = {
        up_word: [n for n in range(low, high + 1) if all(_fits(n, a, o, up_word) for a, o in said)]
        for up_word in ([p["up"]] if knows or p["up"] == "up" else [p["up"], p["down"]])
    }
    best = max(alive.values(), key=len)
    if len(alive) > 1 and not said:
        return str(low + (high - low) // 4)
    left = best or list(range(low, high + 1))
    return str(left[len(left) // 2])


def _fits(n: int, act: str, obs: str, up_word: str) -> bool:
    if not act.isdecimal() or obs == "number":
        return True
    return n > int(act) if obs == up_word else n < int(act)


def guess(p: Params, obs: str, rng: Random) -> str:
    """A number in the range when it is shown, else any number of that size."""
    found = numbers(obs)
    return str(rng.randint(found[0], found[-1]) if len(found) > 1 else rng.randint(20, 69))


FAMILY = Family(
    name="hunt",
    skill="deduction",
    classes=("Hunt", "Seek", "Find"),
    body=BODY,
    draw=draw,
    fill=lambda p: {"width": p["width"], "up": p["up"], "down": p["down"]},
    core=lambda p: [p["width"], p["up"], p["down"]],
    groups=(("width",), ("up", "down"), ("turns",)),
    hint=lambda p: f"{p['up']} go higher, {p['down']} go lower",
    expert=expert,
    guess=guess,
)
