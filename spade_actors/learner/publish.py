"""Weight versions on disk: `run_dir/weights/v000012/`, a Hugging Face folder in bf16 with a manifest.

Always holds: a version's folder appears whole or not at all and never changes after its event; version 0 is the base
model and stays, as the frozen reference and the start of every comparison; a version some generator may still read is
kept.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from spade_actors.learner.checkpoint import sync
from spade_actors.model import files
from spade_actors.model.config import CONFIG_FILE
from spade_actors.model.qwen3 import Qwen3

MANIFEST = "manifest.json"
_PREFIX = "v"
# Beside the weights a server or transformers needs these of the base model, where it has them.
_COMPANIONS = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a version is; `sha256` is of the weight file."""

    version: int
    step: int
    parent: int
    """version it was trained from; -1 = the base model itself"""
    base: str
    dtype: str
    sha256: str


def folder_of(root: Path, version: int) -> Path:
    """Where a version lies below the weights folder `root`."""
    return root / f"{_PREFIX}{version:06d}"


def write(root: Path, model: Qwen3, base: Path, *, version: int, step: int, parent: int) -> Manifest:
    """Makes `version` durable and returns its manifest. Only a version without an event may be written again."""
    folder, aside = folder_of(root, version), root / f".{_PREFIX}{version:06d}"
    for stale in (folder, aside):
        shutil.rmtree(stale, ignore_errors=True)
    files.save(model, aside, extra=[base / name for name in _COMPANIONS if (base / name).is_file()])
    digest = hashlib.sha256((aside / files.WEIGHTS_FILE).read_bytes()).hexdigest()
    manifest = Manifest(version=version, step=step, parent=parent, base=base.name, dtype="bfloat16", sha256=digest)
    (aside / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
    sync(aside / MANIFEST)
    sync(aside)
    os.rename(aside, folder)
    sync(root)
    return manifest


def versions(root: Path) -> list[int]:
    """Versions on disk, oldest first."""
    return sorted(
        int(p.name.removeprefix(_PREFIX)) for p in root.glob(f"{_PREFIX}[0-9]*") if (p / CONFIG_FILE).is_file()
    )


def prune(root: Path, *, keep: int, applied: Iterable[int]) -> list[int]:
    """Deletes old versions and returns which: never 0, the newest `keep`, or one not older than what every generator
    has (`applied`: the version each living generator has; one that has none yet starts at the newest)."""
    there = versions(root)
    floor = min(applied, default=there[-1] if there else 0)
    gone = [version for version in there[:-keep] if version > 0 and version < floor]
    for version in gone:
        shutil.rmtree(folder_of(root, version))
    return gone
