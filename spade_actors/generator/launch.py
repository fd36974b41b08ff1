"""The command line of a server of each kind. Pure: looks at nothing outside its arguments.

A new kind: add its name to `GeneratorConfig.kind` and a branch to `launch`.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from spade_actors.config.schema import GeneratorConfig


class Launch(NamedTuple):
    """How a server is started; `{fd}` in the command stands for the descriptor of its death pipe."""

    command: list[str]
    environment: dict[str, str]
    announces_port: bool
    """it prints `{"port": N}` on stdout; otherwise it listens on the port it was given"""


def launch(config: GeneratorConfig, model: Path, version: int, port: int, environment: Mapping[str, str]) -> Launch:
    """The start of a server with the weights in `model`, which are `version`. `port` 0: its own choice, where it can.

    Raises ValueError for a kind that starts no server.
    """
    threads = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(config.threads)}
    if config.kind == "embedded":
        command = [
            *(sys.executable, "-m", "spade_actors.generator.embedded"),
            *("--model", str(model), "--weight-version", str(version), "--port", str(port)),
            *("--slots", str(config.slots), "--max-len", str(config.max_len), "--threads", str(config.threads)),
            *("--parent-death-fd", "{fd}"),
        ]
        return Launch(command, {**environment, **threads}, True)
    if config.kind == "sglang":
        python = config.python or sys.executable
        command = [
            *(sys.executable, str(Path(__file__).with_name("deathwatch.py")), "{fd}"),
            *(python, "-m", "sglang.launch_server", "--model-path", str(model), "--weight-version", str(version)),
            *("--host", "127.0.0.1", "--port", str(port)),
            *config.arguments,
        ]
        passive = {"OMP_WAIT_POLICY": "passive"}
        if config.python and os.path.isabs(config.python):
            # SGLang starts helpers of its own environment by name.
            passive["PATH"] = f"{Path(config.python).parent}{os.pathsep}{environment.get('PATH', '')}"
        if "cpu" in config.arguments:
            # `--device cpu` alone is not enough: SGLang reads this one before its arguments.
            passive["SGLANG_USE_CPU_ENGINE"] = "1"
        return Launch(command, {**environment, **passive}, False)
    raise ValueError(f"generator.kind = {config.kind!r}: starts no server; expected 'embedded' or 'sglang'")
