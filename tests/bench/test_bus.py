import json

from spade_bench.bus import run
from spade_bench.rows import report, row


def test_targets_are_checked_in_their_direction() -> None:
    assert row("a", 2.0, "x", at_most=3).met is True
    assert row("a", 4.0, "x", at_most=3).met is False
    assert row("a", 4.0, "x", at_least=3).met is True
    assert (row("a", 1.23456, "s").value, row("a", 1.0, "s").met) == (1.235, None)


def test_every_figure_is_measured_beside_its_bare_library() -> None:
    rows = {one.name: one for one in run(0.3)}
    assert all(one.value >= 0 for one in rows.values())
    assert {"bare pyzmq echo, round trip", "typed call, round trip", "typed call / bare echo"} <= rows.keys()
    assert rows["typed calls, 256 in flight"].target == ">= 25000"
    assert rows["items put, leased and completed, 64 workers"].value > 1
    shown = json.loads(json.dumps(report(list(rows.values()))))
    assert shown["machine"]["cores"] >= 1
    assert set(shown["rows"][0]) == {"name", "value", "unit", "target", "met"}
