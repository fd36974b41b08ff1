"""From a gate's report to the result that travels with the proposal's one completion. Pure.

Always holds: the packed result fits a queue item (8 KiB), with evidence, then reasons, shortened to make room; the
decision itself is never cut.
"""

from __future__ import annotations

from typing import Any

import msgspec

from spade_protocols.design import Admission, Verdict
from spade_protocols.queues import MAX_ITEM_BYTES
from spade_sandbox.gate import GateReport

_ROOM = MAX_ITEM_BYTES - 512
_SEEDS = (11, 23, 37, 41, 59, 71, 83, 97)


def gate_seeds(count: int) -> tuple[int, ...]:
    """The instances the gate looks at: the same ones for every proposal."""
    return tuple(_SEEDS[i] if i < len(_SEEDS) else 101 + 12 * i for i in range(count))


def admission(report: GateReport, environment: str) -> dict[str, Any]:
    """The body of an `Admission` for the environment with this content hash."""
    for evidence, reason in ((600, 400), (200, 400), (0, 400), (0, 120), (0, 40)):
        verdicts = [
            Verdict(
                name=v.check.value,
                verdict=v.verdict,
                reason=v.reason[:reason],
                evidence=v.evidence[:evidence],
                ms=round(v.ms, 3),
            )
            for v in report.verdicts
        ]
        result = Admission(
            admitted=report.admitted,
            environment=environment,
            failed=report.failed[0].value if report.failed else "",
            reason=report.reason[:500],
            verdicts=verdicts,
            ms=round(report.ms, 3),
        )
        if len(msgspec.msgpack.encode(result)) <= _ROOM:
            break
    body: dict[str, Any] = msgspec.to_builtins(result)
    return body
