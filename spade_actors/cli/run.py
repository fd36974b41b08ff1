"""`run ROLE`: one process of a run, started by the supervisor or by hand, on this node or another."""

import os
from pathlib import Path

import click

from spade_actors.cli.errors import Refused, user_errors


@click.command()
@click.argument("role")
@click.option("--hub", help="The hub's address (the hub itself binds it). Default: from the run folder.")
@click.option("--run-dir", required=True, type=click.Path(path_type=Path, file_okay=False), help="The run's folder.")
@click.option("--name", help="Unique in the run. Default: the role, or role-PID where a run may have many.")
@click.option("--role", "as_role", help="The role to register as, when ROLE is package.module:factory.")
@click.option(
    "--sockets", type=click.Path(path_type=Path), help="Folder for this process's socket. Default: from the run folder."
)
@click.option(
    "--config", "source", type=click.Path(path_type=Path, dir_okay=False), help="TOML file. Default: the run folder's."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a setting for this process alone."
)
@click.option("--parent-fd", type=int, hidden=True, help="Death pipe: the process ends when it closes.")
def run(
    role: str,
    hub: str | None,
    run_dir: Path,
    name: str | None,
    as_role: str | None,
    sockets: Path | None,
    source: Path | None,
    overrides: tuple[str, ...],
    parent_fd: int | None,
) -> int:
    """Run one ROLE as this process: hub, memory, judge, generator, learner, sandbox, agent, designer, scorer or package.module:factory."""
    from spade_actors.cli.roles import SINGLE, UnknownRole, factory
    from spade_actors.config import load
    from spade_actors.record.folder import RunFolder

    if ":" in role and not as_role:
        raise Refused(f"role {role}: say which role it plays, e.g. --role agent")
    registered = as_role or role
    folder = RunFolder(run_dir)
    with user_errors():
        base = folder.config() if source is None and folder.exists() else None
        config = load(source, overrides, base=base)
        info = folder.info() if hub is None or sockets is None else None
    if hub is None and info is None:
        raise Refused(
            f"no --hub, and {run_dir} has no run.json that names one; start the run first or give --hub ADDRESS"
        )
    if hub is None and info is not None and folder.running() is None:
        raise Refused(
            f"the run in {run_dir} is not running ({info.state}); continue it with `spade-actors up {run_dir}`, or give --hub ADDRESS"
        )
    try:
        make = factory(role)
    except UnknownRole as error:
        raise Refused(str(error)) from None

    from spade_actors.runtime.actor import ProcessSettings, run_actor

    folder.logs.mkdir(parents=True, exist_ok=True)
    own_name = name or (registered if registered in SINGLE else f"{registered}-{os.getpid()}")
    settings = ProcessSettings(
        role=registered,
        name=own_name,
        hub=hub or (info.hub if info else ""),
        run_dir=run_dir.resolve(),
        config=config,
        sockets=sockets or Path(info.sockets if info else run_dir),
        log=folder.logs / f"{own_name}.log",
        parent_fd=parent_fd,
    )
    return run_actor(make, settings)
