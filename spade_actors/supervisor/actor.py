"""The supervisor's loop: processes, bus, metrics and view of one `up`. Thin around `keeper`, `picture` and `view`.

What always holds: when `supervise` returns no process, socket file or socket folder of the run is left and `summary.json` is written;
the outcome is decided once, by whichever comes first of: the run is complete, it failed, somebody interrupted it.
"""

import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import trio

from spade_actors import __version__
from spade_actors.config import Config
from spade_actors.record.folder import RunFolder, RunInfo, remove_left_sockets, sockets
from spade_actors.record.summary import write_summary
from spade_actors.runtime.actor import ProcessSettings
from spade_actors.runtime.context import Context
from spade_actors.runtime.errors import CallError, CallTimeout, PeerGone
from spade_actors.supervisor.children import Children
from spade_actors.supervisor.drain import Drain, bounds
from spade_actors.supervisor.keeper import Death, Keeper
from spade_actors.supervisor.link import open_context
from spade_actors.supervisor.picture import FOLLOWED, Picture
from spade_actors.supervisor.plan import Planned, plan
from spade_actors.supervisor.silence import Silence
from spade_protocols.registry import Event, spec_of
from spade_protocols.sample import Fact, RunState

STATUS_S = 1.0
FAILED_DRAIN_S = 10.0
_SAY_ENDING_S = 2.0


class Show(Protocol):
    """Where a person watches: the live view or plain lines."""

    def start(self) -> None:
        """Before the first line."""

    def event(self, picture: Picture, event: Event, at: float) -> None:
        """After the picture took an event in."""

    def note(self, picture: Picture, line: str) -> None:
        """Something worth a line that is no event of the run."""

    def tick(self, picture: Picture) -> None:
        """About every second."""

    def stop(self, picture: Picture) -> None:
        """After everything has ended."""


