"""The admission gate: `await gate.run(provider, source, hint)`."""

from .driver import DEFAULT_SEEDS, Duplicate, run
from .verdict import Check, GateReport, GateSettings, Verdict

__all__ = ["DEFAULT_SEEDS", "Check", "Duplicate", "GateReport", "GateSettings", "Verdict", "run"]
