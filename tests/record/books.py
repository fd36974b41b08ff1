"""A small, complete and consistent record: two trials, one rejected design, one update, one held-out evaluation."""

from typing import Any

from spade_actors.record.journal import Journal, JournalEvent, JournalItem
from spade_actors.record.spool import DesignRow, PlayRow, SampleRow, Spool

TRIALS = {"d000000": "scored", "d000001": "withdrawn"}


def plays_of(trial: str) -> list[str]:
    return [f"{trial}.{index}.{arm}" for index in range(2) for arm in "ph"]


def journal() -> Journal:
    book = Journal()

    def tell(type_: str, **body: Any) -> None:
        seq = len(book.events) + 1
        book.add(JournalEvent(seq, type_, 1000.0 + seq, body))

    def end(queue: str, name: str, state: str = "completed", **result: Any) -> None:
        book.items[queue, name] = JournalItem(state, result)
        tell("item.ended", queue=queue, id=name, state=state, result=result)

    tell("log.fact", name="session.started", values={"session": 1, "started": 1000.0})
    tell("learner.started", step=0, version=0)
    tell("weights.published", version=0, step=0)
    end("plays", "e0f.x.0p", outcome="finished", duplicate=False)
    tell("evaluation.done", version=0, label="first", pinned=True, scores={"heldout": 0.2, "unseen": 0.1})
    for name in ("d000000", "d000001", "d000002"):
        end("designs", name, proposed=True)
    end("designs", "d000003", proposed=False, reason="no_code")
    end("proposals", "d000000", admitted=True)
    end("proposals", "d000001", admitted=True)
    end("proposals", "d000002", admitted=False, failed="parse")
    for name in plays_of("d000000"):
        end("plays", name, outcome="finished", duplicate=False)
    end("plays", "d000001.0.p", "dead")
    for name in plays_of("d000001")[1:]:
        end("plays", name, "cancelled")
    tell("trial.scored", trial="d000000", state="scored", scores={"mean_return": 0.5, "regret": 0.25, "in_band": 0.3})
    tell("trial.scored", trial="d000001", state="withdrawn", scores={})
    for name in ("d000000.0.p", "d000000.1.p"):
        end("samples", name, outcome="trained", step=1)
    book.items["samples", "d000002"] = JournalItem("ready", {})
    tell("learner.stepped", step=1, version=1, samples=2, stale=0)
    tell("weights.published", version=1, step=1)
    tell("learner.checkpointed", step=1, version=1)
    tell("log.fact", name="process.restarted", values={"name": "agent-1"})
    return book


def spool(book: Journal) -> Spool:
    plays = {name: PlayRow("d000000", "plain", "finished") for name in plays_of("d000000")}
    plays |= {name: PlayRow("d000001", "plain", "cancelled") for name in plays_of("d000001")}
    plays["d000001.0.p"] = PlayRow("d000001", "plain", "lost")
    return Spool(
        seq=book.events[-1].seq,
        designs={
            "d000000": DesignRow("g0", "scored", "", 1, 100),
            "d000001": DesignRow("g0", "withdrawn", "", 1, 100),
            "d000002": DesignRow("g0", "invalid", "parse", 1, 100),
            "d000003": DesignRow("g0", "invalid", "no_code", 1, 100),
        },
        trials=dict(TRIALS),
        plays=plays,
        trajectories={*plays_of("d000000"), "e0f.x.0p"},
        env_steps=30,
        play_tokens=80,
        samples={
            "d000000.0.p": SampleRow("agent", "d000000", "d000000.plain", "trained"),
            "d000000.1.p": SampleRow("agent", "d000000", "d000000.plain", "trained"),
            "d000002": SampleRow("designer", "d000002", "g0", "released"),
        },
        evaluations={"e0f": "done"},
        eval_plays={"e0f.x.0p": ("e0f", "finished")},
        pending=[],
    )
