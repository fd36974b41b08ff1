"""Tool workflow: ask the right tool for the code of a job, then send that code."""

from collections.abc import Sequence
from random import Random
from typing import Any

from spade_actors.micro.families.base import END, STEP, WORDS, Family, Params, numbers, turns

BODY = (
    """\
        self.tools = ${tools}

    def reset(self, seed=None):
        self.${rng} = random.Random(seed)
        self.${turn} = 0
        self.${left} = ${need}
        return self.job(), {}

    def job(self):
        self.item = self.${rng}.choice(list(self.tools))
        self.code = self.${rng}.randint(20, ${top})
        return "job " + self.item + ": " + " ".join(sorted(self.tools.values()))
"""
    + STEP
    + """\
        ${obs} = "empty"
        if ${text} == self.tools[self.item]:
            ${obs} = f"send {self.code}"
        if ${text} == f"send {self.code}":
            self.${left} -= 1
            ${obs} = self.job()
        if self.${left} == 0:
            return "done", 1.0, True, False, {}
        return ${obs}, """
    + END
)


def draw(rng: Random, difficulty: str) -> dict[str, Any]:
    """Two or three items, each with a tool of its own."""
    size = rng.choice({"easy": (2, 3), "medium": (3,), "hard": (3, 4)}[difficulty])
    words = rng.sample(WORDS, 2 * size)
    need = 1 if difficulty == "easy" else rng.choice((1, 2))
    spread = turns(rng, difficulty, 2 * need)
    return {
        "tools": dict(zip(words[:size], words[size:], strict=True)),
        "need": need,
        "top": rng.randint(40, 69),
        "turns": spread,
    }


def expert(p: Params, knows: bool, obs: Sequence[str], acts: Sequence[str], rng: Random) -> str:
    """Sends a code that is shown; else asks the item's tool, or without the rule one not yet found empty."""
    if obs[-1].startswith("send "):
        return f"send {numbers(obs[-1])[0]}"
    start = max(i for i, o in enumerate(obs) if o.startswith("job "))
    item, _, listed = obs[start].removeprefix("job ").partition(": ")
    if knows:
        return str(p["tools"][item])
    for i in range(start):
        if obs[i].startswith("job ") and obs[i].removeprefix("job ").startswith(item + ":"):
            found = [acts[j] for j in range(i, start) if obs[j + 1].startswith("send ")]
            if found:
                return found[0]
    empty = {acts[i] for i in range(start, len(acts)) if obs[i + 1] == "empty"}
    return rng.choice([w for w in listed.split() if w not in empty] or listed.split())


def guess(p: Params, obs: str, rng: Random) -> str:
    """Any tool, or a send of any code."""
    if rng.random() < 0.3:
        return f"send {numbers(obs)[0] if numbers(obs) else rng.randint(20, 60)}"
    return str(rng.choice(list(p["tools"].values())))


def fill(p: Params) -> dict[str, Any]:
    """Template fields."""
    return {"tools": str(dict(p["tools"])).replace("'", '"'), "need": p["need"], "top": p["top"]}


FAMILY = Family(
    name="tools",
    skill="workflow",
    classes=("Tools", "Desk", "Depot"),
    body=BODY,
    draw=draw,
    fill=fill,
    core=lambda p: list(p["tools"].items()),
    groups=(("tools",), ("top",), ("need", "turns"), ("turns",)),
    hint=lambda p: ", ".join(f"{item} {tool}" for item, tool in p["tools"].items()),
    expert=expert,
    guess=guess,
)
