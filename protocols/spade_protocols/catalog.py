"""Who says what: imports every conversation, and the table per role of what it serves, calls, consumes and emits."""

from typing import NamedTuple

from spade_protocols import common, design, directory, events, play, queues, sample

MODULES = (common, directory, events, queues, design, play, sample)


class Contract(NamedTuple):
    """One role's side of the wire, by message and queue names."""

    serves: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    leases: tuple[str, ...] = ()
    """queues it takes from"""
    puts: tuple[str, ...] = ()
    """queues it puts into"""
    follows: tuple[str, ...] = ()
    """events it subscribes to"""
    emits: tuple[str, ...] = ()


_EVERYONE = ("peer.register", "peer.heartbeat", "peer.leave", "peer.lookup")

ROLES: dict[str, Contract] = {
    "hub": Contract(
        serves=(
            *_EVERYONE,
            "hub.status",
            "event.publish",
            "event.snapshot",
            "event.replay",
            "queue.put",
            "queue.lease",
            "queue.complete",
            "queue.release",
            "queue.cancel",
            "queue.find",
        ),
        emits=("peer.up", "peer.down", "item.ended", "item.returned"),
    ),
    "memory": Contract(
        serves=(
            "brief.granted",
            "brief.get",
            "environment.put",
            "environment.get",
            "environment.duplicate",
            "environment.judged",
            "memory.stats",
        ),
        calls=(*_EVERYONE, "queue.put"),
        puts=("designs",),
    ),
    "designer": Contract(
        calls=(
            *_EVERYONE,
            "queue.lease",
            "queue.complete",
            "queue.release",
            "brief.get",
            "environment.put",
            "design.deliver",
        ),
        leases=("designs",),
        puts=("proposals",),
        follows=("weights.applied",),
    ),
    "sandbox": Contract(
        serves=("session.open", "session.step", "session.close"),
        calls=(
            *_EVERYONE,
            "queue.lease",
            "queue.complete",
            "queue.release",
            "environment.get",
            "environment.duplicate",
        ),
        leases=("proposals",),
        follows=("peer.down",),
    ),
    "agent": Contract(
        calls=(
            *_EVERYONE,
            "queue.lease",
            "queue.complete",
            "queue.release",
            "session.open",
            "session.step",
            "session.close",
            "trajectory.deliver",
        ),
        leases=("plays",),
        follows=("weights.applied",),
    ),
    "judge": Contract(
        serves=("design.deliver", "trajectory.deliver", "sample.fetch"),
        calls=(
            *_EVERYONE,
            "queue.put",
            "queue.cancel",
            "queue.find",
            "event.publish",
            "event.snapshot",
            "event.replay",
            "brief.granted",
            "environment.put",
            "environment.get",
            "environment.judged",
            "score.trial",
        ),
        puts=("plays", "samples"),
        follows=(
            "item.ended",
            "learner.started",
            "learner.stepped",
            "learner.checkpointed",
            "weights.published",
            "weights.applied",
            "run.state",
        ),
        emits=("trial.scored", "evaluation.done", "run.state"),
    ),
    "scorer": Contract(serves=("score.trial",), calls=_EVERYONE),
    "learner": Contract(
        calls=(
            *_EVERYONE,
            "queue.lease",
            "queue.complete",
            "queue.release",
            "queue.find",
            "sample.fetch",
            "event.publish",
            "event.snapshot",
        ),
        leases=("samples",),
        follows=("run.state", "weights.applied"),
        emits=("learner.started", "learner.stepped", "learner.checkpointed", "weights.published"),
    ),
    "generator": Contract(
        calls=(*_EVERYONE, "event.publish", "event.snapshot", "event.replay"),
        follows=("weights.published",),
        emits=("weights.applied",),
    ),
    "supervisor": Contract(
        calls=(*_EVERYONE, "hub.status", "event.publish", "event.snapshot", "event.replay"),
        follows=("run.state", "learner.stepped", "trial.scored", "evaluation.done", "weights.applied"),
        emits=("run.state", "log.fact"),
    ),
}
