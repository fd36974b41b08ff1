"""Where a person watches an `up`: the live view on a terminal, plain lines anywhere else."""

import time
from typing import TextIO

from rich.console import Console
from rich.live import Live

from spade_actors.supervisor.picture import Picture
from spade_actors.supervisor.view import heldout, render, stamp, step_line
from spade_protocols.registry import Event
from spade_protocols.sample import EvaluationDone, LearnerStarted, LearnerStepped, WeightsPublished


class Lines:
    """One line per update, evaluation and note."""

    def __init__(self, run_dir: str, out: TextIO) -> None:
        self._run_dir = run_dir
        self._out = out

    def start(self) -> None:
        """Names the run folder."""
        self._say(f"run folder {self._run_dir}", time.time())

    def event(self, picture: Picture, event: Event, at: float) -> None:
        """A line for updates, starts of the learner, first weights and evaluations."""
        if isinstance(event, LearnerStepped):
            self._say(step_line(picture), at)
        elif isinstance(event, LearnerStarted) and event.step > 0:
            self._say(f"the learner goes on after update {event.step}", at)
        elif isinstance(event, EvaluationDone):
            self._say(f"held-out evaluation of version {event.version}: {heldout(picture)}", at)
        elif isinstance(event, WeightsPublished) and event.step == 0:
            self._say(f"initial weights published as version {event.version}", at)

    def note(self, picture: Picture, line: str) -> None:
        """The line itself."""
        self._say(line, time.time())

    def tick(self, picture: Picture) -> None:
        """Nothing: lines are for what happens."""

    def stop(self, picture: Picture) -> None:
        """Nothing more to say."""

    def _say(self, line: str, at: float) -> None:
        print(stamp(line, at), file=self._out, flush=True)


class LiveView:
    """The rich live view; notes stay above it."""

    def __init__(self, run_dir: str, console: Console) -> None:
        self._run_dir = run_dir
        self._console = console
        self._live = Live(
            console=console, auto_refresh=False, transient=False, redirect_stdout=False, redirect_stderr=False
        )

    def start(self) -> None:
        """Takes the lower part of the terminal."""
        self._live.start()

    def event(self, picture: Picture, event: Event, at: float) -> None:
        """Shown with the next tick."""

    def note(self, picture: Picture, line: str) -> None:
        """Printed above the view, so that it is still there afterwards."""
        self._console.print(stamp(line, time.time()), highlight=False)
        self.tick(picture)

    def tick(self, picture: Picture) -> None:
        """Draws the view anew."""
        self._live.update(render(picture, self._run_dir, time.time()), refresh=True)

    def stop(self, picture: Picture) -> None:
        """Draws the last state and leaves it on the terminal."""
        self.tick(picture)
        self._live.stop()
