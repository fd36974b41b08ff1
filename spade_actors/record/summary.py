"""`summary.json`: the result of a run, computed from its record alone, so it can be made again at any time.

`first` and `last` are over the first and last `WINDOW` updates (at most a third of the run). Episodes, tokens
and environment steps count training and held-out plays; tokens are sampled ones. Wall time is the sum over sessions.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from spade_actors.record.folder import RunFolder, replace
from spade_actors.record.journal import Journal, JournalEvent, read_journal
from spade_actors.record.spool import Spool, read_spool

WINDOW = 5


def write_summary(folder: RunFolder, state: str, reason: str = "") -> dict[str, Any]:
    """Computes and saves the summary; `state` is how the session ended."""
    summary = summarise(folder, state, reason)
    replace(folder.summary_file, json.dumps(summary, indent=2).encode() + b"\n")
    return summary


def summarise(folder: RunFolder, state: str, reason: str = "") -> dict[str, Any]:
    """The summary as plain data; a run that never began has zeros and nulls."""
    journal = read_journal(folder.hub_journal) or Journal()
    spool = read_spool(folder.judge_spool)
    ended = f"{state}: {reason}" if state == "failed" and reason else state
    return compute(journal, spool, ended)


def compute(journal: Journal, spool: Spool | None, ended: str) -> dict[str, Any]:
    """The summary of a journal and a spool."""
    steps = surviving_steps(journal)
    wall = wall_seconds(journal)
    versions = [int(event.body["version"]) for event in journal.of("weights.published")]
    scored = [event for event in journal.of("trial.scored") if event.body.get("state") == "scored"]
    last = _windows(steps, scored)[1]
    tokens = 0
    if spool is not None:
        tokens = sum(row.tokens for row in spool.designs.values()) + spool.play_tokens
    return {
        "steps": max(steps, default=0),
        "weight_version": max(versions, default=None),
        "wall_s": round(wall, 1),
        "episodes": _episodes(journal),
        "environments": _environments(journal),
        "samples": _samples(journal),
        "valid_share": _first_last(steps, list(_validity(journal))),
        "in_band": _first_last(
            steps, [(event.seq, score) for event in scored if (score := _score(event, "in_band")) is not None]
        ),
        "mean_return": _mean(_scores(last, "mean_return")),
        "regret": _mean(_scores(last, "regret")),
        "heldout": _heldout(journal),
        "tokens_per_s": _rate(tokens, wall),
        "env_steps_per_s": _rate(spool.env_steps if spool else 0, wall),
        "restarts": _restarts(journal),
        "exit": ended,
    }


def surviving_steps(journal: Journal) -> dict[int, int]:
    """Updates of the history that survives crashes of the learner: step -> sequence number of its event."""
    steps: dict[int, int] = {}
    for event in journal.of("learner.started", "learner.stepped"):
        step = int(event.body["step"])
        if event.type == "learner.stepped":
            steps[step] = event.seq
        else:
            steps = {done: seq for done, seq in steps.items() if done <= step}
    return steps


def wall_seconds(journal: Journal) -> float:
    """Seconds during which a supervisor ran: per session from its start to its last event."""
    facts = [event.body for event in journal.of("log.fact") if event.body.get("name") == "session.started"]
    starts = [float(body["values"]["started"]) for body in facts]
    total = 0.0
    for start, following in pairwise([*starts, float("inf")]):
        total += max((event.at for event in journal.events if start <= event.at < following), default=start) - start
    return total


def in_words(summary: dict[str, Any]) -> Iterator[str]:
    """The summary as a few lines for a person."""
    if not summary:
        return
    environments, episodes, samples = summary["environments"], summary["episodes"], summary["samples"]
    yield f"{summary['steps']} updates, weight version {summary['weight_version']}, {summary['wall_s']:.0f} s, {summary['exit']}"
    yield (
        f"environments  {environments['proposed'] + environments['not_proposed']} written: {environments['not_proposed']} unreadable"
        f", {environments['rejected']} rejected by the gate, {environments['admitted']} admitted"
        f"; valid share {_arrow(summary['valid_share'])}, in band {_arrow(summary['in_band'])}"
    )
    yield (
        f"episodes      {episodes['finished']} finished, {episodes['failed']} failed, {episodes['cancelled']} cancelled"
        f"; mean return {_number(summary['mean_return'])}, regret {_number(summary['regret'])}"
    )
    yield f"samples       {samples['trained']} trained, {samples['stale']} stale"
    first, last = summary["heldout"]["first"], summary["heldout"]["last"]
    for split in ("heldout", "unseen"):
        if first and split in first:
            after = last or first
            versions = f"version {first['version']} -> {after['version']}"
            yield f"{split:<13} {_number(first[split])} -> {_number(after.get(split))} ({versions})"
    yield f"speed         {summary['tokens_per_s']:.0f} tokens/s, {summary['env_steps_per_s']:.0f} environment steps/s"
    if summary["restarts"]:
        yield "restarts      " + ", ".join(f"{name} {times}" for name, times in summary["restarts"].items())


def _episodes(journal: Journal) -> dict[str, int]:
    counted = Counter({"finished": 0, "failed": 0, "cancelled": 0})
    for (queue, _), item in journal.items.items():
        if queue == "plays" and item.state == "completed":
            counted["failed" if item.result.get("outcome") == "failed" else "finished"] += 1
        elif queue == "plays" and item.state in ("cancelled", "dead"):
            counted["cancelled" if item.state == "cancelled" else "failed"] += 1
    return dict(counted)


def _environments(journal: Journal) -> dict[str, Any]:
    proposals = [item for (queue, _), item in journal.items.items() if queue == "proposals"]
    written = [item for (queue, _), item in journal.items.items() if queue == "designs" and item.state == "completed"]
    decided = [item.result for item in proposals if item.state == "completed"]
    rejected = [result for result in decided if not result.get("admitted")]
    unproposed = [item.result for item in written if not item.result.get("proposed")]
    reasons = Counter(str(result.get("failed") or "unknown") for result in rejected)
    reasons.update(str(result.get("reason") or "unknown") for result in unproposed)
    return {
        "proposed": len(proposals),
        "admitted": sum(bool(result.get("admitted")) for result in decided),
        "rejected": len(rejected),
        "not_proposed": len(unproposed),
        "reasons": dict(reasons.most_common()),
    }


def _samples(journal: Journal) -> dict[str, int]:
    ends = Counter(
        str(item.result.get("outcome", ""))
        for (queue, _), item in journal.items.items()
        if queue == "samples" and item.state == "completed"
    )
    return {"trained": ends["trained"], "stale": ends["stale"]}


def _validity(journal: Journal) -> Iterator[tuple[int, float]]:
    for event in journal.of("item.ended"):
        result = event.body.get("result", {})
        if event.body["state"] != "completed":
            continue
        if event.body["queue"] == "proposals":
            yield event.seq, float(bool(result.get("admitted")))
        elif event.body["queue"] == "designs" and not result.get("proposed"):
            yield event.seq, 0.0


def _bounds(steps: dict[int, int]) -> tuple[float, float]:
    """Sequence numbers at which the first window ends and the last begins."""
    seqs = [steps[step] for step in sorted(steps)]
    window = min(WINDOW, max(1, len(seqs) // 3))
    if len(seqs) < 2:
        return float("inf"), float("-inf")
    return seqs[window - 1], seqs[-window - 1]


def _windows(steps: dict[int, int], events: list[JournalEvent]) -> tuple[list[JournalEvent], list[JournalEvent]]:
    first, last = _bounds(steps)
    return [event for event in events if event.seq <= first], [event for event in events if event.seq > last]


def _first_last(steps: dict[int, int], values: list[tuple[int, float]]) -> dict[str, float | None]:
    first, last = _bounds(steps)
    return {
        "first": _mean(value for seq, value in values if seq <= first),
        "last": _mean(value for seq, value in values if seq > last),
    }


def _score(event: JournalEvent, name: str) -> float | None:
    value = event.body.get("scores", {}).get(name)
    return None if value is None else float(value)


def _scores(events: Iterable[JournalEvent], name: str) -> list[float]:
    return [value for event in events if (value := _score(event, name)) is not None]


def _heldout(journal: Journal) -> dict[str, Any]:
    done = [event.body for event in journal.of("evaluation.done")]
    per_version = {str(body["version"]): body["scores"] for body in done}
    firsts = [body for body in done if body["label"] == "first"]
    lasts = [body for body in done if body["label"] == "last"]

    def shown(bodies: list[dict[str, Any]], index: int) -> dict[str, Any] | None:
        if not bodies:
            return None
        return {"version": bodies[index]["version"], "pinned": bodies[index]["pinned"], **bodies[index]["scores"]}

    return {"first": shown(firsts, 0), "last": shown(lasts, -1), "per_version": per_version}


def _restarts(journal: Journal) -> dict[str, int]:
    facts = [event.body for event in journal.of("log.fact") if event.body.get("name") == "process.restarted"]
    return dict(Counter(str(body["values"]["name"]) for body in facts))


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return round(sum(listed) / len(listed), 6) if listed else None


def _rate(amount: int, seconds: float) -> float:
    return round(amount / seconds, 1) if seconds > 0 else 0.0


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _arrow(pair: dict[str, float | None]) -> str:
    return f"{_number(pair['first'])} -> {_number(pair['last'])}"
