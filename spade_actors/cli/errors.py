"""Errors as the user sees them: one line and an exit code."""

import contextlib
from collections.abc import Iterator

import click

from spade_actors.config import ConfigError
from spade_actors.record.folder import FolderError


class Refused(click.ClickException):
    """The request cannot be served as it is (exit 2)."""

    exit_code = 2


class Failed(click.ClickException):
    """It was tried and did not work (exit 1)."""

    exit_code = 1


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Configuration and run folder errors raised inside become one line and exit code 2."""
    try:
        yield
    except (ConfigError, FolderError) as error:
        raise Refused(str(error)) from None
