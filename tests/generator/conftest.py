"""Two versions of a small model on disk, and engines over them."""

import pytest
import torch
from embedded_model import CONFIG, lively

from spade_actors.generator.embedded.engine import Engine
from spade_actors.generator.embedded.weights import Weights
from spade_actors.model.files import load, save


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Two versions of one model, float32."""
    root = tmp_path_factory.mktemp("models")
    return [save(lively(seed), root / f"v{seed}", dtype=torch.float32, sync=False) for seed in (1, 2)]


@pytest.fixture(scope="session")
def model(folders):
    return load(folders[0])


@pytest.fixture
def engine_of(folders):
    def build(**options):
        weights = Weights(CONFIG)
        weights.load(folders[0])
        return Engine(weights, weight_version="1", **({"slots": 8, "max_len": 128} | options))

    return build
