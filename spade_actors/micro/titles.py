"""Titles for warm-up designs: two or three topic words, so that the designer learns to carry any title over."""

from random import Random

from spade_actors.prompts.topics import TOPICS


def draw_title(rng: Random) -> str:
    """One to three words, mostly two."""
    return " ".join(rng.sample(TOPICS, rng.choice((1, 2, 2, 3))))
