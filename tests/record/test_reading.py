"""Environments and episodes are found in plain files."""

import json
from pathlib import Path

import pytest

from spade_actors.record import reading
from spade_actors.record.folder import FolderError, RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    place = tmp_path / "environments" / "d000001"
    place.mkdir(parents=True)
    (place / "env.py").write_text("class GameEnv: ...\n")
    (place / "hint.txt").write_text("steps are of size 3")
    (place / "scores.json").write_text('{"regret": 0.25}')
    (tmp_path / "environments" / "d000002").mkdir()
    for name, plays in {"episodes/d000001": ["d000001.0.p", "d000001.0.h"], "evaluations/e0f": ["e0f.x.0p"]}.items():
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        lines = [json.dumps({"play": play, "return": 1.0, "turns": []}) + "\n" for play in plays]
        path.write_text("".join(lines) + '{"play": "d000001.1.p", "ret')
    return RunFolder(tmp_path)


def test_an_environment_by_id_or_by_its_beginning(folder: RunFolder) -> None:
    found = reading.environment(folder, "d000001")
    assert found is not None
    assert found["source"] == "class GameEnv: ...\n"
    assert found["scores"] == {"regret": 0.25}
    assert found["episodes"] == ["d000001.0.p", "d000001.0.h"]
    assert "verdicts" not in found
    assert reading.environment(folder, "d000002") is not None
    assert reading.environment(folder, "x") is None
    with pytest.raises(FolderError, match="2 environments start so: d000001, d000002"):
        reading.environment(folder, "d00000")


def test_an_episode_of_training_or_evaluation(folder: RunFolder) -> None:
    assert reading.episode(folder, "d000001.0.h") == {"play": "d000001.0.h", "return": 1.0, "turns": []}
    assert reading.episode(folder, "e0f.x.0p") is not None
    assert reading.episode(folder, "d000001.1.p") is None
