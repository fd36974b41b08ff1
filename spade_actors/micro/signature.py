"""Recognises the family of a source by its shape: what counts as "alive" in self-play.

What always holds: variable names, class names, strings and numbers play no part, so a variation of a family stays in
it; a source that is not close to any family, or does not parse, belongs to none. The profiles are computed from the
families themselves, so they cannot drift from the warm-up corpus.
"""

import ast
import math
from collections import Counter
from functools import cache
from random import Random

from spade_actors.micro.families import ALL, DIFFICULTIES, Variant

CLOSE = 0.85
"""Least similarity to a family's nearest profile; between profiles of different families it is at most about .6."""

MOST_CHARS = 20_000

Profile = dict[str, float]


def shape_of(source: str) -> Profile:
    """Counts of syntax pairs (node inside node) and of called builtin or library names.

    Raises SyntaxError or ValueError when the source does not parse.
    """
    counts: Counter[str] = Counter()
    for node in ast.walk(ast.parse(source[:MOST_CHARS])):
        kind = type(node).__name__
        for child in ast.iter_child_nodes(node):
            counts[f"{kind}>{type(child).__name__}"] += 1
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            counts[f"call {name}"] += 2
    return dict(counts)


class Recogniser:
    """Profiles of every shape that occurs among 24 variants of each family.

    Profiles are taken relative to the mean over families, since what all of them share tells nothing.
    """

    def __init__(self) -> None:
        found: dict[tuple[str, str], Profile] = {}
        for name, family in ALL.items():
            rng = Random(name)
            for i in range(24):
                params = family.draw(rng, DIFFICULTIES[i % 3])
                shape = shape_of(Variant(family, params, i % 3, "title").source)
                found[name, str(sorted(shape.items()))] = shape
        per_family = Counter(name for name, _ in found)
        self.mean: Counter[str] = Counter()
        for (name, _), shape in found.items():
            for key, n in shape.items():
                self.mean[key] += n / per_family[name] / len(per_family)  # type: ignore[assignment]
        self.known = [(name, self._centred(shape)) for (name, _), shape in found.items()]

    def _centred(self, shape: Profile) -> Profile:
        """Difference to the mean, of length 1."""
        moved = {key: shape.get(key, 0.0) - self.mean[key] for key in shape.keys() | self.mean.keys()}
        size = math.sqrt(sum(n * n for n in moved.values())) or 1.0
        return {key: n / size for key, n in moved.items()}

    def nearest(self, source: str) -> tuple[str, float]:
        """The most similar family and its similarity in [-1, 1]; ("", 0.0) when the source does not parse."""
        try:
            shape = self._centred(shape_of(source))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return "", 0.0
        score, name = max(
            (sum(n * known.get(key, 0.0) for key, n in shape.items()), name) for name, known in self.known
        )
        return name, score


@cache
def recogniser() -> Recogniser:
    """The one recogniser of this process, built at first use (about 0.1 s)."""
    return Recogniser()


def signature(source: str) -> str | None:
    """The family a source belongs to, or None."""
    name, score = recogniser().nearest(source)
    return name if score >= CLOSE else None
