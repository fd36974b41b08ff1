"""What every benchmark gives: rows, and the machine they were measured on."""

import os
import platform
from collections.abc import Sequence
from typing import Any

import msgspec
import psutil  # type: ignore[import-untyped]


class Row(msgspec.Struct, frozen=True):
    """One figure."""

    name: str
    value: float
    unit: str
    target: str = ""
    """as in the design, e.g. `<= 3`; empty: only told"""
    met: bool | None = None


def row(name: str, value: float, unit: str, *, at_most: float | None = None, at_least: float | None = None) -> Row:
    """A row with its target checked; value rounded to four significant digits."""
    rounded = float(f"{value:.4g}")
    if at_most is not None:
        return Row(name, rounded, unit, f"<= {at_most:g}", value <= at_most)
    if at_least is not None:
        return Row(name, rounded, unit, f">= {at_least:g}", value >= at_least)
    return Row(name, rounded, unit)


def machine() -> dict[str, Any]:
    """What it was measured on. `load` above the number of cores means that others were measured too."""
    with open("/proc/cpuinfo") as file:
        model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    return {
        "cores": os.cpu_count(),
        "cpu": model,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load": round(os.getloadavg()[0], 2),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def report(rows: Sequence[Row]) -> dict[str, Any]:
    """`{"rows": [...], "machine": {...}}`."""
    return {"rows": [msgspec.to_builtins(one) for one in rows], "machine": machine()}
