"""`doctor`: what this machine can do and what to mend."""

import json
from pathlib import Path

import click

from spade_actors.cli.configs import resolve


@click.command()
@click.argument("source", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(source: Path | None, as_json: bool) -> int:
    """Check this machine for a run (with SOURCE's configuration): exit code 1 if something is missing."""
    import msgspec

    from spade_actors.cli.checks import every_check

    checks = every_check(resolve(source, ()), Path("runs"))
    if as_json:
        click.echo(json.dumps({"checks": msgspec.to_builtins(checks)}, indent=2))
    else:
        for check in checks:
            click.echo(
                f"{'ok  ' if check.ok else 'MISS'}  {check.name:<8} {check.value}"
                + ("" if check.ok else f"\n      {check.fix}")
            )
    return 0 if all(check.ok for check in checks) else 1
