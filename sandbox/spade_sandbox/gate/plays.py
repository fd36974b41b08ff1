"""The gate's own players: fixed scripts that need no model.

Actions are boxed where the source speaks of boxes, bare elsewhere. A script's actions depend only on what it was shown
(and on the turn), never on the seed: two seeds that are played alike and answer alike are alike.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import trio

from ..errors import EnvironmentFailure
from ..provider import Environment
from ..replies import Inspection, Step
from .record import Trace, Turn
from .verdict import GateSettings

Script = Callable[[int, str, str], str]  # (turn, first observation, last observation) -> action

_NUMBER = re.compile(r"(?<![\w.])\d{1,6}(?!\w)")
_WORD = re.compile(r"[A-Za-z0-9_]+")
_MIXED: tuple[str, ...] = (  # sent as they are
    *(
        r"\boxed{1}",
        r"\boxed{test}",
        "",
        r"\boxed{42}",
        "\u00fcn\u00ef\u4e2d\U0001f3b2 \\boxed{\u00e9}",
        "help",
        r"\boxed{a b}",
    ),
    *(r"\boxed{-1}", r"\boxed{}", "x" * 3000, r"\boxed{up}", r"\boxed{0,0}", r"\boxed{yes}", "\x00\n\t"),
)


def _mixed(turn: int, first: str, last: str) -> str:
    """Well-formed, malformed, empty, long and non-ASCII actions."""
    return _MIXED[turn % len(_MIXED)]


def _empty(turn: int, first: str, last: str) -> str:
    return ""


def _random(turn: int, first: str, last: str) -> str:
    """A word or number: half the time one that the environment has just shown."""
    source = random.Random(f"{turn} {first} {last}")
    words: list[str] = _WORD.findall(last)[-200:]
    return source.choice(words) if words and source.random() < 0.5 else str(source.randint(0, 20))


def _probe(turn: int, first: str, last: str) -> str:
    """Sweeps what the first observation offers, numbers over the range it names and words, to tell seeds apart."""
    words: list[str] = list(dict.fromkeys(_WORD.findall(last)))
    if turn % 3 == 2 and words:
        return words[-1 - turn // 3 % len(words)]
    numbers = [int(n) for n in _NUMBER.findall(first)]
    low, high = (min(numbers), max(numbers)) if len(set(numbers)) > 1 else (0, 100)
    return str(low + round((high - low) * _FRACTIONS[turn % len(_FRACTIONS)]))


def _echo(turn: int, first: str, last: str) -> str:
    return last[:400]


def _flood(turn: int, first: str, last: str) -> str:
    """Every answer at once: wins where a verifier looks for the answer anywhere in the action."""
    return f"{_FLOOD} {' '.join(dict.fromkeys(_WORD.findall(first)[:200]))}"


_FRACTIONS = (0.5, 0.25, 0.75, 0.1, 0.9, 0.4, 0.6, 0.0, 1.0, 0.33, 0.67)
_FLOOD = " ".join(
    (
        *map(str, range(101)),
        *"abcdefghijklmnopqrstuvwxyz",
        *("yes", "no", "true", "false", "left", "right", "up", "down"),
    )
)
SCRIPTS: dict[str, Script] = {
    "mixed": _mixed,
    "probe": _probe,
    "empty": _empty,
    "random": _random,
    "echo": _echo,
    "flood": _flood,
}
TRIVIAL = ("empty", "random", "echo", "flood")


async def play(
    environment: Environment,
    policy: str,
    seed: int,
    max_turns: int,
    settings: GateSettings,
    *,
    thorough: bool = False,
) -> Trace:
    """Play one episode and say what happened; `thorough` also acts once after the end and asks for the solution.

    An environment's failure is part of the trace; an infrastructure failure is raised.
    """
    script = SCRIPTS[policy]
    boxed = policy not in ("mixed", "empty") and r"\boxed" in environment.source
    try:
        session, reset = await environment.open(seed, max_turns=max_turns, timeout=settings.load_s)
    except EnvironmentFailure as error:
        return Trace(policy, seed, environment.hash_class, failure=error)
    turns: list[Turn] = []
    failure: EnvironmentFailure | None = None
    after: EnvironmentFailure | None = None
    inspection: Inspection | None = None
    try:
        last = first = reset.observation
        budget = min(reset.max_turns or max_turns, max_turns)
        step: Step | None = None
        try:
            for turn in range(budget):
                action = script(turn, first, last)
                if boxed:
                    action = f"\\boxed{{{action}}}"
                started = trio.current_time()
                step = await session.step(action, timeout=settings.step_s)
                turns.append(Turn(action, step, trio.current_time() - started))
                last = step.observation
                if step.terminated or step.truncated:
                    break
        except EnvironmentFailure as error:
            failure = error
        if thorough and failure is None:
            try:
                inspection = await session.inspect(timeout=settings.step_s)
                if step is not None and (step.terminated or step.truncated):
                    await session.step("1", timeout=settings.step_s)
            except EnvironmentFailure as error:
                after = error
    finally:
        session.close()
    return Trace(policy, seed, environment.hash_class, reset, tuple(turns), failure, after, inspection)
