"""Hung processes are found, starting and restarting ones are not."""

from spade_actors.supervisor.silence import Silence


def test_missing_for_three_ttls_is_hung() -> None:
    silence = Silence(ttl_s=8.0)
    ages = {"agent-1": 500.0, "judge": 500.0, "young": 10.0}
    assert silence.hung(ages, {"judge"}, 0.0) == []
    assert silence.hung(ages, {"judge"}, 24.0) == []
    assert silence.hung(ages, {"judge"}, 24.1) == ["agent-1"]


def test_coming_back_starts_anew() -> None:
    silence = Silence(ttl_s=8.0)
    ages = {"agent-1": 500.0, "judge": 500.0}
    silence.hung(ages, {"judge"}, 0.0)
    silence.hung(ages, {"judge", "agent-1"}, 20.0)
    assert silence.hung(ages, {"judge"}, 25.0) == []


def test_an_empty_directory_accuses_nobody() -> None:
    silence = Silence(ttl_s=8.0)
    ages = {"agent-1": 500.0, "judge": 500.0}
    for now in range(0, 200, 10):
        assert silence.hung(ages, {"supervisor"}, float(now)) == []
