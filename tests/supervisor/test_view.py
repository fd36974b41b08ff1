"""The picture folds events; the view renders it as text."""

from rich.console import Console

from spade_actors.supervisor.picture import Picture
from spade_actors.supervisor.view import render, step_line
from spade_protocols.directory import Peer, PeerStatus, QueueStatus, Status, Wait
from spade_protocols.queues import ItemEnded
from spade_protocols.sample import (
    EvaluationDone,
    LearnerStepped,
    RunState,
    TrialScored,
    WeightsApplied,
    WeightsPublished,
)


def status(finished: int = 0) -> Status:
    peer = PeerStatus(
        peer=Peer(role="agent", name="agent-1", incarnation="i", pid=4321),
        state="running",
        age_s=10.0,
        silent_s=0.1,
        gauges={},
        counters={"tokens_sampled": finished * 50},
        waits=[Wait(name="lease plays", on="hub", since=90.0)],
        lag_ms=3.2,
    )
    queue = QueueStatus(queue="plays", ready=5, leased=7, completed=finished, cancelled=0, dead=2, oldest_ready_s=1.0)
    return Status(run="r", seq=1, uptime_s=10.0, peers=[peer], queues=[queue], waiters=[], errors={})


def a_run() -> Picture:
    picture = Picture(steps_wanted=80, started=0.0)
    picture.observe(status(), 100.0)
    for event in (
        RunState(state="running"),
        ItemEnded(queue="designs", id="d0", state="completed", result={"proposed": False, "reason": "no_code"}),
        ItemEnded(queue="proposals", id="d1", state="completed", result={"admitted": True}),
        ItemEnded(queue="proposals", id="d2", state="completed", result={"admitted": False, "failed": "parse"}),
        ItemEnded(queue="designs", id="d3", state="dead"),
        *(ItemEnded(queue="plays", id=f"p{i}", state="completed", result={"outcome": "finished"}) for i in range(10)),
        ItemEnded(queue="plays", id="px", state="cancelled"),
        TrialScored(trial="d1", environment="e", skill="s", title="a maze of twelve rooms", state="scored",
                    scores={"mean_return": 0.5, "regret": 0.125, "in_band": 0.3}),
        TrialScored(trial="d9", environment="e", skill="s", title="x", state="withdrawn", scores={}),
        EvaluationDone(version=0, label="first", pinned=True, scores={"heldout": 0.2}),
        EvaluationDone(version=40, label="version", pinned=True, scores={"heldout": 0.35}),
        LearnerStepped(step=40, version=40, samples=288, stale=3, by_role={}, staleness={"0": 100, "2": 100}, metrics={}, seconds=3.0),
        WeightsPublished(version=40, step=40, parent=39, path="weights/v40", sha256=""),
        WeightsApplied(version=40, generator="generator-1", paused_ms=1.0, total_ms=2.0),
    ):  # fmt: skip
        picture.apply(event)
    picture.observe(status(finished=10), 102.0)
    picture.pids = {"hub": 77, "agent-1": 4321, "learner": 78}
    return picture


def test_the_fold_counts_each_thing_once() -> None:
    picture = a_run()
    assert dict(picture.designs) == {"invalid": 2, "valid": 1, "lost": 1}
    assert dict(picture.rejected) == {"no_code": 1, "parse": 1}
    assert dict(picture.plays) == {"finished": 10, "cancelled": 1}
    assert picture.valid_share() == 1 / 3
    assert (picture.step, picture.trained, picture.stale, picture.staleness) == (40, 288, 3, 1.0)
    assert picture.mean("mean_return") == 0.5
    assert picture.rate("episodes") == 5.0
    assert picture.rate("tokens_sampled") == 250.0
    assert picture.rate("nothing") is None


def test_the_live_view_shows_everything_the_user_asked_for() -> None:
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(a_run(), "runs/one", now=110.0))
    text = console.export_text()
    for wanted in (
        "runs/one", "running", "update 40/80", "1:50", "40 (applied 40)", "1.00 versions, 3 dropped", "v0 0.20 → v40 0.35",
        "0.50", "0.125", "0.30", "0.33", "5.0", "250", "10 finished, 1 cancelled", "agent-1", "4321", "hub", "77", "learner", "78",
        "starting",
        "lease plays on hub, 12 s", "plays 5 ready, 7 leased, 2 dead", "a maze of twelve rooms",
    ):  # fmt: skip
        assert wanted in text, wanted


def test_an_empty_picture_renders_too() -> None:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(Picture(steps_wanted=3, started=0.0), "d", now=1.0))
    assert "starting" in console.export_text()
    assert step_line(Picture(steps_wanted=3, started=0.0)).startswith("update 0/3  version –")


def test_the_plain_line() -> None:
    assert step_line(a_run()) == (
        "update 40/80  version 40  return 0.50  regret 0.125  in band 0.30  valid 0.33  staleness 1.00"
        "  held-out v0 0.20 → v40 0.35  5.0 episodes/s"
    )


def test_the_metrics_line_is_plain_data() -> None:
    record = a_run().record(102.0)
    assert record["queues"] == {"plays": {"ready": 5, "leased": 7, "dead": 2}}
    assert record["kind"] == "status"
    assert record["step"] == 40
