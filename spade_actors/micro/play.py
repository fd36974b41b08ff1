"""Loads and plays environments of the families, in-process.

Only sources rendered by `spade_actors.micro.families` may come here: they are our own text. What a model wrote goes to
`check` (a limited process of its own) or to the sandbox, never to this module.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from spade_actors.micro.families.base import WORDS, Variant

Player = Callable[[list[str], list[str]], str]
"""(observations so far, actions so far) -> the next action."""


@dataclass(frozen=True, slots=True)
class Play:
    """One finished play: `len(observations) == len(actions)`; the last step's observation is in `ending`."""

    observations: list[str]
    actions: list[str]
    ending: str
    reward: float


def load(variant: Variant) -> Callable[[], Any]:
    """The class of a variant's source, ready to be called."""
    space: dict[str, Any] = {"__name__": "family"}
    exec(compile(variant.source, f"<{variant.family.name}>", "exec"), space)
    found: Callable[[], Any] = space[f"{variant.family.classes[variant.style]}Env"]
    return found


def play(make: Callable[[], Any], seed: int, player: Player) -> Play:
    """Plays one episode to its end."""
    env = make()
    observation, _ = env.reset(seed)
    observations: list[str] = [observation]
    actions: list[str] = []
    while True:
        actions.append(player(observations, actions))
        observation, reward, terminated, truncated, _ = env.step(actions[-1])
        if terminated or truncated:
            return Play(observations, actions, observation, reward)
        observations.append(observation)


def expert(variant: Variant, knows: bool, rng: Random) -> Player:
    """The family's expert, with or without its rule."""
    return lambda obs, acts: variant.family.expert(variant.params, knows, obs, acts, rng)


def mixed(variant: Variant, knows: bool, rng: Random, skill: float, noise: float = 0.0) -> Player:
    """Plays as the expert with probability `skill` per turn, else a random valid action; `noise`: any word instead."""

    def act(obs: list[str], acts: list[str]) -> str:
        if rng.random() < noise:
            return rng.choice((*WORDS, "a", "c", "7", "12", "31", "send", "up", ""))
        if rng.random() < skill:
            return variant.family.expert(variant.params, knows, obs, acts, rng)
        return variant.family.guess(variant.params, obs[-1], rng)

    return act
