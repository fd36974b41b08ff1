"""The command line. `--help` imports neither torch, zmq nor trio: every command imports what it needs when it runs."""

import sys


def main() -> None:
    """Entry point of the `spade-actors` script."""
    from spade_actors.cli.app import app, run_command

    sys.exit(run_command(app))
