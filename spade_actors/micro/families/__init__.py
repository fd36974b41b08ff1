"""Environment families of the micro profile: what the shipped designer was warmed up on, and what evaluates it.

What always holds: eight families (two per skill) make up the warm-up; three more (`UNSEEN`) appear only in evaluation.
Of every family a fixed fifth of the rule space (`is_held_out`) never enters the warm-up.

To add a family: write one module here that ends in `FAMILY = Family(...)` (base.py explains each field; copy the shape
of series.py, the shortest), and name it in `WARM` or `UNSEEN` below. Then run the tests of tests/micro, which play it
through its contract, and rebuild the model and the assets with `python -m spade_actors.micro.bootstrap`.
"""

from spade_actors.micro.families import grid, heap, hunt, lab, lamps, lock, recall, series, sums, tools, walk
from spade_actors.micro.families.base import Family, Params, Variant, is_held_out

WARM: tuple[Family, ...] = (
    walk.FAMILY,
    grid.FAMILY,
    hunt.FAMILY,
    lock.FAMILY,
    series.FAMILY,
    sums.FAMILY,
    lab.FAMILY,
    tools.FAMILY,
)
UNSEEN: tuple[Family, ...] = (heap.FAMILY, recall.FAMILY, lamps.FAMILY)
ALL: dict[str, Family] = {family.name: family for family in WARM + UNSEEN}
SKILLS: tuple[str, ...] = tuple(dict.fromkeys(family.skill for family in WARM))
DIFFICULTIES: tuple[str, ...] = ("easy", "medium", "hard")

__all__ = ["ALL", "DIFFICULTIES", "SKILLS", "UNSEEN", "WARM", "Family", "Params", "Variant", "is_held_out"]
