"""Ordered lab: steps follow each other in a hidden circle; carry on from where the bench was left."""

from collections.abc import Sequence
from random import Random
from typing import Any

from spade_actors.micro.families.base import END, RESET, STEP, WORDS, Family, Params, turns

BODY = (
    """\
        self.order = ${order}
"""
    + RESET
    + """\
        self.${left} = ${need}
        self.${pos} = ${rng}.randrange(${size})
        return "did " + self.order[self.${pos}] + ": " + " ".join(sorted(self.order)), {}
"""
    + STEP
    + """\
        ${goal} = self.order[(self.${pos} + 1) % ${size}]
        ${obs} = "no"
        if ${text} == ${goal}:
            ${obs} = "did " + ${goal}
            self.${pos} += 1
            self.${left} -= 1
        if self.${left} == 0:
            return "done", 1.0, True, False, {}
        return ${obs}, """
    + END
)


def draw(rng: Random, difficulty: str) -> dict[str, Any]:
    """A circle of four or five words."""
    size = rng.choice({"easy": (3, 4), "medium": (4, 4, 5), "hard": (5,)}[difficulty])
    need = rng.choice((2, 3))
    return {"order": rng.sample(WORDS, size), "need": need, "turns": turns(rng, difficulty, need + 1)}


def expert(p: Params, knows: bool, obs: Sequence[str], acts: Sequence[str], rng: Random) -> str:
    """Follows the order; without it, the word not yet refused after the last done step, used ones last."""
    order = list(p["order"])
    last = next(o for o in reversed(obs) if o.startswith("did ")).removeprefix("did ").split(":")[0]
    if knows:
        return str(order[(order.index(last) + 1) % len(order)])
    done = [o.removeprefix("did ").split(":")[0] for o in obs if o.startswith("did ")]
    refused: set[str] = set()
    for act, after in zip(acts, obs[1:], strict=False):
        refused = refused | {act} if after == "no" else set()
    words = obs[0].partition(": ")[2].split()
    fresh = [w for w in words if w not in refused and w not in done]
    return rng.choice(fresh or [w for w in words if w not in refused and w != last] or words)


FAMILY = Family(
    name="lab",
    skill="workflow",
    classes=("Lab", "Bench", "Shop"),
    body=BODY,
    draw=draw,
    fill=lambda p: {"order": str(list(p["order"])).replace("'", '"'), "need": p["need"], "size": len(p["order"])},
    core=lambda p: p["order"],
    groups=(("order",), ("need", "turns"), ("turns",)),
    hint=lambda p: "order " + " ".join(p["order"]) + " " + p["order"][0],
    expert=expert,
    guess=lambda p, obs, rng: str(rng.choice(list(p["order"]))),
)
