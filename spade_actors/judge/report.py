"""What `status` shows of the judge: accounts in every state, and what is awaited from whom."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType

from spade_actors.judge.machine import Machine
from spade_actors.runtime.metrics import Metrics, Waits


def publish(metrics: Metrics, machine: Machine, backlog: Mapping[str, int]) -> None:
    """Sets gauges and counters; counters are the run's, not this process's."""
    ledger = machine.ledger
    designs = list(machine.designs.values())
    for name, value in {
        "capacity": machine.capacity(),
        "samples_waiting": ledger.waiting,
        "samples_running": machine.running(),
        "samples_taken": sum(ledger.taken.values()),
        "designs_granted_open": sum(d.state == "granted" for d in designs),
        "designs_at_gate": sum(d.state == "proposed" for d in designs),
        "trials_open": len(machine.trials),
        "plays_open": sum(len(trial.open_plays()) for trial in machine.trials.values()),
        "design_groups_open": len(machine.groups),
        "eval_plays_open": sum(len(e.open_plays()) for e in machine.evaluations.values()),
        "weight_version": machine.meta.version,
        "step": machine.meta.step,
        **{f"effects_{lane}": count for lane, count in backlog.items()},
    }.items():
        metrics.gauge(name, value)
    metrics.counters.update(machine.counters)
    metrics.counters.update(
        {
            "samples_released": ledger.released,
            "samples_trained": ledger.trained,
            "samples_stale": ledger.stale,
            "samples_lost": ledger.lost,
        }
    )


def awaited(machine: Machine, generators: Iterable[str]) -> set[tuple[str, str]]:
    """(what, from whom) of everything the run's progress now depends on."""
    states = {design.state for design in machine.designs.values()}
    conditions = {
        ("designs to be generated", "designer"): "granted" in states,
        ("proposals to be decided", "sandbox"): "proposed" in states,
        ("plays of trials", "agent"): any(trial.open_plays() for trial in machine.trials.values()),
        ("held-out plays", "agent"): any(e.state == "open" for e in machine.evaluations.values()),
        ("a batch to be trained", "learner"): machine.ledger.waiting > 0 and machine.capacity() <= 0,
        ("new weights to be applied", "generator"): not machine.synchronised(generators),
        ("trials to be scored", "scorer"): bool(machine.to_score()),
    }
    return {key for key, holds in conditions.items() if holds}


class Standing:
    """Named waits of nobody's task: entered while their condition holds."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._open: dict[tuple[str, str], ExitStack] = {}

    def __enter__(self) -> "Standing":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.update(set())

    def update(self, wanted: set[tuple[str, str]]) -> None:
        """Opens and closes waits so that exactly these stand."""
        for key in self._open.keys() - wanted:
            self._open.pop(key).close()
        for name, on in wanted - self._open.keys():
            stack = ExitStack()
            stack.enter_context(self._waits(name, on=on))
            self._open[name, on] = stack
