"""The version machine and the command lines."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_actors.config.schema import GeneratorConfig
from spade_actors.generator.launch import launch
from spade_actors.generator.versions import Published, Versions


def published(version: int) -> Published:
    return Published(version, f"weights/v{version:06d}", float(version))


def test_the_newest_is_due_and_those_between_are_skipped():
    v = Versions()
    assert v.due() is None
    v.offer(published(3))
    assert v.due() is None
    v.started(3)
    assert v.due() is None
    v.offer(published(4))
    v.offer(published(5))
    assert v.due() == published(5)
    assert v.skipped == 1
    v.loaded(5)
    assert v.due() is None
    assert not v.offer(published(4))
    assert v.due() is None


def test_a_refused_version_is_due_again_only_for_another_server():
    v = Versions()
    v.offer(published(1))
    v.started(0)
    v.refused(1)
    assert v.due() is None
    v.offer(published(2))
    assert v.due() == published(2)
    v.refused(2)
    v.stopped()
    v.started(1)
    assert v.due() == published(2)


@given(st.lists(st.integers(0, 20), min_size=1))
def test_what_a_server_has_only_moves_forward(offers):
    v = Versions()
    v.offer(published(0))
    v.started(0)
    had = [0]
    for version in offers:
        v.offer(published(version))
        due = v.due()
        if due:
            v.loaded(due.version)
            had.append(due.version)
    assert had == sorted(set(had))
    assert had[-1] == max(0, *offers)


def test_command_lines():
    start = launch(GeneratorConfig(slots=7), Path("m"), 12, 0, {"HOME": "h"})
    assert start.command[1:3] == ["-m", "spade_actors.generator.embedded"]
    assert start.command[start.command.index("--weight-version") + 1] == "12"
    assert start.command[start.command.index("--slots") + 1] == "7"
    assert start.environment["OMP_WAIT_POLICY"] == "passive"
    assert start.announces_port
    config = GeneratorConfig(kind="sglang", python="/opt/x/bin/python", arguments=["--tp", "2"])
    start = launch(config, Path("m"), 3, 4000, {"PATH": "/bin"})
    assert start.command[3:6] == ["/opt/x/bin/python", "-m", "sglang.launch_server"]
    assert start.command[-2:] == ["--tp", "2"]
    assert start.environment["PATH"] == "/opt/x/bin:/bin"
    assert not start.announces_port
    with pytest.raises(ValueError, match="sglang-url"):
        launch(GeneratorConfig(kind="sglang-url"), Path("m"), 0, 0, {})
