"""What `status` shows of the judge."""

from spade_actors.judge.report import Standing, awaited, publish
from spade_actors.runtime.metrics import Metrics, Waits
from tests.judge.world import World, rules


def test_status_names_what_is_awaited_and_from_whom() -> None:
    world = World(rules(batch=2, eta=0))
    world.settle()
    waits = Waits()
    with Standing(waits) as standing:
        standing.update(awaited(world.machine, []))
        assert [(w.name, w.on) for w in waits.current()] == [("designs to be generated", "designer")]
        since = waits.current()[0].since
        standing.update(awaited(world.machine, []))
        assert waits.current()[0].since == since
        world.generate("d000000")
        world.propose("d000000")
        standing.update(awaited(world.machine, []))
        assert [w.on for w in waits.current()] == ["sandbox"]
        world.gate("d000000", True)
        world.settle()
        standing.update(awaited(world.machine, []))
        assert ("plays of trials", "agent") in [(w.name, w.on) for w in waits.current()]
        world.finish_trial("d000000", [1, 0], [1, 1])
        assert ("a batch to be trained", "learner") in awaited(world.machine, [])
        world.machine.published(1)
        assert ("new weights to be applied", "generator") in awaited(world.machine, ["generator-1"])
    assert waits.current() == []


def test_gauges_and_counters_cover_every_state() -> None:
    world = World(rules())
    world.settle()
    world.admit("d000000")
    metrics = Metrics()
    publish(metrics, world.machine, {"hub": 0, "memory": 2})
    gauges = metrics.gauges
    assert (gauges["designs_granted_open"], gauges["trials_open"], gauges["plays_open"]) == (6, 1, 4)
    assert gauges["effects_memory"] == 2
    assert gauges["capacity"] == 20 - gauges["samples_running"] - gauges["samples_waiting"]
    assert metrics.counters["designs_granted"] == 7
    assert metrics.counters["samples_released"] == 0
