"""The command group, and the one place where errors become exit codes.

Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted and drained.
"""

import sys

import click

from spade_actors import __version__
from spade_actors.cli import bench, bootstrap, configs, doctor, look, run, up

DONE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="spade-actors")
def app() -> None:
    """SPADE self-play post-training as an event-driven system of independent processes."""


for command in (
    up.up,
    run.run,
    look.status,
    look.top,
    look.down,
    look.logs,
    look.show,
    look.audit_record,
    configs.config,
    bootstrap.bootstrap,
    bench.bench,
    doctor.doctor,
):
    app.add_command(command)


def run_command(command: click.Command, arguments: list[str] | None = None) -> int:
    """Runs a command line and returns its exit code; errors for users are one line on stderr."""
    try:
        code = command.main(args=arguments, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return WRONG_USE
    except click.UsageError as error:
        where = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
        click.echo(f"spade-actors: {error.format_message()}{where}", err=True)
        return WRONG_USE
    except click.ClickException as error:
        click.echo(f"spade-actors: {error.format_message()}", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # the reader of our output has gone (`| head`): nothing is wrong, and nothing more can be said
        sys.stdout = None
        return DONE
    return code if isinstance(code, int) else DONE
