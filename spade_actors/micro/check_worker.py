"""Runs untrusted environment sources, one forked and limited child each; started as a script by `check`, alone.

Reads JSON strings (one source per line) from stdin, writes one verdict per line to stdout: "ok" or a reason. Only the
standard library, since it runs isolated. It keeps honest mistakes apart (loops, memory, exceptions); it is no jail.
"""

import json
import math
import os
import random
import resource
import signal
import sys
from typing import Any

ACTIONS = ("", "a", "7", "12", "34", "up", "left", "red", "mix", "send 7", "a b c", "1", "2", "x" * 3000)


def find(space: dict[str, Any]) -> Any:
    """The first class whose name ends in Env; raises ValueError."""
    for name, value in space.items():
        if isinstance(value, type) and name.endswith("Env") and name != "Env":
            return value
    raise ValueError("no class")


def play(make: Any, seed: int) -> list[Any]:
    """The trace of one scripted episode; raises ValueError on a broken contract."""
    env = make()
    budget = env.max_turns
    if type(budget) is not int or not 1 <= budget <= 20:
        raise ValueError("max_turns")
    obs, info = env.reset(seed)
    if type(obs) is not str or not obs.strip() or type(info) is not dict:
        raise ValueError("reset")
    pick = random.Random(7)
    trace: list[Any] = [obs]
    for _ in range(budget):
        obs, reward, terminated, truncated, info = env.step(pick.choice(ACTIONS))
        if type(obs) is not str or not obs.strip() or type(terminated) is not bool or type(truncated) is not bool:
            raise ValueError("step")
        if type(reward) not in (int, float) or not math.isfinite(reward) or not 0 <= reward <= 1:
            raise ValueError("reward")
        trace.append((obs, reward, terminated, truncated))
        if terminated or truncated:
            return trace
    raise ValueError("no end")


def verdict(source: str) -> str:
    """ "ok" or a reason; catches everything, since a candidate may raise anything, SystemExit too."""
    try:
        space: dict[str, Any] = {"__name__": "candidate"}
        exec(compile(source, "<candidate>", "exec"), space)
        make = find(space)
        traces = [play(make, seed) for seed in range(6)]
        if traces != [play(make, seed) for seed in range(6)]:
            return "not deterministic"
        return "ok" if len({str(trace) for trace in traces}) > 1 else "seed has no effect"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:200]


def limited(source: str) -> str:
    """Runs one source in a child: 2 s of CPU, 1 GiB, no files, no further processes, never as root."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(5)
        for what, most in (
            (resource.RLIMIT_CPU, 2),
            (resource.RLIMIT_AS, 1 << 30),
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_NPROC, 0),
        ):
            resource.setrlimit(what, (most, most))
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.write(writer, verdict(source).encode("utf-8", "replace"))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read(1000).decode("utf-8", "replace")
    os.waitpid(child, 0)
    return text or "killed"


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(limited(json.loads(line))) + "\n")
        sys.stdout.flush()
