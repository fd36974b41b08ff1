"""`config`, and the printing that `up --dry-run` shares with it."""

from pathlib import Path

import click

from spade_actors.cli.errors import user_errors
from spade_actors.config import Config, load, to_toml
from spade_actors.supervisor.plan import plan


def resolve(source: Path | None, overrides: tuple[str, ...]) -> Config:
    """A configuration from a TOML file, a run folder or the defaults, with overrides."""
    with user_errors():
        if source is not None and source.is_dir():
            from spade_actors.record.folder import RunFolder

            return load(None, overrides, base=RunFolder(source).require().config())
        return load(source, overrides)


def per_process(config: Config) -> str:
    """Every process of this node with the tables it reads, as TOML below a comment line each."""
    parts = []
    for process in plan(config):
        parts.append(f"# {process.name}: spade-actors run {process.role} --name {process.name}\n")
        parts.append(to_toml(config, only=process.tables))
    return "\n".join(parts)


@click.command()
@click.argument("source", required=False, type=click.Path(path_type=Path))
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a setting, e.g. learner.lr=0.001."
)
@click.option("--by-process", is_flag=True, help="Print what each process of this node reads.")
def config(source: Path | None, overrides: tuple[str, ...], by_process: bool) -> None:
    """Print every setting with its help, resolved from SOURCE (a TOML file or a run folder) and overrides, as TOML."""
    resolved = resolve(source, overrides)
    click.echo(per_process(resolved) if by_process else to_toml(resolved, comments=True), nl=False)
