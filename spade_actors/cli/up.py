"""`up`: the whole run on this node, from a configuration or continued from a run folder."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spade_actors.cli.errors import Failed, Refused, user_errors

if TYPE_CHECKING:
    from spade_actors.config import Config
    from spade_actors.record.folder import RunFolder
    from spade_actors.supervisor.actor import Outcome


@click.command()
@click.argument("source", required=False, metavar="[CONFIG|DIR]", type=click.Path(path_type=Path))
@click.option(
    "--steps", metavar="N", help="Learner updates of the whole run; +N: so many more than a continued run has set."
)
@click.option(
    "--run-dir", type=click.Path(path_type=Path, file_okay=False), help="Folder of a new run.  [default: runs/TIME]"
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a setting, e.g. learner.lr=0.001."
)
@click.option("--seed", type=int, help="Seed of every random stream.")
@click.option("--dry-run", is_flag=True, help="Print every process's resolved configuration and stop.")
@click.option("--no-ui", is_flag=True, help="Plain lines instead of the live view.")
def up(
    source: Path | None,
    steps: str | None,
    run_dir: Path | None,
    overrides: tuple[str, ...],
    seed: int | None,
    dry_run: bool,
    no_ui: bool,
) -> int:
    """Start a run from CONFIG (default: the micro profile), or continue the run in DIR.

    Exit codes: 0 complete, 1 failed, 2 wrong use, 130 interrupted and drained. The first Ctrl-C drains, the second stops at once.
    """
    from spade_actors.cli.configs import per_process

    folder, config = prepare(source, run_dir, steps, seed, overrides)
    if dry_run:
        click.echo(per_process(config), nl=False)
        return 0
    if folder.exists():
        with user_errors(), folder.lock():
            pass  # refused at once when another supervisor holds it
    _check_machine(config)
    finished = _nothing_left(folder, config)
    if finished:
        click.echo(finished)
        return 0

    import trio

    from spade_actors.supervisor.actor import supervise
    from spade_actors.supervisor.show import Lines, LiveView

    plain = no_ui or not sys.stdout.isatty()
    if plain:
        show: Lines | LiveView = Lines(str(folder.path), sys.stdout)
    else:
        from rich.console import Console

        show = LiveView(str(folder.path), Console())
    with user_errors():
        outcome = trio.run(supervise, folder, config, show)
    _report(folder, outcome)
    return outcome.exit_code


def prepare(
    source: Path | None, run_dir: Path | None, steps: str | None, seed: int | None, overrides: tuple[str, ...]
) -> "tuple[RunFolder, Config]":
    """The run folder and resolved configuration a command line means."""
    from spade_actors.config import load
    from spade_actors.record.folder import RunFolder

    with user_errors():
        if source is not None and source.is_dir():
            if run_dir is not None:
                raise Refused(f"--run-dir {run_dir}: continuing {source} keeps its folder; leave --run-dir out")
            folder = RunFolder(source).require()
            base: Config | None = folder.config()
            if seed is not None and base is not None and seed != base.run.seed:
                raise Refused(
                    f"--seed {seed}: the run in {source} has seed {base.run.seed}, which continuing keeps; leave --seed out"
                )
            config = load(None, (*overrides, *_steps(steps, base)), base=base)
        else:
            folder = RunFolder(run_dir or Path("runs") / time.strftime("%Y%m%d-%H%M%S"))
            if folder.exists():
                raise Refused(
                    f"--run-dir {folder.path}: there is a run already; continue it with `spade-actors up {folder.path}`"
                )
            chosen = (*overrides, *(() if seed is None else (f"run.seed={seed}",)), *_steps(steps, None))
            config = load(source, chosen)
    return folder, config


def _steps(steps: str | None, base: "Config | None") -> tuple[str, ...]:
    if steps is None:
        return ()
    more = steps.startswith("+")
    if not steps.removeprefix("+").isdecimal() or (more and base is None):
        expected = "a number of updates, or +N when continuing a run" if not more else "+N only continues a run folder"
        raise Refused(f"--steps {steps}: expected {expected}")
    total = int(steps) + (base.run.steps if more and base else 0)
    return (f"run.steps={total}",)


def _check_machine(config: "Config") -> None:
    from spade_actors.cli.checks import needed

    for check in needed(config):
        raise Failed(f"{check.name}: {check.fix}")


def _nothing_left(folder: "RunFolder", config: "Config") -> str:
    with user_errors():
        info = folder.info()
        if info is None or info.state != "complete":
            return ""
        done = folder.config().run.steps
    if config.run.steps > done:
        return ""
    return f"the run in {folder.path} is complete after {done} updates; continue it with --steps {done + 20} or --steps +20"


def _report(folder: "RunFolder", outcome: "Outcome") -> None:
    from spade_actors.record.summary import in_words

    for line in in_words(outcome.summary):
        click.echo(line)
    click.echo(f"run folder {folder.path}  (summary.json, metrics.jsonl, environments/, episodes/)")
    if outcome.state == "interrupted":
        click.echo(f"interrupted and drained; continue with `spade-actors up {folder.path}`")
    if outcome.state == "failed":
        where = f"; log {outcome.log}" if outcome.log else ""
        click.echo(f"spade-actors: the run failed: {outcome.reason}{where}", err=True)
