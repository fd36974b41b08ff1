import pytest

from spade_actors.hub.directory import Directory, Down, Replaced, Up
from spade_protocols.directory import Heartbeat, Peer


def peer(name: str = "agent-1", incarnation: str = "one", address: str = "") -> Peer:
    return Peer(role="agent", name=name, incarnation=incarnation, address=address)


def test_registering_twice_changes_nothing_and_a_new_address_is_news() -> None:
    directory = Directory(8.0)
    assert directory.register(peer(), 0.0) == [Up(peer())]
    assert directory.register(peer(), 1.0) == []
    assert directory.register(peer(address="ipc://x"), 2.0) == [Up(peer(address="ipc://x"))]


def test_a_new_incarnation_replaces_the_old_one_which_cannot_come_back() -> None:
    directory = Directory(8.0)
    directory.register(peer(), 0.0)
    new = peer(incarnation="two")
    assert directory.register(new, 1.0) == [Down(peer(), "replaced"), Up(new)]
    assert not directory.heartbeat(Heartbeat(name="agent-1", incarnation="one"), 1.0)
    with pytest.raises(Replaced):
        directory.register(peer(), 2.0)
    assert directory.was_replaced("agent-1", "one")
    assert directory.leave("agent-1", "one") is None


def test_silence_for_longer_than_the_ttl_is_death() -> None:
    directory = Directory(8.0)
    directory.register(peer(), 0.0)
    directory.register(peer("agent-2"), 0.0)
    for second in range(1, 9):
        assert directory.heartbeat(Heartbeat(name="agent-2", incarnation="one"), second)
        assert directory.expire(second) == []
    assert directory.expire(8.5) == [Down(peer(), "silent")]
    assert [p.name for p in directory.lookup("agent")] == ["agent-2"]
    assert not directory.heartbeat(Heartbeat(name="agent-1", incarnation="one"), 9.0)


def test_the_hubs_own_sleep_is_not_held_against_anyone() -> None:
    directory = Directory(8.0)
    directory.register(peer(), 0.0)
    assert directory.expire(1.0) == []
    assert directory.expire(100.0) == []
    assert directory.expire(103.0) == []
    assert [down.reason for t in range(104, 112) for down in directory.expire(t)] == ["silent"]


def test_after_a_restart_nobody_is_dead_within_one_ttl() -> None:
    directory = Directory(8.0)
    directory.restore([peer()], 50.0)
    assert directory.expire(50.5) == []
    assert directory.heartbeat(Heartbeat(name="agent-1", incarnation="one"), 57.0)


def test_status_shows_what_the_last_heartbeat_said() -> None:
    directory = Directory(8.0)
    directory.register(peer(), 0.0)
    directory.heartbeat(
        Heartbeat(name="agent-1", incarnation="one", gauges={"free": 3.0}, counters={"plays": 7}, lag_ms=1.5), 2.0
    )
    (shown,) = directory.status(3.0)
    assert (shown.state, shown.silent_s, shown.gauges, shown.counters, shown.lag_ms) == (
        "running",
        1.0,
        {"free": 3.0},
        {"plays": 7},
        1.5,
    )
