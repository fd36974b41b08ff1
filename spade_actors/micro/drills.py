"""Drills: chats that can only be answered by looking back, which is what hints, titles and exemplars ask for.

A model this small learns to copy late, or never, from plays alone; a share of drills in the corpus brings it early.
Four kinds over the words, letters and numbers that the families use: repeat a list, say what comes after an item, give
the partner of an item, and pick by place.
"""

from random import Random

from spade_actors.micro.documents import Document
from spade_actors.micro.families.base import WORDS
from spade_actors.prompts.topics import TOPICS

ITEMS = (*WORDS, "up", "down", "left", "right", *"abcdefghijkmnpqrstuvwxyz", *map(str, range(70)))
PLACES = ("first", "second", "third", "fourth")
QUESTIONS = 8


def draw_drill(rng: Random) -> Document:
    """One drill of any kind."""
    kind = rng.random()
    if kind < 0.35:
        return _repeat(rng)
    if kind < 0.6:
        return _after(rng)
    return _partner(rng) if kind < 0.8 else _place(rng)


def _repeat(rng: Random) -> Document:
    pool = TOPICS if rng.random() < 0.3 else ITEMS
    text = " ".join(rng.choice(pool) for _ in range(rng.randint(4, 20)))
    return Document((f"repeat {text}",), (f" {text}",))


def _after(rng: Random) -> Document:
    items = rng.sample(ITEMS, rng.randint(3, 10))
    asked = [rng.randrange(len(items) - 1) for _ in range(QUESTIONS)]
    users = [f"did {items[i]}" for i in asked]
    users[0] += "\n\nHINT: order " + " ".join(items)
    return Document(tuple(users), tuple(f" {items[i + 1]}" for i in asked))


def _partner(rng: Random) -> Document:
    size = rng.randint(2, 7)
    items = rng.sample(ITEMS, 2 * size)
    asked = [rng.randrange(size) for _ in range(QUESTIONS)]
    users = [f"job {items[i]}" for i in asked]
    users[0] += "\n\nHINT: " + ", ".join(f"{items[i]} {items[size + i]}" for i in range(size))
    return Document(tuple(users), tuple(f" {items[size + i]}" for i in asked))


def _place(rng: Random) -> Document:
    size = rng.choice((3, 3, 4))
    place = rng.randrange(size)
    rows = [rng.sample(ITEMS, size) for _ in range(QUESTIONS)]
    users = ["at " + " ".join(row) for row in rows]
    users[0] += f"\n\nHINT: keep to the {PLACES[place]}"
    return Document(tuple(users), tuple(f" {row[place]}" for row in rows))
