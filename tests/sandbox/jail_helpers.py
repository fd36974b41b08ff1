"""Environments and a way to run a coroutine with a provider, shared by the sandbox's tests."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Awaitable, Callable

import pytest
import trio

from spade_sandbox import JailLimits, NsjailProvider, ensure_rootfs, probe

_PROBE = probe(ensure_rootfs())
needs_jails = pytest.mark.skipif(not _PROBE.works, reason=f"no jails here: {_PROBE.why_not}")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")

LIMITS = JailLimits(step_s=1.5, load_s=3.0, cpu_s=3, memory_mb=64, output_bytes=20_000, reply_bytes=60_000)

GUESS = '''
class GuessEnv:
    """Find a hidden number."""

    def __init__(self, max_turns=12):
        self.max_turns = max_turns
        self.reset()

    def reset(self, seed=None):
        self.n = random.Random(seed).randint(1, 100)
        self.turn = 0
        return "Guess a number between 1 and 100 with \\\\boxed{n}.", {"turn": 0}

    def step(self, action):
        self.turn += 1
        out = self.turn >= self.max_turns
        found = re.search(r"\\\\boxed\\{(\\d+)\\}", action)
        if not found:
            return "Write \\\\boxed{n}.", 0.0, False, out, {}
        guess = int(found.group(1))
        if guess == self.n:
            return "Right.", 1.0, True, False, {}
        return "higher" if guess < self.n else "lower", 0.0, False, out, {"turn": self.turn}

    def solution(self):
        return str(self.n)
'''


def env(reset: str = "return 'start ' + str(seed), {}", step: str = "", head: str = "", init: str = "") -> str:
    """An environment of given bodies; by default it shows its seed, counts turns and ends after three."""
    step = step or 'self.turn += 1\nreturn f"turn {self.turn}", 0.0, False, self.turn >= 3, {}'
    shape = (
        "{head}\nclass TestedEnv:\n    def __init__(self):\n{init}\n"
        "    def reset(self, seed=None):\n        self.seed, self.turn = seed, 0\n{reset}\n    def step(self, action):\n{step}\n"
    )
    inner = {"reset": reset, "step": step, "init": init or "pass"}
    return shape.format(head=head, **{name: textwrap.indent(body, " " * 8) for name, body in inner.items()})


def with_provider(
    body: Callable[[NsjailProvider], Awaitable[None]], limits: JailLimits = LIMITS, **options: object
) -> None:
    """Run `body` with a provider that starts jails only on demand, for at most a minute."""

    async def main() -> None:
        with trio.fail_after(60):
            async with NsjailProvider(limits, **({"warm": 0, "twins": 0} | options)) as provider:  # type: ignore[arg-type]
                await body(provider)

    trio.run(main)
