"""Says which sampled sources are valid environments, without running any of them in this process."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

WORKER = Path(__file__).with_name("check_worker.py")


def check(sources: Sequence[str], timeout: float = 300.0) -> list[str]:
    """One verdict per source, in order: "ok", or why it is not valid.

    Parses, keeps the contract, ends by its turn budget, is deterministic, depends on the seed, pays 0 to 1. Raises
    RuntimeError if the worker dies or takes longer than `timeout` seconds for all.
    """
    lines = "".join(json.dumps(source) + "\n" for source in sources)
    command = [sys.executable, "-I", str(WORKER)]
    try:
        done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"checking {len(sources)} sources took over {timeout:.0f} s") from None
    verdicts = [str(json.loads(line)) for line in done.stdout.splitlines()]
    if len(verdicts) != len(sources):
        raise RuntimeError(f"checker ended after {len(verdicts)} of {len(sources)} sources: {done.stderr[-200:]}")
    return verdicts
