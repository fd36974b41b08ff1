"""Starting and continuing: the run folder as a trainer that stands where the last checkpoint left it. Blocking.

Always holds: version 0 is the base model as published, and the frozen reference of every later start; without a
checkpoint training starts from it.
"""

import shutil
from pathlib import Path
from typing import NamedTuple

import torch

from spade_actors.config.paths import model_folder
from spade_actors.config.schema import Config
from spade_actors.learner import checkpoint, publish
from spade_actors.learner.trainer import Trainer
from spade_actors.model import files
from spade_actors.model.allocator import keep_freed_memory

WEIGHTS = "weights"
CHECKPOINTS = "checkpoints"


class Opened(NamedTuple):
    """A trainer and the checkpoint it stands at; `meta` is None at the very start."""

    trainer: Trainer
    meta: checkpoint.Meta | None
    base: Path


def open_run(run_dir: Path, config: Config, *, published: bool) -> Opened:
    """Loads the newest checkpoint, or the base model. `published`: the journal has a weight version already.

    Raises:
        ModelFormatError: the base model cannot be used.
        CheckpointError: the newest checkpoint cannot be read.
    """
    torch.set_num_threads(config.learner.threads)
    keep_freed_memory()
    base, weights = model_folder(config), run_dir / WEIGHTS
    initial = publish.folder_of(weights, 0)
    if not published:
        publish.write(weights, files.load(base), base, version=0, step=0, parent=-1)
    for unfinished in weights.glob(".*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    root = run_dir / CHECKPOINTS
    checkpoint.prune(root, config.learner.keep_last)
    trainer = Trainer(files.load(initial), files.load(initial), config.learner, config.run.seed)
    steps = checkpoint.steps(root)
    if not steps:
        return Opened(trainer, None, base)
    meta, tensors = checkpoint.read(root, steps[-1])
    trainer.restore(tensors)
    return Opened(trainer, meta, base)
