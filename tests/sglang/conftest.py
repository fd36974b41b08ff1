"""Servers to hold the contract against: the embedded one, and the real SGLang where its environment is given.

``SPADE_SGLANG_VENV`` names a virtual environment in which ``python -m sglang.launch_server`` runs on this machine.
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import torch

from spade_actors.model.config import ModelConfig
from spade_actors.model.files import load, save
from spade_actors.model.qwen3 import Qwen3

CONFIG = ModelConfig(num_hidden_layers=2, max_position_embeddings=512)
START_SECONDS = 240


def _version(seed, folder):
    model = Qwen3(CONFIG, seed=seed)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw) * 0.05)
    return save(model, folder, sync=False)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Two versions of one model, bfloat16 as published."""
    root = tmp_path_factory.mktemp("models")
    return [_version(seed, root / f"v{seed}") for seed in (1, 2)]


@pytest.fixture(scope="session")
def model(folders):
    """The first version as the learner sees it."""
    return load(folders[0])


def _embedded(folder):
    command = [sys.executable, "-m", "spade_actors.generator.embedded", "--model", str(folder), "--weight-version", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    return process, json.loads(process.stdout.readline())["port"]


def _sglang(folder, log):
    venv = os.environ.get("SPADE_SGLANG_VENV")
    if not venv or not (Path(venv) / "bin" / "python").exists():
        pytest.skip("set SPADE_SGLANG_VENV to a virtual environment in which python -m sglang.launch_server runs")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(Path(venv) / "bin" / "python"), "-m", "sglang.launch_server", "--model-path", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--weight-version", "1"]
    command += ["--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--grammar-backend", "none"]
    command += ["--disable-overlap-schedule", "--mem-fraction-static", "0.3", "--max-total-tokens", "20000"]
    command += ["--skip-tokenizer-init"]
    environment = os.environ | {"SGLANG_USE_CPU_ENGINE": "1", "OMP_WAIT_POLICY": "passive"}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health_generate", timeout=30).status_code == 200:
                return process, port
        except httpx.TransportError:
            time.sleep(0.5)
    process.kill()
    raise AssertionError(f"no health within {START_SECONDS} s: {log.read_text(errors='replace')[-4000:]}")


@pytest.fixture(scope="session", params=["embedded", "sglang"])
def server(request, folders, tmp_path_factory):
    """``url``, ``kind`` and ``tolerance`` (of log-probabilities: the real server computes in bfloat16)."""
    if request.param == "embedded":
        process, port = _embedded(folders[0])
    else:
        process, port = _sglang(folders[0], tmp_path_factory.mktemp("sglang") / "log")
    tolerance = 1e-4 if request.param == "embedded" else 0.15
    yield SimpleNamespace(url=f"http://127.0.0.1:{port}", kind=request.param, tolerance=tolerance)
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)
