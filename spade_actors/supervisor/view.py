"""The live view and the plain lines: functions of a `Picture`, without a terminal, a clock or a task."""

import time

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from spade_actors.supervisor.picture import Picture


def share(value: float | None, digits: int = 2) -> str:
    """A number for the eye; a dash before the first."""
    return "–" if value is None else f"{value:.{digits}f}"


def heldout(picture: Picture) -> str:
    """Held-out score, first and last version that were evaluated."""
    if not picture.heldout:
        return "–"
    versions = sorted(picture.heldout)
    first, last = (_main_score(picture.heldout[version]) for version in (versions[0], versions[-1]))
    return f"v{versions[0]} {share(first)}" + (f" → v{versions[-1]} {share(last)}" if len(versions) > 1 else "")


def _main_score(scores: dict[str, float]) -> float | None:
    for name in ("heldout", "plain", "win_rate"):
        if name in scores:
            return scores[name]
    return None


def _duration(seconds: float) -> str:
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


def render(picture: Picture, run_dir: str, now: float) -> RenderableType:
    """The whole live view."""
    return Panel(
        Group(
            _head(picture, now),
            Text(""),
            _numbers(picture),
            Text(""),
            _processes(picture),
            Text(""),
            _queues(picture),
            _foot(picture, now),
        ),
        title=f"spade-actors  {run_dir}",
        title_align="left",
        border_style="cyan",
    )


def _head(picture: Picture, now: float) -> RenderableType:
    width = 30
    filled = min(width, width * picture.step // max(1, picture.steps_wanted))
    line = Text()
    line.append(f"{picture.state:<9}", style="bold green" if picture.state == "running" else "bold yellow")
    line.append(f" update {picture.step}/{picture.steps_wanted} ")
    line.append("━" * filled, style="cyan")
    line.append("━" * (width - filled), style="bright_black")
    line.append(f"  {_duration(now - picture.started)}")
    if 0 < picture.step < picture.steps_wanted:
        line.append(
            f"  about {_duration((now - picture.started) / picture.step * (picture.steps_wanted - picture.step))} left"
        )
    return line


def _numbers(picture: Picture) -> RenderableType:
    applied = sorted(set(picture.applied.values()))
    cells = [
        (
            "weight version",
            "–" if picture.version is None else f"{picture.version} (applied {', '.join(map(str, applied)) or '–'})",
        ),
        ("staleness", f"{share(picture.staleness)} versions, {picture.stale} dropped"),
        ("held-out", heldout(picture)),
        ("mean return", share(picture.mean("mean_return"))),
        ("regret", share(picture.mean("regret"), 3)),
        ("in band", share(picture.mean("in_band"))),
        ("validity", share(picture.valid_share())),
        ("episodes/s", share(picture.rate("episodes"), 1)),
        ("tokens/s", share(picture.rate("tokens_sampled"), 0)),
        ("episodes", _counts(picture.plays)),
        ("designs", _counts(picture.designs)),
        ("samples trained", str(picture.trained)),
    ]
    table = Table.grid(padding=(0, 2), expand=True)
    for _ in range(3):
        table.add_column(style="bright_black", no_wrap=True)
        table.add_column(ratio=1, overflow="ellipsis", no_wrap=True)
    for row in range(0, len(cells), 3):
        table.add_row(*(text for cell in cells[row : row + 3] for text in cell))
    return table


def _counts(counter: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.items() if count) or "0"


def _processes(picture: Picture) -> RenderableType:
    table = Table(box=None, expand=True, padding=(0, 1), header_style="bright_black")
    for name in ("process", "state", "pid", "restarts", "lag ms", "waiting for"):
        table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=1 if name == "waiting for" else None)
    peers = {peer.peer.name: peer for peer in picture.status.peers} if picture.status else {}
    for name in sorted({*peers, *picture.pids}):
        peer = peers.get(name)
        pid = str(picture.pids.get(name) or (peer.peer.pid if peer else "") or "")
        restarts = str(picture.restarts.get(name) or "")
        if peer is None:
            table.add_row(
                name, "starting" if picture.state in ("starting", "running") else "ending", pid, restarts, "", ""
            )
            continue
        longest = min(peer.waits, key=lambda wait: wait.since, default=None)
        waits = (
            f"{longest.name} on {longest.on}, {max(0.0, picture.status_at - longest.since):.0f} s" if longest else ""
        )
        table.add_row(name, peer.state, pid, restarts, f"{peer.lag_ms:.0f}", waits)
    return table


def _queues(picture: Picture) -> RenderableType:
    line = Text("queues  ", style="bright_black")
    for queue in picture.status.queues if picture.status else ():
        line.append(f"{queue.queue} ", style="bold")
        line.append(f"{queue.ready} ready, {queue.leased} leased", style="default")
        if queue.dead:
            line.append(f", {queue.dead} dead", style="bold red")
        line.append("   ")
    return line


def _foot(picture: Picture, now: float) -> RenderableType:
    lines: list[RenderableType] = []
    if picture.titles:
        lines.append(Text(f"last environment  {picture.titles[-1]}", overflow="ellipsis", no_wrap=True))
    lines += [Text(note, style="yellow", overflow="ellipsis", no_wrap=True) for note in picture.notes]
    if picture.reason:
        lines.append(Text(picture.reason, style="yellow"))
    return Group(*lines)


def step_line(picture: Picture) -> str:
    """The plain line after an update."""
    return (
        f"update {picture.step}/{picture.steps_wanted}"
        f"  version {'–' if picture.version is None else picture.version}"
        f"  return {share(picture.mean('mean_return'))}"
        f"  regret {share(picture.mean('regret'), 3)}"
        f"  in band {share(picture.mean('in_band'))}"
        f"  valid {share(picture.valid_share())}"
        f"  staleness {share(picture.staleness)}"
        f"  held-out {heldout(picture)}"
        f"  {share(picture.rate('episodes'), 1)} episodes/s"
    )


def stamp(line: str, at: float) -> str:
    """A plain line with its wall-clock time."""
    return f"{time.strftime('%H:%M:%S', time.localtime(at))}  {line}"
