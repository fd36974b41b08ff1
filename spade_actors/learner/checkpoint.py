"""Checkpoints on disk: weights, optimizer, counters and the ids of the samples they contain.

Always holds: `run_dir/checkpoints/s000010/` is there whole or not at all (written aside, synced, renamed), so a crash
at any moment leaves the last whole one; a checkpoint names every sample it was trained on whose completion the hub had
not confirmed when it was written, so such a sample is completed, never trained again. Tensors are safetensors, the rest
is JSON: nothing is ever unpickled.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

_TENSORS = "state.safetensors"
_META = "checkpoint.json"
_PREFIX = "s"


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the text names the file and what is wrong."""


class Meta(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of a checkpoint but its tensors."""

    step: int
    version: int
    """weight version that was the newest published one"""
    consumed: list[str]
    """samples it contains whose completion was not yet confirmed"""
    trained: int
    """samples trained since the run began"""
    initial: str
    """folder of the frozen initial weights, relative to the run folder"""
    stepped: dict[str, Any] = {}
    """body of the step's `learner.stepped`: a crash before that event is made good at the next start"""


def write(root: Path, meta: Meta, tensors: dict[str, Tensor]) -> Path:
    """Makes the checkpoint of `meta.step` durable and returns its folder; one of the same step is replaced."""
    root.mkdir(parents=True, exist_ok=True)
    folder = root / f"{_PREFIX}{meta.step:06d}"
    aside = root / f".{folder.name}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    save_file({name: value.contiguous() for name, value in tensors.items()}, str(aside / _TENSORS))
    (aside / _META).write_bytes(msgspec.json.encode(meta))
    for path in (aside / _TENSORS, aside / _META, aside):
        sync(path)
    if folder.exists():
        # Only a rerun of the same step after a crash comes here, and what it replaces the hub never confirmed.
        shutil.rmtree(folder)
    os.rename(aside, folder)
    sync(root)
    return folder


def steps(root: Path) -> list[int]:
    """Steps that have a whole checkpoint, oldest first."""
    found = [p.name for p in root.glob(f"{_PREFIX}[0-9]*") if (p / _META).is_file()]
    return sorted(int(name.removeprefix(_PREFIX)) for name in found)


def read(root: Path, step: int) -> tuple[Meta, dict[str, Tensor]]:
    """A checkpoint; raises `CheckpointError` when it cannot be read."""
    folder = root / f"{_PREFIX}{step:06d}"
    try:
        meta = msgspec.json.decode((folder / _META).read_bytes(), type=Meta)
        return meta, load_file(str(folder / _TENSORS))
    except (OSError, msgspec.DecodeError, SafetensorError) as error:
        raise CheckpointError(
            f"checkpoint {folder}: cannot be read ({error}); delete it to go on from the one before"
        ) from None


def prune(root: Path, keep_last: int) -> None:
    """Deletes all but the newest `keep_last` checkpoints, and what a crash left half written."""
    for step in steps(root)[:-keep_last]:
        shutil.rmtree(root / f"{_PREFIX}{step:06d}")
    for path in root.glob(f".{_PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)


def sync(path: Path) -> None:
    """fsync of a file or folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
