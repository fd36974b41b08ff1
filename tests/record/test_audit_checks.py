"""The auditor's checks one by one: a consistent record passes, each contradiction put in by hand is caught."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from books import journal, spool

from spade_actors.record.audit import CHECKS, Books
from spade_actors.record.folder import RunFolder
from spade_actors.record.journal import JournalEvent, JournalItem
from spade_actors.record.spool import PlayRow, SampleRow


def first(books: Books) -> str | None:
    return next((line for check in CHECKS for line in check(books)), None)


@pytest.fixture
def books(tmp_path: Path) -> Books:
    book = journal()
    rows = spool(book)
    folder = RunFolder(tmp_path)
    for name, row in rows.designs.items():
        (folder.environments / name).mkdir(parents=True)
        state = rows.trials.get(name, row.state)
        (folder.environments / name / "scores.json").write_text(json.dumps({"state": state}))
    for owner, path in {"d000000": folder.episodes, "d000001": folder.episodes, "e0f": folder.evaluations}.items():
        path.mkdir(exist_ok=True)
        plays = {name: row.state for name, row in rows.plays.items() if row.trial == owner}
        plays |= {name: state for name, (evaluation, state) in rows.eval_plays.items() if evaluation == owner}
        lines = [json.dumps({"play": name, "outcome": state}) + "\n" for name, state in plays.items()]
        (path / f"{owner}.jsonl").write_text("".join(lines))
    return Books(book, rows, folder)


def test_a_consistent_record_has_no_contradiction(books: Books) -> None:
    assert first(books) is None


def tell(books: Books, type_: str, **body: object) -> None:
    seq = books.journal.events[-1].seq + 1
    books.journal.add(JournalEvent(seq, type_, 2000.0, body))
    books.spool.seq = seq


def ended_twice(books: Books) -> None:
    tell(books, "item.ended", queue="plays", id="d000000.0.p", state="completed", result={})


def sample_trained_twice(books: Books) -> None:
    tell(books, "learner.stepped", step=1, samples=2)


def sample_vanished(books: Books) -> None:
    del books.journal.items["samples", "d000002"]


def sample_from_nowhere(books: Books) -> None:
    books.journal.items["samples", "d000009"] = JournalItem("ready", {})


def sample_of_a_lost_play(books: Books) -> None:
    books.spool.samples["d000001.0.p"] = SampleRow("agent", "d000001", "d000001.plain", "released")
    books.journal.items["samples", "d000001.0.p"] = JournalItem("ready", {})


def sample_counted_differently(books: Books) -> None:
    books.spool.samples["d000000.0.p"] = books.spool.samples["d000000.0.p"]._replace(state="stale")


def trained_more_than_taken(books: Books) -> None:
    books.spool.samples["d000002"] = books.spool.samples["d000002"]._replace(state="trained")
    books.journal.items["samples", "d000002"] = JournalItem("completed", {"outcome": "trained"})
    tell(books, "item.ended", queue="samples", id="d000002", state="completed", result={"outcome": "trained"})


def trajectory_lost(books: Books) -> None:
    books.spool.trajectories.remove("d000000.1.h")


def trajectory_of_a_cancelled_play(books: Books) -> None:
    books.spool.trajectories.add("d000001.1.h")


def play_dropped(books: Books) -> None:
    del books.spool.plays["d000000.1.h"]


def play_never_queued(books: Books) -> None:
    books.spool.plays["d000000.2.p"] = PlayRow("d000000", "plain", "cancelled")


def play_left_open(books: Books) -> None:
    books.spool.plays["d000001.1.p"] = books.spool.plays["d000001.1.p"]._replace(state="open")


def proposal_lost(books: Books) -> None:
    del books.journal.items["proposals", "d000002"]


def proposal_invented(books: Books) -> None:
    books.journal.items["proposals", "d000003"] = JournalItem("ready", {})


def admitted_without_trial(books: Books) -> None:
    del books.spool.trials["d000001"]
    books.spool.designs["d000001"] = books.spool.designs["d000001"]._replace(state="invalid")


def rejected_with_trial(books: Books) -> None:
    books.spool.trials["d000002"] = "withdrawn"
    books.spool.designs["d000002"] = books.spool.designs["d000002"]._replace(state="withdrawn")


def announced_twice(books: Books) -> None:
    tell(books, "trial.scored", trial="d000000", state="scored")


def version_went_back(books: Books) -> None:
    tell(books, "weights.published", version=1, step=1)


def update_missing(books: Books) -> None:
    tell(books, "learner.stepped", step=3, samples=0)


def behind_the_checkpoint(books: Books) -> None:
    tell(books, "learner.started", step=0, version=1)


def episode_twice_in_the_file(books: Books) -> None:
    path = books.folder.episodes / "d000000.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines(keepends=True)[0])


def episode_missing_in_the_file(books: Books) -> None:
    path = books.folder.episodes / "d000000.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))


def episode_file_damaged(books: Books) -> None:
    path = books.folder.episodes / "d000000.jsonl"
    path.write_text(path.read_text()[:-9])


def evaluation_file_missing(books: Books) -> None:
    (books.folder.evaluations / "e0f.jsonl").unlink()


def environment_file_missing(books: Books) -> None:
    (books.folder.environments / "d000002" / "scores.json").unlink()


FAULTS: dict[Callable[[Books], None], str] = {
    ended_twice: "plays item d000000.0.p is completed and has 2 end events, expected 1",
    sample_trained_twice: "update 1 was done twice in one history",
    sample_vanished: "sample d000002 was released and is not in the queue",
    sample_from_nowhere: "sample d000009 is in the queue and was never released",
    sample_of_a_lost_play: "sample d000001.0.p comes from a play that is lost",
    sample_counted_differently: "sample d000000.0.p ended as trained, the judge has it as stale",
    trained_more_than_taken: "3 samples ended as trained, but the updates up to checkpoint 1 took 2",
    trajectory_lost: "play d000000.1.h is finished without a trajectory",
    trajectory_of_a_cancelled_play: "trajectory d000001.1.h is stored, but its play is cancelled",
    play_dropped: "trajectory d000000.1.h is stored, but its play is unknown",
    play_never_queued: "play d000000.2.p was not put into the queue, others of its trial were",
    play_left_open: "play d000001.1.p is open, but its trial is withdrawn",
    proposal_lost: "proposals item d000002 ended (event 12) but was never put",
    proposal_invented: "design d000003 was not proposed, but its proposal exists",
    admitted_without_trial: "proposal d000001 was admitted and has no trial, its design is invalid",
    rejected_with_trial: "proposal d000002 was not admitted and has a trial",
    announced_twice: "trial d000000 is scored and was announced 2 times, expected 1",
    version_went_back: "weight version 1 was published after version 1",
    update_missing: "updates are missing: the record has [1, 3]",
    behind_the_checkpoint: "the learner went back to update 0 behind its checkpoint of update 1",
    episode_twice_in_the_file: "episodes/d000000.jsonl has play d000000.0.p 2 times, expected once",
    episode_missing_in_the_file: "episodes/d000000.jsonl has play d000000.0.p 0 times, expected once",
    episode_file_damaged: "episodes/d000000.jsonl line 4 is not JSON",
    evaluation_file_missing: "evaluations/e0f.jsonl is missing",
    environment_file_missing: "environments/d000002/scores.json is missing",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_contradiction_is_caught(books: Books, fault: Callable[[Books], None]) -> None:
    fault(books)
    line = first(books)
    assert line is not None
    assert line.startswith(FAULTS[fault])


def test_what_the_judge_has_not_heard_yet_is_no_contradiction(books: Books) -> None:
    seq = books.journal.events[-1].seq
    tell(books, "item.ended", queue="samples", id="d000002", state="completed", result={"outcome": "stale"})
    books.journal.items["samples", "d000002"] = JournalItem("completed", {"outcome": "stale"})
    books.spool.seq = seq
    assert first(books) is None


def test_what_is_decided_and_not_yet_carried_out_is_no_contradiction(books: Books) -> None:
    del books.journal.items["samples", "d000002"]
    books.spool.pending.append({"type": "PutSamples", "group": "g0", "items": {"d000002": {}}})
    (books.folder.episodes / "d000000.jsonl").unlink()
    books.spool.pending.append({"type": "WriteEpisodes", "trial": "d000000"})
    assert first(books) is None
