"""Heap (unseen): two players take from a heap in turn; whoever takes the last one wins; the other never changes."""

from collections.abc import Sequence
from random import Random
from typing import Any

from spade_actors.micro.families.base import END, RESET, STEP, Family, Params, numbers, turns

BODY = (
    RESET
    + """\
        self.heap = ${rng}.randint(${low}, ${high})
        return self.look(), {}

    def look(self):
        return f"heap {self.heap} take 1 to ${most}"
"""
    + STEP
    + """\
        if ${text} in ${takes}:
            self.heap = max(0, self.heap - int(${text}))
            if self.heap == 0:
                return "won", 1.0, True, False, {}
            self.heap = max(0, self.heap - ${reply})
            if self.heap == 0:
                return "lost", 0.0, True, False, {}
        return self.look(), """
    + END
)


def draw(rng: Random, difficulty: str) -> dict[str, Any]:
    """The other player always takes the same number."""
    most = rng.choice((2, 3))
    low = rng.randint(7, 9)
    reply = rng.randint(1, 3)
    longest = (low + 4) // (1 + reply) + 1
    return {"most": most, "reply": reply, "low": low, "turns": turns(rng, difficulty, max(4, longest - 1), 1)}


def expert(p: Params, knows: bool, obs: Sequence[str], acts: Sequence[str], rng: Random) -> str:
    """Looks ahead against a fixed reply; without the rule it assumes the reply it saw last, at first 2."""
    heaps = [numbers(o)[0] for o in obs]
    reply = p["reply"]
    if not knows:
        taken = [a for a in acts if a.isdecimal()]
        reply = max(1, heaps[-2] - int(taken[-1]) - heaps[-1]) if taken and len(heaps) > 1 else 2

    def wins(heap: int) -> int:
        for take in range(p["most"], 0, -1):
            after = heap - take
            if after <= 0 or (after - reply > 0 and wins(after - reply)):
                return take
        return 0

    return str(wins(heaps[-1]) or rng.randint(1, p["most"]))


FAMILY = Family(
    name="heap",
    skill="planning",
    classes=("Heap", "Pile", "Stack"),
    body=BODY,
    draw=draw,
    fill=lambda p: {
        "low": p["low"],
        "high": p["low"] + 4,
        "most": p["most"],
        "reply": p["reply"],
        "takes": str([str(i + 1) for i in range(p["most"])]).replace("'", '"'),
    },
    core=lambda p: [p["most"], p["reply"], p["low"]],
    groups=(("low", "most", "reply", "turns"),),
    hint=lambda p: f"the other always takes {p['reply']}",
    expert=expert,
    guess=lambda p, obs, rng: str(rng.randint(1, p["most"])),
)
