"""The auditor: every proposal, play and sample of a run is accounted for exactly once, across hub, judge and readable files.

Pure but for reading the folder. A run that was killed has work in flight; what the judge has not heard yet (events after its own
sequence number) or has decided and not carried out (pending effects) is no contradiction, everything else is.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from spade_actors.record.folder import FolderError, RunFolder
from spade_actors.record.journal import ENDED, Journal, read_journal
from spade_actors.record.spool import Spool, read_spool

LIVE_TRIALS = ("opening", "open", "scoring")
Check = Callable[["Books"], Iterator[str]]


@dataclass
class Books:
    """Both accounts and the folder."""

    journal: Journal
    spool: Spool
    folder: RunFolder

    def heard(self, queue: str, name: str) -> bool:
        """Whether the judge has taken in the end of this item."""
        seq = self.journal.ended_at.get((queue, name))
        return seq is not None and seq <= self.spool.seq


@dataclass
class Report:
    """What was counted and the first contradiction."""

    contradiction: str | None = None
    counts: dict[str, int] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": self.contradiction is None, "contradiction": self.contradiction, "counts": self.counts}


def audit(folder: RunFolder) -> Report:
    """Audits a run folder.

    Raises:
        FolderError: there is no journal or no spool to audit.
    """
    journal, spool = read_journal(folder.hub_journal), read_spool(folder.judge_spool)
    if journal is None or spool is None:
        missing = folder.hub_journal if journal is None else folder.judge_spool
        raise FolderError(f"{missing} is not there or empty: the run has not begun, so there is nothing to audit")
    books = Books(journal, spool, folder)
    first = next((line for check in CHECKS for line in check(books)), None)
    return Report(first, count(books))


def count(books: Books) -> dict[str, int]:
    """How many of everything ended how."""
    counted: Counter[str] = Counter()
    for (queue, _), item in books.journal.items.items():
        counted[f"{queue} {item.state}"] += 1
    for state in books.spool.trials.values():
        counted[f"trials {state}"] += 1
    for row in books.spool.samples.values():
        counted[f"samples of {row.role} {row.state}"] += 1
    counted["trajectories"] = len(books.spool.trajectories)
    return dict(sorted(counted.items()))


def ends(books: Books) -> Iterator[str]:
    """Hub alone: an item ends exactly once, as its journal says."""
    told: Counter[tuple[str, str]] = Counter()
    for event in books.journal.of("item.ended"):
        key = (event.body["queue"], event.body["id"])
        told[key] += 1
        item = books.journal.items.get(key)
        if item is None:
            yield f"{_item(key)} ended (event {event.seq}) but was never put"
        elif item.state != event.body["state"]:
            yield f"{_item(key)} is {item.state}, but event {event.seq} says it ended as {event.body['state']}"
    for key, item in books.journal.items.items():
        expected = 1 if item.state in ENDED else 0
        if told[key] != expected:
            yield f"{_item(key)} is {item.state} and has {told[key]} end events, expected {expected}"


def designs(books: Books) -> Iterator[str]:
    """Grants, designs and proposals are the same things."""
    journal, spool = books.journal, books.spool
    granted = spool.designs
    pending = {g["id"] for effect in spool.pending if effect.get("type") == "GrantDesigns" for g in effect["grants"]}
    for name in granted:
        if ("designs", name) not in journal.items and name not in pending:
            yield f"design {name} was granted and is not in the queue"
    for (queue, name), item in journal.items.items():
        if queue == "designs":
            if name not in granted:
                yield f"design {name} is in the queue and was never granted"
                continue
            proposed = item.state == "completed" and bool(item.result.get("proposed"))
            if proposed and ("proposals", name) not in journal.items:
                yield f"design {name} was proposed, but its proposal is missing"
            if not proposed and ("proposals", name) in journal.items:
                yield f"design {name} was not proposed, but its proposal exists"
            if books.heard(queue, name) and granted[name].state == "granted":
                yield f"design {name} ended as {item.state}, the judge heard it and still counts it as being written"
        elif queue == "proposals" and books.heard(queue, name) and name in granted:
            yield from _proposal(books, name)


def _proposal(books: Books, name: str) -> Iterator[str]:
    item, state = books.journal.items["proposals", name], books.spool.designs[name].state
    admitted = item.state == "completed" and bool(item.result.get("admitted"))
    if state in ("granted", "proposed"):
        yield f"proposal {name} ended as {item.state}, the judge heard it and still counts its design as {state}"
    if admitted and name not in books.spool.trials and state != "withdrawn":
        yield f"proposal {name} was admitted and has no trial, its design is {state}"
    if not admitted and name in books.spool.trials:
        yield f"proposal {name} was not admitted and has a trial"


def resolutions(books: Books) -> Iterator[str]:
    """A design's end follows from its proposal and its trial."""
    spool = books.spool
    follows = {"scored": "scored", "failed": "invalid", "withdrawn": "withdrawn"}
    for name, state in spool.trials.items():
        if name not in spool.designs:
            yield f"trial {name} has no design"
        elif state in follows and spool.designs[name].state != follows[state]:
            yield f"trial {name} is {state}, but its design is {spool.designs[name].state}"
    for name, row in spool.designs.items():
        if row.state in ("trial", "scored") and name not in spool.trials:
            yield f"design {name} is {row.state} and has no trial"


