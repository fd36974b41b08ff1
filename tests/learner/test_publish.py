"""Published versions: whole, loadable, pruned only when nobody needs them."""

import hashlib

import msgspec
import torch

from spade_actors.learner import publish
from spade_actors.model import files
from tests.learner.samples import model


def test_a_version_is_a_model_folder_with_a_manifest(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    (base / "tokenizer.json").write_text("{}")
    net = model()
    manifest = publish.write(tmp_path / "weights", net, base, version=12, step=9, parent=10)
    folder = publish.folder_of(tmp_path / "weights", 12)
    assert (folder / "tokenizer.json").read_text() == "{}"
    assert manifest.sha256 == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert msgspec.json.decode((folder / publish.MANIFEST).read_bytes(), type=publish.Manifest) == manifest
    loaded = files.load(folder)
    for ours, theirs in zip(net.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(ours.detach().bfloat16().float(), theirs)


def test_a_version_without_event_can_be_written_again(tmp_path):
    for _ in range(2):
        publish.write(tmp_path, model(), tmp_path, version=1, step=1, parent=0)
    assert publish.versions(tmp_path) == [1]


def test_prune_keeps_zero_the_newest_and_what_a_generator_may_read(tmp_path):
    for version in range(8):
        publish.write(tmp_path, model(), tmp_path, version=version, step=version, parent=version - 1)
    assert publish.prune(tmp_path, keep=2, applied=[3, 7]) == [1, 2]
    assert publish.prune(tmp_path, keep=2, applied=[7]) == [3, 4, 5]
    assert publish.versions(tmp_path) == [0, 6, 7]
    assert publish.prune(tmp_path, keep=2, applied=[]) == []
