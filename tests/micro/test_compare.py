"""Comparing a fresh micro model with the shipped one: each way of being worse is named, being better is not."""

import copy
import json
from typing import Any

import pytest

from spade_actors.micro.bootstrap import SHIPPED
from spade_actors.micro.compare import BOUNDS, Bound, complaints


@pytest.fixture
def shipped() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SHIPPED / "micro.json").read_text())
    return found


def test_the_shipped_model_is_as_good_as_itself(shipped: dict[str, Any]) -> None:
    assert complaints(shipped, copy.deepcopy(shipped)) == []


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda b: f"{b.part}-{b.figure}")
def test_a_worse_figure_is_named_and_a_better_one_is_not(shipped: dict[str, Any], bound: Bound) -> None:
    fresh = copy.deepcopy(shipped)
    fresh["quality"][bound.part][bound.figure] += 0.2
    assert complaints(shipped, fresh) == []
    fresh["quality"][bound.part][bound.figure] = shipped["quality"][bound.part][bound.figure] - bound.slack - 0.01
    (line,) = complaints(shipped, fresh)
    assert line.startswith(f"{bound.part} {bound.figure} is ")
    fresh["quality"][bound.part][bound.figure] = float("nan")
    assert len(complaints(shipped, fresh)) == 1


def test_another_recipe_or_lost_families_are_named(shipped: dict[str, Any]) -> None:
    fresh = copy.deepcopy(shipped)
    fresh["recipe"]["seed"] += 1
    families = fresh["quality"]["designs"]["families"]
    for name in list(families)[:2]:
        del families[name]
    assert [line.split(" ")[0] for line in complaints(shipped, fresh)] == ["recipe", "6"]
