"""Model folders on disk: ``config.json`` and safetensors weights, as transformers and SGLang read them.

Always holds: a folder appears whole or not at all (written aside, synced, renamed), and a read checks every name and
shape before any parameter of a live model changes.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from spade_actors.model.config import CONFIG_FILE, ModelConfig, ModelFormatError
from spade_actors.model.qwen3 import Qwen3

WEIGHTS_FILE = "model.safetensors"


def save(
    model: Qwen3,
    folder: Path | str,
    *,
    dtype: torch.dtype = torch.bfloat16,
    extra: Iterable[Path] = (),
    sync: bool = True,
) -> Path:
    """Write the model to a new ``folder`` and return it.

    ``extra`` files (a tokenizer, say) are copied in.  ``sync=False`` skips the fsyncs, for folders that need not
    outlive the machine.  Raises ``FileExistsError`` when ``folder`` exists: a published version is never changed.
    """
    return write(model.config, model.state_dict(), folder, dtype=dtype, extra=extra, sync=sync)


def write(
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    folder: Path | str,
    *,
    dtype: torch.dtype = torch.bfloat16,
    extra: Iterable[Path] = (),
    sync: bool = True,
) -> Path:
    """As ``save``, from a state dict (a snapshot taken earlier, so that training can go on while a thread writes)."""
    folder = Path(folder)
    if folder.exists():
        raise FileExistsError(f"{folder}: exists already; expected a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        tensors = {name: value.detach().to("cpu", dtype).contiguous() for name, value in weights.items()}
        save_file(tensors, str(aside / WEIGHTS_FILE), metadata={"format": "pt"})
        text = json.dumps(config.to_hf(dtype=str(dtype).removeprefix("torch.")), indent=2) + "\n"
        (aside / CONFIG_FILE).write_text(text, encoding="utf-8")
        for path in extra:
            shutil.copyfile(path, aside / Path(path).name)
        aside.chmod(0o755)
        if sync:
            for path in aside.iterdir():
                _sync(path)
            _sync(aside)
        os.rename(aside, folder)
        if sync:
            _sync(folder.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return folder


def read_weights(path: Path | str, config: ModelConfig, *, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Every tensor of a model folder (or of one safetensors file), checked against ``config`` and cast to ``dtype``.

    Raises ``ModelFormatError`` naming the first missing, unknown or misshapen tensor.
    """
    path = Path(path)
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise ModelFormatError(f"{path}: no weights found; expected a model folder or a .safetensors file")
    found: dict[str, Tensor] = {}
    for file in files:
        try:
            found |= load_file(str(file))
        except (SafetensorError, OSError) as error:
            raise ModelFormatError(f"{file}: not a readable safetensors file ({error})") from None
    expected = config.weight_shapes()
    if config.tie_word_embeddings:
        found.pop("lm_head.weight", None)
    for name, shape in expected.items():
        if name not in found:
            raise ModelFormatError(f"{path}: tensor {name} is missing")
        if tuple(found[name].shape) != shape:
            raise ModelFormatError(f"{path}: tensor {name} has shape {tuple(found[name].shape)}, expected {shape}")
    unknown = sorted(found.keys() - expected.keys())
    if unknown:
        raise ModelFormatError(f"{path}: unknown tensor {unknown[0]}; expected only those of a Qwen3 model")
    return {name: found[name].to(dtype) for name in expected}


def load(folder: Path | str, *, dtype: torch.dtype = torch.float32) -> Qwen3:
    """A new model from a folder; raises ``ModelFormatError``."""
    model = Qwen3(ModelConfig.read(folder)).to(dtype)
    load_into(model, folder)
    return model


def load_into(model: Qwen3, path: Path | str) -> None:
    """Replace a live model's weights in place, all or, on ``ModelFormatError``, none; optimizers keep working."""
    weights = read_weights(path, model.config, dtype=next(model.parameters()).dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