def plays(books: Books) -> Iterator[str]:
    """Plays: the judge's rows, the hub's items and the trajectories are the same things."""
    journal, spool = books.journal, books.spool
    unreleased = spool.pending_of("PutPlays", "trial")
    held_out_unreleased = spool.pending_of("PutEvalPlays", "evaluation")
    queued = {name for queue, name in journal.items if queue == "plays"}
    released = {name.split(".", 1)[0] for name in queued}
    for name, row in spool.plays.items():
        state = spool.trials.get(row.trial)
        if state is None:
            yield f"play {name} belongs to no trial"
        elif state not in LIVE_TRIALS and row.state == "open":
            yield f"play {name} is open, but its trial is {state}"
        elif row.trial in released and name not in queued and row.trial not in unreleased:
            yield f"play {name} was not put into the queue, others of its trial were"
        elif state in ("open", "scoring", "scored", "failed") and row.trial not in released | unreleased:
            yield f"play {name} was never put into the queue, but its trial is {state}"
        if row.state in ("finished", "failed") and name not in spool.trajectories:
            yield f"play {name} is {row.state} without a trajectory"
    for name, (evaluation, state) in spool.eval_plays.items():
        if spool.evaluations.get(evaluation) == "done" and state == "open":
            yield f"held-out play {name} is open, but its evaluation is done"
        if (
            spool.evaluations.get(evaluation) in ("open", "done")
            and name not in queued
            and evaluation not in held_out_unreleased
        ):
            yield f"held-out play {name} was never put into the queue"
        if state in ("finished", "failed") and name not in spool.trajectories:
            yield f"held-out play {name} is {state} without a trajectory"
    for name in sorted(spool.trajectories):
        play = spool.plays[name].state if name in spool.plays else spool.eval_plays.get(name, ("", ""))[1]
        if play not in ("finished", "failed", "lost"):
            yield f"trajectory {name} is stored, but its play is {play or 'unknown'}"
    yield from _play_items(books, queued)


def _play_items(books: Books, queued: set[str]) -> Iterator[str]:
    spool = books.spool
    for name in sorted(queued):
        item = books.journal.items["plays", name]
        state = spool.plays[name].state if name in spool.plays else spool.eval_plays.get(name, ("", ""))[1]
        if not state:
            yield f"play {name} is in the queue and the judge knows nothing of it"
        elif item.state == "completed" and not item.result.get("duplicate") and name not in spool.trajectories:
            yield f"play {name} was completed as delivered, but no trajectory is stored"
        elif books.heard("plays", name) and state == "open":
            yield f"play {name} ended as {item.state}, the judge heard it and still counts it as open"


def samples(books: Books) -> Iterator[str]:
    """Samples: released once, ended once, trained exactly as often as the surviving updates took them."""
    journal, spool = books.journal, books.spool
    unreleased = {name for effect in spool.pending if effect.get("type") == "PutSamples" for name in effect["items"]}
    for name, row in spool.samples.items():
        if ("samples", name) not in journal.items and name not in unreleased:
            yield f"sample {name} was released and is not in the queue"
        if row.role == "agent" and spool.plays.get(name, None) is None:
            yield f"sample {name} has no play"
        elif row.role == "agent" and spool.plays[name].state != "finished":
            yield f"sample {name} comes from a play that is {spool.plays[name].state}"
        if row.role == "designer" and (
            name not in spool.designs or spool.designs[name].state not in ("scored", "invalid")
        ):
            yield f"sample {name} comes from a design without a reward"
    for (queue, name), item in journal.items.items():
        if queue != "samples":
            continue
        if name not in spool.samples:
            yield f"sample {name} is in the queue and was never released"
            continue
        told = str(item.result.get("outcome", "")) if item.state == "completed" else item.state
        if books.heard(queue, name) and spool.samples[name].state != told:
            yield f"sample {name} ended as {told}, the judge has it as {spool.samples[name].state}"
        if item.state not in ENDED and spool.samples[name].state != "released":
            yield f"sample {name} is {spool.samples[name].state} for the judge and {item.state} in the queue"
    yield from _trained(books)


