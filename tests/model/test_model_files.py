"""Model folders: written whole or not at all, read with every name and shape checked."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from spade_actors.model import files
from spade_actors.model.config import ModelConfig, ModelFormatError
from spade_actors.model.qwen3 import Qwen3

SMALL = ModelConfig(vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=1, head_dim=8)


def test_a_saved_model_loads_with_the_same_weights(tmp_path):
    model = Qwen3(SMALL, seed=3)
    (tmp_path / "tokenizer.json").write_text("{}")
    folder = files.save(model, tmp_path / "v1", extra=[tmp_path / "tokenizer.json"])
    again = files.load(folder)
    assert again.config == SMALL
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value.bfloat16().float()), name
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.json", "v1"]


def test_a_published_folder_is_never_overwritten(tmp_path):
    files.save(Qwen3(SMALL), tmp_path / "v1", sync=False)
    with pytest.raises(FileExistsError):
        files.save(Qwen3(SMALL, seed=1), tmp_path / "v1")


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.save(Qwen3(SMALL), tmp_path / "v1", extra=[tmp_path / "missing"])
    assert list(tmp_path.iterdir()) == []


def test_load_into_keeps_the_parameter_objects(tmp_path):
    folder = files.save(Qwen3(SMALL, seed=5), tmp_path / "v1", dtype=torch.float32)
    model = Qwen3(SMALL, seed=6)
    before = list(model.parameters())
    files.load_into(model, folder)
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    assert torch.equal(model.model.embed_tokens.weight, Qwen3(SMALL, seed=5).model.embed_tokens.weight)


@pytest.mark.parametrize("fault", ["missing", "unknown", "shape", "garbage", "absent"])
def test_a_bad_file_changes_nothing_and_is_named(tmp_path, fault):
    folder = files.save(Qwen3(SMALL, seed=5), tmp_path / "v1")
    path = folder / files.WEIGHTS_FILE
    tensors = load_file(path)
    if fault == "missing":
        del tensors["model.norm.weight"]
    elif fault == "unknown":
        tensors["model.extra"] = torch.zeros(1)
    elif fault == "shape":
        tensors["model.norm.weight"] = torch.zeros(3)
    path.unlink()
    if fault == "garbage":
        path.write_bytes(b"not weights")
    elif fault != "absent":
        save_file(tensors, path)
    says = {
        "missing": r"model\.norm\.weight is missing",
        "unknown": "unknown tensor model.extra",
        "shape": r"shape \(3,\), expected \(16,\)",
        "garbage": "not a readable safetensors",
        "absent": "no weights found",
    }
    model = Qwen3(SMALL, seed=6)
    with pytest.raises(ModelFormatError, match=says[fault]):
        files.load_into(model, folder)
    assert torch.equal(model.model.embed_tokens.weight, Qwen3(SMALL, seed=6).model.embed_tokens.weight)