@dataclass
class Outcome:
    """How `up` ended."""

    state: str
    """complete | interrupted | failed"""
    reason: str
    log: Path | None
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 complete, 130 interrupted, 1 failed."""
        return {"complete": 0, "interrupted": 130}.get(self.state, 1)


async def supervise(folder: RunFolder, config: Config, show: Show, make: "type[Supervisor] | None" = None) -> Outcome:
    """Runs this node's processes until the run is complete, failed or interrupted, then drains them.

    `make` is the class of the session, to be replaced where the processes are other commands.

    The first SIGINT, SIGTERM or SIGHUP drains, the second kills what lives.

    Raises:
        FolderError: the folder is in use.
    """
    with folder.lock():
        before = folder.info()
        remove_left_sockets(before)
        with sockets(folder.path) as socket_folder, Children(folder.logs) as children:
            supervisor = (make or Supervisor)(folder, config, show, children, socket_folder, before)
            outcome = await supervisor.live()
        outcome.summary = write_summary(folder, outcome.state, outcome.reason)
        supervisor.save_info(outcome.state, outcome.reason)
    return outcome


class Supervisor:
    """One session of `up`."""

    def __init__(
        self,
        folder: RunFolder,
        config: Config,
        show: Show,
        children: Children,
        socket_folder: Path,
        before: RunInfo | None,
    ) -> None:
        self.folder = folder
        self.config = config
        self.show = show
        self.sockets = socket_folder
        self.hub = f"ipc://{socket_folder}/hub.sock"
        self.started = time.time()
        self.sessions = before.sessions + 1 if before else 1
        self.picture = Picture(steps_wanted=config.run.steps, started=self.started)
        allowed = Drain(bounds=bounds(config.designer.drain_s, config.agent.drain_s))
        self.keeper = Keeper(children, self.command, dict(os.environ), self._death, drain=allowed)
        self.silence = Silence(config.hub.ttl_s)
        self.outcome: Outcome | None = None
        self._decided = trio.Event()
        self._announced = trio.Event()
        self._facts: list[Fact] = []
        self._bus = trio.CancelScope()
        self._context: Context | None = None
        self._metrics = folder.metrics_file.open("a", encoding="utf-8", buffering=1)

    async def live(self) -> Outcome:
        """The session from the first process to the last."""
        self.folder.write_config(self.config)
        self.save_info("running", "")
        self.show.start()
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._signals)
                hub, *others = plan(self.config)
                nursery.start_soon(self._keep, hub)
                nursery.start_soon(self._bus_side)
                # The others must not see the end of an earlier session as the state of this one.
                await self._announced.wait()
                for planned in others:
                    nursery.start_soon(self._keep, planned)
                await self._decided.wait()
                await self._say_ending()
                await self.keeper.drain(self._before_asking)
                nursery.cancel_scope.cancel()
        finally:
            self._metrics.close()
            self.show.stop(self.picture)
        assert self.outcome is not None
        return self.outcome

    def save_info(self, state: str, reason: str) -> None:
        """Writes `run.json`."""
        info = RunInfo(
            hub=self.hub,
            sockets=str(self.sockets),
            pid=os.getpid(),
            started=self.started,
            state=state,
            reason=reason,
            sessions=self.sessions,
            version=__version__,
        )
        self.folder.write_info(info)

    def command(self, planned: Planned) -> list[str]:
        """The command line of one process."""
        command = [sys.executable, "-m", "spade_actors", "run", planned.role, "--hub", self.hub, "--name", planned.name]
        folders = ["--run-dir", str(self.folder.path.resolve()), "--sockets", str(self.sockets)]
        return [*command, *folders, "--parent-fd", str(self.keeper.children.death_pipe)]

    async def _keep(self, planned: Planned) -> None:
        await self.keeper.keep(planned)
        death = self.keeper.gave_up
        if death is not None:
            said = death.last_words or how_it_ended(death.code)
            self.keeper.hurry(FAILED_DRAIN_S)
            if death.role == "hub":
                # Nobody can hand anything back without it.
                self.keeper.stop(now=True)
            self._decide("failed", f"{death.name} died again and again, last: {said}", death.log)

    def _decide(self, state: str, reason: str, log: Path | None = None, advice: str = "") -> None:
        if self.outcome is None:
            self.outcome = Outcome(state, reason, log)
            self.picture.state = state if state == "failed" else "draining"
            self.picture.reason = ": ".join(part for part in (reason, advice) if part)
            self.keeper.stop()
            self._announced.set()
            self._decided.set()
            self.show.note(self.picture, ": ".join(part for part in (state, reason, advice) if part))

    async def _signals(self, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
            task_status.started()
            async for number in received:
                if self.outcome is None:
                    self._decide(
                        "interrupted", signal.Signals(number).name, advice="draining; once more to stop at once"
                    )
                else:
                    self.show.note(self.picture, "stopping now")
                    self.keeper.stop(now=True)

    def _before_asking(self, name: str) -> None:
        if name == "hub":
            self._bus.cancel()

    def _death(self, death: Death) -> None:
        how = how_it_ended(death.code)
        self.picture.restarts = dict(self.keeper.restarts.total)
        line = f"{death.name} ended ({how}) after {death.lived_s:.1f} s"
        again = "" if death.restart_in_s is None else ", restarting"
        self.picture.notes.append(line + again)
        self.show.note(self.picture, f"{line}{again}; log {death.log}")
        values = {"name": death.name, "role": death.role, "code": death.code, "lived_s": round(death.lived_s, 3)}
        self._write({"kind": "death", **values, "last_words": death.last_words})
        if death.restart_in_s is not None:
            self._facts.append(Fact(name="process.restarted", values=values))

    async def _bus_side(self) -> None:
        settings = ProcessSettings(
            role="supervisor",
            name="supervisor",
            hub=self.hub,
            run_dir=self.folder.path.resolve(),
            config=self.config,
            sockets=self.sockets,
            log=self.folder.logs / "supervisor.log",
            parent_fd=None,
        )
        with self._bus:
            async with open_context(settings) as context, trio.open_nursery() as nursery:
                self._context = context
                await self._announce(context)
                values = {"session": self.sessions, "pid": os.getpid(), "started": self.started}
                self._facts.insert(0, Fact(name="session.started", values=values))
                nursery.start_soon(self._follow, context)
                nursery.start_soon(self._watch, context)

    async def _say_ending(self) -> None:
        """Tells processes that nobody here started that the run ends; our own are asked one after the other. `complete`
        is the judge's word, not ours."""
        said = {"interrupted": "draining", "failed": "failed"}.get(self.outcome.state) if self.outcome else None
        if self._context is None or self.keeper.drain_state.now_or_never:
            return
        with trio.move_on_after(_SAY_ENDING_S):
            try:
                await self._publish_facts(self._context)
                if said is not None:
                    reason = self.outcome.reason[:300] if self.outcome else ""
                    await self._context.hub.publish(RunState(state=said, reason=reason), retain=True)
            except (CallError, CallTimeout, PeerGone) as error:
                self.show.note(self.picture, f"the hub does not answer: {error}")

    async def _publish_facts(self, context: Context) -> None:
        """What the record has to say of this session, as far as it is known by now."""
        while self._facts:
            fact = self._facts.pop(0)
            try:
                await context.hub.publish(fact)
            except (CallError, CallTimeout, PeerGone):
                self._facts.insert(0, fact)
                raise

    async def _announce(self, context: Context) -> None:
        """Says that the run runs, however long the hub needs."""
        while not self._announced.is_set():
            try:
                await context.hub.publish(RunState(state="running"), retain=True)
                self._announced.set()
            except (CallTimeout, PeerGone) as error:
                self.show.note(self.picture, f"the hub does not answer: {error}")

    async def _follow(self, context: Context) -> None:
        async with context.events(*FOLLOWED) as events:
            async for stored in events:
                self.picture.apply(stored.message)
                if stored.at >= self.started:
                    self.show.event(self.picture, stored.message, stored.at)
                    self._event_metrics(stored.message, stored.at)
                if isinstance(stored.message, RunState):
                    self._run_state(stored.message)

    def _run_state(self, event: RunState) -> None:
        if event.state == "complete":
            self._decide("complete", "")
        elif event.state == "failed":
            self._decide("failed", event.reason, self.folder.logs)

    async def _watch(self, context: Context) -> None:
        """Status, metrics, facts and hung processes, every second."""
        while True:
            try:
                status = await context.hub.status()
                await self._publish_facts(context)
            except (CallError, CallTimeout, PeerGone) as error:
                self.show.note(self.picture, f"the hub does not answer: {error}")
            else:
                now = time.time()
                self.picture.observe(status, now)
                self._write(self.picture.record(now))
                self._kill_hung({peer.peer.name for peer in status.peers})
            self.picture.pids = {child.name: child.pid for child in self.keeper.children.living.values()}
            self.show.tick(self.picture)
            await trio.sleep(STATUS_S)

    def _kill_hung(self, heard: set[str]) -> None:
        ages = {child.name: time.monotonic() - child.started for child in self.keeper.children.living.values()}
        for name in self.silence.hung(ages, heard, trio.current_time()):
            self.show.note(self.picture, f"{name} does not answer any more: killing it")
            self.keeper.children.kill(name)

    def _event_metrics(self, event: Event, at: float) -> None:
        kind = spec_of(event).name
        if kind in ("learner.stepped", "trial.scored", "evaluation.done", "weights.applied"):
            self._write({"at": at, "kind": kind, **msgspec.to_builtins(event)})

    def _write(self, record: dict[str, Any]) -> None:
        if self._metrics.closed:
            return
        try:
            self._metrics.write(json.dumps({"at": round(time.time(), 3), **record}) + "\n")
        except OSError as error:
            self.show.note(self.picture, f"{self.folder.metrics_file} is not written any more: {error.strerror}")
            with contextlib.suppress(OSError):
                self._metrics.close()


def how_it_ended(code: int) -> str:
    """An exit status in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