def _trained(books: Books) -> Iterator[str]:
    journal = books.journal
    taken: dict[int, int] = {}
    checkpoint = 0
    for event in journal.of("learner.started", "learner.stepped", "learner.checkpointed"):
        step = int(event.body["step"])
        if event.type == "learner.started":
            lost = [later for later in taken if later > step]
            if step < checkpoint:
                yield f"the learner went back to update {step} behind its checkpoint of update {checkpoint} (event {event.seq})"
            for later in lost:
                del taken[later]
        elif event.type == "learner.stepped":
            if step in taken:
                yield f"update {step} was done twice in one history (event {event.seq})"
            taken[step] = int(event.body["samples"])
        else:
            checkpoint = max(checkpoint, step)
    if sorted(taken) != list(range(1, len(taken) + 1)):
        yield f"updates are missing: the record has {sorted(taken)}"
    kept = sum(number for step, number in taken.items() if step <= checkpoint)
    items = [item for (queue, _), item in journal.items.items() if queue == "samples"]
    ended = sum(item.state == "completed" and item.result.get("outcome") == "trained" for item in items)
    waiting = sum(item.state not in ENDED for item in items)
    if not ended <= kept <= ended + waiting:
        yield f"{ended} samples ended as trained, but the updates up to checkpoint {checkpoint} took {kept}"


def announcements(books: Books) -> Iterator[str]:
    """Events of the judge: one per trial, one per evaluation; weight versions only move forward."""
    journal, spool = books.journal, books.spool
    pending = {effect["id"] for effect in spool.pending if effect.get("type") == "Announce"}
    scored = Counter(str(event.body["trial"]) for event in journal.of("trial.scored"))
    for name, state in spool.trials.items():
        expected = 0 if state in LIVE_TRIALS or f"trial-{name}" in pending else 1
        if scored[name] != expected and f"trial-{name}" not in pending:
            yield f"trial {name} is {state} and was announced {scored[name]} times, expected {expected}"
    version = -1
    for event in journal.of("weights.published"):
        if int(event.body["version"]) <= version:
            yield f"weight version {event.body['version']} was published after version {version} (event {event.seq})"
        version = int(event.body["version"])


def files(books: Books) -> Iterator[str]:
    """The readable files say the same."""
    spool, folder = books.spool, books.folder
    unwritten = spool.pending_of("WriteEpisodes", "trial")
    undescribed = spool.pending_of("WriteDesign", "design")
    by_trial: dict[str, dict[str, str]] = {name: {} for name in spool.trials}
    for name, row in spool.plays.items():
        by_trial.setdefault(row.trial, {})[name] = row.state
    for trial, state in spool.trials.items():
        played = not spool.trajectories.isdisjoint(by_trial[trial])
        if state not in LIVE_TRIALS and trial not in unwritten and played:
            yield from _same_plays(folder, f"episodes/{trial}.jsonl", by_trial[trial])
    of_evaluation: dict[str, dict[str, str]] = {}
    for name, (evaluation, play) in spool.eval_plays.items():
        of_evaluation.setdefault(evaluation, {})[name] = play
    for evaluation, state in spool.evaluations.items():
        if state == "done" and evaluation not in spool.pending_of("WriteEvaluation", "evaluation"):
            yield from _same_plays(folder, f"evaluations/{evaluation}.jsonl", of_evaluation.get(evaluation, {}))
    for name, design in spool.designs.items():
        ended = design.state in ("scored", "invalid", "withdrawn")
        if ended and (design.attempt or name in spool.trials) and name not in undescribed:
            about = folder.environments / name / "scores.json"
            if not about.is_file():
                yield f"environments/{name}/scores.json is missing"
            elif name in spool.trials and json.loads(about.read_text(encoding="utf-8"))["state"] != spool.trials[name]:
                yield f"environments/{name}/scores.json does not say that the trial is {spool.trials[name]}"


def _same_plays(folder: RunFolder, name: str, expected: dict[str, str]) -> Iterator[str]:
    path = folder.path / name
    if not path.is_file():
        yield f"{name} is missing"
        return
    found: Counter[str] = Counter()
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="surrogatepass").rstrip("\n").split("\n"), 1):
        try:
            play = json.loads(line)
        except ValueError:
            yield f"{name} line {number} is not JSON"
            return
        found[play["play"]] += 1
        if play["play"] not in expected:
            yield f"{name} has play {play['play']}, which the judge does not know"
        elif play["outcome"] != expected[play["play"]]:
            yield f"{name} says that play {play['play']} is {play['outcome']}, the judge {expected[play['play']]}"
    for play, _ in expected.items():
        if found[play] != 1:
            yield f"{name} has play {play} {found[play]} times, expected once"


def _item(key: tuple[str, str]) -> str:
    return f"{key[0]} item {key[1]}"


CHECKS: tuple[Check, ...] = (ends, designs, resolutions, plays, samples, announcements, files)
