"""Checkpoints survive a crash at every step of their writing."""

import os

import pytest
import torch

from spade_actors.learner import checkpoint
from spade_actors.learner.checkpoint import CheckpointError, Meta


class Crash(Exception):
    pass


def meta(step: int) -> Meta:
    return Meta(step=step, version=step + 1, consumed=["a", "b"], trained=8 * step, initial="weights/v000000")


def tensors(value: float) -> dict[str, torch.Tensor]:
    return {"weight.x": torch.full((3,), value), "optimizer.step.x": torch.tensor(value)}


def test_what_is_written_is_read_back(tmp_path):
    checkpoint.write(tmp_path, meta(10), tensors(1.5))
    got, values = checkpoint.read(tmp_path, 10)
    assert got == meta(10)
    assert values["weight.x"].tolist() == [1.5] * 3
    assert values["optimizer.step.x"].shape == ()


def crash_points(tmp_path, monkeypatch) -> int:
    """How many syncs and renames one write makes."""
    calls = []
    for name in ("fsync", "rename"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real: (calls.append(1), real(*a))[1])
    checkpoint.write(tmp_path / "count", meta(1), tensors(0.0))
    monkeypatch.undo()
    return len(calls)


def test_a_crash_at_any_point_leaves_the_last_whole_checkpoint(tmp_path, monkeypatch):
    points = crash_points(tmp_path, monkeypatch)
    assert points == 5
    for point in range(points):
        root = tmp_path / str(point)
        checkpoint.write(root, meta(1), tensors(1.0))
        left = [point]

        def failing(real, left=left):
            def call(*arguments):
                if left[0] == 0:
                    raise Crash
                left[0] -= 1
                return real(*arguments)

            return call

        for name in ("fsync", "rename"):
            monkeypatch.setattr(os, name, failing(getattr(os, name)))
        with pytest.raises(Crash):
            checkpoint.write(root, meta(2), tensors(2.0))
        monkeypatch.undo()
        newest = checkpoint.steps(root)[-1]
        got, values = checkpoint.read(root, newest)
        assert got == meta(newest)
        assert values["weight.x"].tolist() == [float(newest)] * 3
        assert newest == (2 if point == points - 1 else 1)
        checkpoint.write(root, meta(2), tensors(2.0))
        checkpoint.prune(root, 1)
        assert sorted(p.name for p in root.iterdir()) == ["s000002"]


def test_prune_keeps_the_newest(tmp_path):
    for step in (1, 2, 10):
        checkpoint.write(tmp_path, meta(step), tensors(0.0))
    checkpoint.prune(tmp_path, 2)
    assert checkpoint.steps(tmp_path) == [2, 10]


def test_a_spoiled_checkpoint_says_where_it_is(tmp_path):
    folder = checkpoint.write(tmp_path, meta(3), tensors(0.0))
    (folder / "state.safetensors").write_bytes(b"no")
    with pytest.raises(CheckpointError, match="s000003"):
        checkpoint.read(tmp_path, 3)
