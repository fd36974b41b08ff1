"""Grid: walk home on a plane with commands whose directions have to be found out."""

from collections.abc import Sequence
from random import Random
from typing import Any

from spade_actors.micro.families.base import END, RESET, STEP, WORDS, Family, Params, numbers, turns

BODY = (
    """\
        self.moves = ${moves}
"""
    + RESET
    + """\
        self.x = ${rng}.choice(${spots})
        self.y = ${rng}.choice(${spots})
        return self.look() + ": " + " ".join(sorted(self.moves)), {}

    def look(self):
        return f"x {self.x} y {self.y}"
"""
    + STEP
    + """\
        if ${text} in self.moves:
            i = self.moves.index(${text})
            self.x += [1, -1, 0, 0][i]
            self.y += [0, 0, 1, -1][i]
        if self.x == 0 and self.y == 0:
            return "home", 1.0, True, False, {}
        return self.look(), """
    + END
)

NATURAL = ["right", "left", "up", "down"]
SPOTS = ([-1, 1], [-2, -1, 1], [-1, 1, 2], [-2, 2], [-2, -1, 1, 2])


def draw(rng: Random, difficulty: str) -> dict[str, Any]:
    """Four commands in the order x+1, x-1, y+1, y-1: natural words in any order, or any words."""
    names = NATURAL if rng.random() < 0.5 else rng.sample(WORDS, 4)
    moves = rng.sample(names, 4)
    if rng.random() < 0.2:
        moves = list(NATURAL)
    spots = rng.choice(SPOTS[:3] if difficulty == "easy" else SPOTS)
    return {"moves": moves, "spots": spots, "turns": turns(rng, difficulty, 5)}


def fill(p: Params) -> dict[str, Any]:
    """Template fields; lists are written with double quotes."""
    return {"moves": str(list(p["moves"])).replace("'", '"'), "spots": p["spots"]}


def expert(p: Params, knows: bool, obs: Sequence[str], acts: Sequence[str], rng: Random) -> str:
    """Uses commands of known effect towards home; else tries one of unknown effect, natural meanings first."""
    words = obs[0].partition(": ")[2].split()
    effect = dict(zip(p["moves"], ((1, 0), (-1, 0), (0, 1), (0, -1)), strict=True)) if knows else _seen(obs, acts)
    x, y = numbers(obs[-1])[:2]
    for word, (dx, dy) in effect.items():
        if abs(x + dx) + abs(y + dy) < abs(x) + abs(y):
            return word
    unknown = [word for word in words if word not in effect] or words
    if not effect and "up" in words:
        return ("left" if x > 0 else "right") if x else ("down" if y > 0 else "up")
    return rng.choice(unknown)


def _seen(obs: Sequence[str], acts: Sequence[str]) -> dict[str, tuple[int, int]]:
    at = [numbers(o)[:2] for o in obs]
    moved = {a: (at[i + 1][0] - at[i][0], at[i + 1][1] - at[i][1]) for i, a in enumerate(acts)}
    return {word: step for word, step in moved.items() if step != (0, 0)}


def guess(p: Params, obs: str, rng: Random) -> str:
    """Any command."""
    return str(rng.choice(list(p["moves"])))


def hint(p: Params) -> str:
    """What each command does."""
    right, left, up, down = p["moves"]
    return f"x + {right}, x - {left}, y + {up}, y - {down}"


FAMILY = Family(
    name="grid",
    skill="planning",
    classes=("Grid", "Plane", "Field"),
    body=BODY,
    draw=draw,
    fill=fill,
    core=lambda p: p["moves"],
    groups=(("moves",), ("spots",), ("turns",)),
    hint=hint,
    expert=expert,
    guess=guess,
)
