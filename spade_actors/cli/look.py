"""Looking at a run and ending it: `status`, `top`, `down`, `logs`, `show`, `audit-record`."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spade_actors.cli.errors import Failed, Refused, user_errors

if TYPE_CHECKING:
    from spade_actors.record.folder import RunFolder, RunInfo
    from spade_protocols.directory import Status

DIR = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
ANSWER_S = 5.0


def _folder(directory: Path) -> "RunFolder":
    from spade_actors.record.folder import RunFolder

    with user_errors():
        return RunFolder(directory).require()


def _running(folder: "RunFolder") -> "RunInfo | None":
    with user_errors():
        return folder.running()


@click.command()
@DIR
@JSON
def status(directory: Path, as_json: bool) -> None:
    """What the run in DIR is doing: processes, queues, what is awaited; after its end, its summary."""
    folder = _folder(directory)
    info = _running(folder)
    if info is None:
        _ended(folder, as_json)
        return
    found = _ask(info)
    if as_json:
        import msgspec

        click.echo(json.dumps({"state": info.state, "pid": info.pid, "status": msgspec.to_builtins(found)}, indent=2))
        return
    for line in _status_lines(found):
        click.echo(line)


def _ended(folder: "RunFolder", as_json: bool) -> None:
    from spade_actors.record.summary import in_words, summarise

    with user_errors():
        info = folder.info()
    state = "never started" if info is None else "killed" if info.state == "running" else info.state
    summary = summarise(folder, state)
    if as_json:
        click.echo(json.dumps({"state": state, "summary": summary}, indent=2))
        return
    click.echo(f"not running: {state}" + (f" ({info.reason})" if info and info.reason else ""))
    for line in in_words(summary):
        click.echo(line)


def _ask(info: "RunInfo") -> "Status":
    import trio

    from spade_actors.runtime.errors import CallError, CallTimeout, PeerGone
    from spade_actors.supervisor.link import ask_hub
    from spade_protocols.directory import GetStatus, Status

    async def ask() -> Status:
        async with ask_hub(info.hub) as caller:
            answer = await caller.call(GetStatus(), timeout=ANSWER_S)
        assert isinstance(answer.message, Status)
        return answer.message

    try:
        return trio.run(ask)
    except (CallError, CallTimeout, PeerGone) as error:
        raise Failed(f"the hub of process {info.pid} at {info.hub} does not answer: {error}") from None


def _status_lines(status: "Status") -> Iterator[str]:
    yield f"run {status.run}  up {status.uptime_s:.0f} s  {status.seq} events"
    yield f"{'process':<16}{'state':<10}{'pid':>8}{'silent':>8}{'lag ms':>8}  waiting for"
    for peer in sorted(status.peers, key=lambda peer: peer.peer.name):
        waits = ", ".join(
            f"{wait.name} on {wait.on} ({max(0.0, time.time() - wait.since):.0f} s)" for wait in peer.waits[:3]
        )
        yield f"{peer.peer.name:<16}{peer.state:<10}{peer.peer.pid:>8}{peer.silent_s:>7.1f}s{peer.lag_ms:>8.0f}  {waits}"
    yield f"{'queue':<16}{'ready':>8}{'leased':>8}{'completed':>11}{'cancelled':>11}{'dead':>6}{'oldest':>9}"
    for queue in status.queues:
        counts = f"{queue.ready:>8}{queue.leased:>8}{queue.completed:>11}{queue.cancelled:>11}{queue.dead:>6}"
        yield f"{queue.queue:<16}{counts}{queue.oldest_ready_s:>8.0f}s"
    for code, count in status.errors.items():
        yield f"refused messages: {count} {code}"


@click.command()
@DIR
def top(directory: Path) -> None:
    """Watch the run in DIR: the live view of `up`, from another terminal. Ctrl-C leaves; the run goes on."""
    folder = _folder(directory)
    info = _running(folder)
    if info is None:
        raise Refused(f"{directory} is not running; see `spade-actors status {directory}`")
    if not sys.stdout.isatty():
        raise Refused(f"top draws on a terminal; use `spade-actors status {directory}`")
    import trio

    from spade_actors.supervisor.watch import watch

    with user_errors():
        config = folder.config()
    trio.run(watch, folder, info, config.run.steps)


@click.command()
@DIR
@click.option("--now", is_flag=True, help="Do not drain: stop at once.")
@click.option("--timeout", default=180.0, show_default=True, help="Seconds to wait for the end.")
def down(directory: Path, now: bool, timeout: float) -> None:
    """End the run in DIR: drain it (running episodes finish or return) and wait until nothing is left."""
    folder = _folder(directory)
    info = _running(folder)
    if info is None:
        click.echo(f"{directory} is not running")
        return
    for _ in range(2 if now else 1):
        os.kill(info.pid, signal.SIGTERM)
        time.sleep(0.5 if now else 0)
    end = time.monotonic() + timeout
    while _running(folder) is not None:
        if time.monotonic() > end:
            raise Failed(
                f"{directory} is still draining after {timeout:.0f} s; stop it with `spade-actors down --now {directory}`"
            )
        time.sleep(0.2)
    click.echo(f"{directory} is down; continue it with `spade-actors up {directory}`")


@click.command()
@DIR
@click.argument("name", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on printing what is added.")
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), default=20, show_default=True, help="Lines from the end of each file."
)
def logs(directory: Path, name: str | None, follow: bool, lines: int) -> None:
    """The last lines of the processes' logs (NAME: of one process)."""
    folder = _folder(directory)
    names = sorted({path.stem for path in folder.logs.glob("*.*")})
    if name is not None and name not in names:
        raise Refused(f"no log of {name!r} in {folder.logs}: there are {', '.join(names) or 'none'}")
    files = [path for one in ([name] if name else names) for path in sorted(folder.logs.glob(f"{one}.*"))]
    width = max((len(path.stem) for path in files), default=0)
    places: dict[Path, int] = {}
    for path in files:
        data = path.read_bytes()
        places[path] = len(data)
        for line in data.decode(errors="replace").splitlines()[-lines:] if lines else []:
            click.echo(f"{path.stem:<{width}}  {line}")
    while follow:
        time.sleep(0.3)
        for path in files:
            with path.open("rb") as file:
                file.seek(places[path])
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            places[path] += len(whole)
            for line in whole.decode(errors="replace").splitlines():
                click.echo(f"{path.stem:<{width}}  {line}")


