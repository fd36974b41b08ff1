"""`bench sandbox`: jails, sessions, steps, episodes and gate, beside bare nsjail and raw pipes, as the sandbox measures itself."""

from functools import partial

import trio

from spade_bench.rows import Row
from spade_sandbox.measure import measure

QUICK_S = 2.0


def run(seconds: float = 3.0) -> list[Row]:
    """All rows; with less than `QUICK_S` seconds for each figure the short measurement."""
    return [Row(*row) for row in trio.run(partial(measure, quick=seconds < QUICK_S))]
