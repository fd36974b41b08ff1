"""`bench bus` and `bench sandbox`: measured figures beside their targets and the bare libraries in the same run."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from spade_bench.rows import Row


@click.group()
def bench() -> None:
    """Measure this machine: figures beside their targets and the bare libraries."""


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "--seconds", type=click.FloatRange(min=0.1), default=3.0, show_default=True, help="Time for each figure."
    )(function)
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


@bench.command()
@_options
def bus(seconds: float, as_json: bool) -> None:
    """Calls, events, leases and commits over the real runtime, beside bare pyzmq."""
    from spade_bench.bus import run

    _report(run(seconds), as_json)


@bench.command()
@_options
def sandbox(seconds: float, as_json: bool) -> None:
    """Jails, sessions and steps, beside bare nsjail and raw pipes."""
    from spade_bench.sandbox import run

    _report(run(seconds), as_json)


def _report(rows: "list[Row]", as_json: bool) -> None:
    from spade_bench.rows import report

    if as_json:
        click.echo(json.dumps(report(rows), indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for column in ("name", "value", "unit", "target", "met"):
        table.add_column(column, justify="right" if column in ("value", "target") else "left")
    for row in rows:
        met = "" if row.met is None else "yes" if row.met else "[red]no[/red]"
        table.add_row(row.name, f"{row.value:,.4g}", row.unit, row.target, met)
    Console().print(table)
