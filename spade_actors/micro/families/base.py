"""What a family is: a parametrised environment source, its hint, and players for traces.

What always holds: everything is a pure function of its arguments (randomness comes in as a `Random`); a hint states a
rule that is true for every seed of the source and names no instance; players see only what an agent sees.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from string import Template
from typing import Any

Params = Mapping[str, Any]
"""A variant's numbers and words: JSON values by name; `turns` is always among them."""

HELD_OUT_SHARE = 5
"""One rule in this many is held out."""

WORDS = (
    "red",
    "blue",
    "tan",
    "gray",
    "gold",
    "pink",
    "oak",
    "elm",
    "ash",
    "fig",
    "heat",
    "mix",
    "cool",
    "pour",
    "salt",
    "milk",
    "rope",
    "coin",
    "log",
    "map",
    "box",
    "key",
)
"""The words that every family draws its names from; few and shared, so that a small model can learn to copy each."""

STYLES: tuple[dict[str, str], ...] = (
    {"rng": "rng", "turn": "turn", "goal": "goal", "text": "text", "pos": "pos", "obs": "obs", "left": "left"},
    {"rng": "gen", "turn": "count", "goal": "aim", "text": "act", "pos": "cur", "obs": "out", "left": "todo"},
    {"rng": "r", "turn": "t", "goal": "end", "text": "word", "pos": "at", "obs": "say", "left": "rest"},
)
"""Variable names, tied: a source uses one style throughout, since independently varied names confuse a small model."""

HEAD = '''\
import random


class ${cls}Env:
    """${title}"""

    def __init__(self):
        self.max_turns = ${turns}
'''

RESET = """
    def reset(self, seed=None):
        ${rng} = random.Random(seed)
        self.${turn} = 0
"""

STEP = """
    def step(self, action):
        self.${turn} += 1
        ${text} = action.strip()
"""

END = "0.0, False, self.${turn} >= self.max_turns, {}\n"


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of environment.

    classes: three class names, one per style.
    body: template of the source, with the style's names and `fill(params)` as fields.
    draw: (rng, difficulty) -> params. Difficulty moves ranges and turns, never the mechanics.
    core: the part of the params that is the rule; held-out rules are chosen by it.
    groups: keys that may be redrawn together without breaking their constraints; the steps of a mutation.
    hint: the rule in words, shorter than 16 words.
    expert: (params, knows the rule, observations so far, actions so far, rng) -> action.
    guess: (params, last observation, rng) -> a well-formed but random action.
    """

    name: str
    skill: str
    classes: tuple[str, str, str]
    body: str
    draw: Callable[[Random, str], dict[str, Any]]
    fill: Callable[[Params], dict[str, Any]]
    core: Callable[[Params], Any]
    groups: tuple[tuple[str, ...], ...]
    hint: Callable[[Params], str]
    expert: Callable[[Params, bool, Sequence[str], Sequence[str], Random], str]
    guess: Callable[[Params, str, Random], str]

    def source(self, params: Params, style: int, title: str) -> str:
        """The environment's source, 20 to 40 lines, ending in a newline."""
        names = STYLES[style] | {"cls": self.classes[style], "title": title, "turns": params["turns"]}
        return Template(HEAD + self.body).substitute(names | self.fill(params))

    def sample(self, rng: Random, difficulty: str, held_out: bool) -> dict[str, Any]:
        """Params from one side of the split."""
        while True:
            params = self.draw(rng, difficulty)
            if is_held_out(self, params) == held_out:
                return params

    def mutate(self, params: Params, rng: Random, difficulty: str) -> dict[str, Any]:
        """Params of the warm-up side that differ from `params` in one group of keys, rarely in two."""
        while True:
            fresh, child = self.draw(rng, difficulty), dict(params)
            for group in rng.sample(self.groups, 2 if rng.random() < 0.15 and len(self.groups) > 1 else 1):
                child |= {key: fresh[key] for key in group}
            if child != dict(params) and not is_held_out(self, child):
                return child


@dataclass(frozen=True, slots=True)
class Variant:
    """One concrete environment of a family."""

    family: Family
    params: Params
    style: int
    title: str

    @property
    def source(self) -> str:
        """Source text."""
        return self.family.source(self.params, self.style, self.title)

    @property
    def hint(self) -> str:
        """The rule in words."""
        return self.family.hint(self.params)


def is_held_out(family: Family, params: Params) -> bool:
    """Whether these params' rule belongs to the held-out fifth."""
    text = json.dumps([family.name, family.core(params)])
    return zlib.crc32(text.encode()) % HELD_OUT_SHARE == 0


def turns(rng: Random, difficulty: str, low: int, spread: int = 2) -> int:
    """Turn budget: `low` (hard) up to `low + 2 * spread` (easy)."""
    base = low + {"easy": spread, "medium": spread // 2, "hard": 0}[difficulty]
    return base + rng.randint(0, spread)


def numbers(text: str) -> list[int]:
    """All whole numbers in an observation, in order."""
    out = []
    for word in text.replace(",", " ").replace(":", " ").split():
        if word.lstrip("-").isdecimal():
            out.append(int(word))
    return out