@click.command()
@DIR
@click.argument("wanted", metavar="ENV|EPISODE")
@JSON
def show(directory: Path, wanted: str, as_json: bool) -> None:
    """One environment (source, hint, verdicts, scores) or one episode (transcript) of the run in DIR."""
    from spade_actors.record import reading

    folder = _folder(directory)
    with user_errors():
        found = reading.environment(folder, wanted)
        kind = "environment"
        if found is None:
            found, kind = reading.episode(folder, wanted), "episode"
    if found is None:
        raise Refused(
            f"{directory} has no environment or episode {wanted!r}; see {folder.environments} and {folder.episodes}"
        )
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for line in _environment_lines(found) if kind == "environment" else _episode_lines(found):
        click.echo(line)


def _environment_lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"environment {found['id']}  ({found['folder']})"
    for key in ("source", "hint", "generation"):
        if key in found:
            yield from ("", f"{key}:", found[key].rstrip())
    for key in ("verdicts", "scores"):
        if key in found:
            yield from ("", f"{key}:", json.dumps(found[key], indent=2))
    yield from ("", f"episodes: {' '.join(found['episodes']) or 'none'}")


def _episode_lines(found: dict[str, Any]) -> Iterator[str]:
    yield "  ".join(f"{key} {value}" for key, value in found.items() if not isinstance(value, (list, dict)))
    for turn in found.get("turns", []):
        yield f"  environment  {turn['observation']}"
        yield f"  policy       {turn['action']}" + (f"   (reward {turn['reward']:g})" if turn.get("reward") else "")


@click.command("audit-record")
@DIR
@JSON
def audit_record(directory: Path, as_json: bool) -> int:
    """Check that the record of the run in DIR accounts for every proposal, play and sample exactly once; exit 1 if it does not."""
    from spade_actors.record.audit import audit

    folder = _folder(directory)
    with user_errors():
        report = audit(folder)
    if as_json:
        click.echo(json.dumps(report.as_data(), indent=2))
    else:
        for name, count in report.counts.items():
            click.echo(f"{count:>10}  {name}")
        click.echo("no contradiction" if report.contradiction is None else f"contradiction: {report.contradiction}")
    return 0 if report.contradiction is None else 1
