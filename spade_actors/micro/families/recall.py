"""Recall (unseen): words are shown once and have to be said in a hidden order of places."""

from collections.abc import Sequence
from random import Random
from typing import Any

from spade_actors.micro.families.base import END, RESET, STEP, WORDS, Family, Params, turns

PLACES = ("first", "second", "third", "fourth")

BODY = (
    """\
        self.order = ${order}
"""
    + RESET
    + """\
        self.words = ${rng}.sample(${pool}, ${size})
        self.done = 0
        return "say " + " ".join(self.words), {}
"""
    + STEP
    + """\
        ${obs} = "no"
        if ${text} == self.words[self.order[self.done % ${size}]]:
            self.done += 1
            ${obs} = "yes"
        if self.done == ${size}:
            return "all", 1.0, True, False, {}
        return ${obs}, """
    + END
)


def draw(rng: Random, difficulty: str) -> dict[str, Any]:
    """Three or four words of six."""
    size = rng.choice({"easy": (3,), "medium": (3, 4), "hard": (4,)}[difficulty])
    return {
        "order": rng.sample(range(size), size),
        "pool": rng.sample(WORDS, 6),
        "turns": turns(rng, difficulty, size + 1),
    }


def expert(p: Params, knows: bool, obs: Sequence[str], acts: Sequence[str], rng: Random) -> str:
    """Says the place that is due; without the rule a word that is neither said nor refused."""
    words = obs[0].removeprefix("say ").split()
    said = [act for act, after in zip(acts, obs[1:], strict=False) if after == "yes"]
    if knows:
        return words[int(p["order"][len(said)])]
    refused: set[str] = set()
    for act, after in zip(acts, obs[1:], strict=False):
        refused = refused | {act} if after == "no" else set()
    return rng.choice([w for w in words if w not in said and w not in refused] or words)


FAMILY = Family(
    name="recall",
    skill="deduction",
    classes=("Recall", "Echo", "Recite"),
    body=BODY,
    draw=draw,
    fill=lambda p: {"order": p["order"], "pool": str(list(p["pool"])).replace("'", '"'), "size": len(p["order"])},
    core=lambda p: [p["order"], p["pool"]],
    groups=(("order", "turns"), ("pool",)),
    hint=lambda p: "say " + ", ".join(PLACES[place] for place in p["order"]),
    expert=expert,
    guess=lambda p, obs, rng: rng.choice(
        obs.removeprefix("say ").split() if obs.startswith("say ") else list(p["pool"])
    ),
)
