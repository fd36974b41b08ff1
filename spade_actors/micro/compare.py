"""Whether a freshly built micro model is as good as the shipped one, by their `micro.json`.

The bounds are three standard errors of the difference of two measurements of the same model (192 designs, 768 plays):
what sampling alone explains, and no more.
"""

from typing import Any, NamedTuple


class Bound(NamedTuple):
    """How far a figure may lie below the shipped one."""

    part: str
    figure: str
    slack: float


BOUNDS = (
    Bound("designs", "valid", 0.09),
    Bound("designs_with_exemplar", "valid", 0.09),
    Bound("heldout_plain", "win_rate", 0.065),
    Bound("heldout_hinted", "win_rate", 0.065),
)
LOST_FAMILIES = 1
"""Families that a sample of 192 designs may miss."""


def complaints(shipped: dict[str, Any], fresh: dict[str, Any]) -> list[str]:
    """One line for each way in which `fresh` is another model, or a worse one; empty when it is as good."""
    found = [
        f"{key} is {fresh[key]}, shipped {shipped[key]}"
        for key in ("recipe", "parameters")
        if fresh[key] != shipped[key]
    ]
    for part, figure, slack in BOUNDS:
        ours, theirs = float(fresh["quality"][part][figure]), float(shipped["quality"][part][figure])
        if not ours >= theirs - slack:
            found.append(f"{part} {figure} is {ours:.3f}, shipped {theirs:.3f}, at least {theirs - slack:.3f} expected")
    ours, theirs = (len(_families(one)) for one in (fresh, shipped))
    if ours < theirs - LOST_FAMILIES:
        found.append(f"{ours} families are designed, shipped {theirs}")
    return found


def _families(found: dict[str, Any]) -> set[str]:
    return set(found["quality"]["designs"]["families"]) - {"None"}
