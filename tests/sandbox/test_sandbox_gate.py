"""The gate in real jails: each check has an environment that it must refuse, and a near miss that must pass."""

from __future__ import annotations

import pytest
import trio
import trio.lowlevel
from jail_helpers import GUESS, JailLimits, env, needs_jails, with_provider

from spade_sandbox import Fault, InfrastructureFailure, gate
from spade_sandbox.gate import Check, GateSettings

pytestmark = needs_jails

SHOWN = "start {seed}"
DRAW = "self.n = random.Random(seed).randint(1, 1000)\nreturn f'the number is near {self.n // 10}', {}"


def steps(body: str) -> str:
    return "self.turn += 1\n" + body


# check: {name: source}
FAULTY: dict[Check, dict[str, str]] = {
    Check.PARSE: {"syntax": "class XEnv\n pass", "indentation": "class XEnv:\n  a = 1\n b = 2"},
    Check.CONTRACT: {
        "four results": env(step=steps("return 'x', 0.0, self.turn > 2, {}")),
        "int flags": env(step=steps("return 'x', 0.0, int(self.turn > 2), 0, {}")),
        "no step": "class HalfEnv:\n    def reset(self, seed=None): return 'x', {}",
        "reset without seed": env().replace("seed=None", ""),
        "empty observation": env(reset="return '', {}"),
        "late None": env(step=steps("return None if self.turn > 1 else 'x', 0.0, self.turn > 2, False, {}")),
    },
    Check.RUNTIME: {
        "raises at once": env(step="raise ValueError('no')"),
        "raises on empty": env(step=steps("return action[0], 0.0, False, self.turn > 2, {}")),
        "raises on words": env(
            step=steps("int(action.strip('\\\\boxed{}'))\nreturn 'x', 0.0, False, self.turn > 2, {}")
        ),
        "raises on long actions": env(
            step=steps("assert len(action) < 999\nreturn 'x', 0.0, False, self.turn > 11, {}")
        ),
        "raises after the end": env(step=steps("return 'abc'[self.turn - 1], 0.0, False, self.turn >= 3, {}")),
        "raises on one seed": env(
            reset="assert seed != 37\n" + DRAW,
        ),
        "missing package": env(head="import pandas"),
        "module raises": env(head="1 / 0"),
        "exits": env(step="import sys; sys.exit()"),
        "reads the terminal": env(step="input()"),
        "writes a file": env(reset="open('/tmp/memory', 'w').write('x')\nreturn 'x', {}"),
    },
    Check.RESOURCE: {
        "loops": env(step="while True: pass"),
        "eats memory": env(step="x = [0] * 10**9"),
        "floods the output": env(step="print('x' * 300_000)"),
        "sleeps": env(step=steps("import time; time.sleep(0.4)\nreturn 'x', 0.0, False, self.turn > 1, {}")),
        "huge observation": env(reset="return 'x' * 70_000, {}"),
    },
    Check.TERMINATION: {
        "never ends": env(step=steps("return 'x', 0.0, False, False, {}")),
        "ends one turn late": env(step=steps("return 'x', 0.0, False, self.turn > 14, {}")),
        "ends for some": env(step=steps("return 'x', 0.0, False, bool(action) and self.turn > 4, {}")),
        "ignores its own max_turns": env(
            init="self.max_turns = 5", step=steps("return 'x', 0.0, False, self.turn >= 9, {}")
        ),
    },
    Check.REWARD: {
        "NaN": env(step=steps("return 'x', float('nan'), True, False, {}")),
        "out of range": env(step=steps("return 'x', 11.0, False, self.turn > 2, {}")),
        "infinite at the end": env(
            step=steps("return 'x', float('inf') if self.turn > 2 else 0, False, self.turn > 2, {}")
        ),
    },
    Check.DETERMINISM: {
        "module random": env(reset="return f'draw {random.random()}', {}"),
        "the clock": env(head="import time", reset="return f'at {time.time_ns()}', {}"),
        "hash order": env(reset="return ' '.join({'a' + str(n) for n in range(seed % 9 + 8)}), {}"),
        "identity": env(step=steps("return str(id(object()) // 16 % 100_003), 0.0, False, self.turn > 2, {}")),
        "hash order in info": env(reset="return str(seed), {'order': list({'a' + str(n) for n in range(9)})}"),
        "process id": env(head="import os", reset="return f'{seed} {hash(str(seed)) % 1000} {os.getpid()}', {}"),
    },
    Check.SEED_SENSITIVITY: {
        "ignores the seed": env(reset="return 'always the same', {}"),
        "seeds by a constant": env(reset="random.seed(7)\nreturn str(random.random()), {}"),
    },
    Check.TRIVIAL_POLICY: {
        "always wins": env(step=steps("return 'won', 1.0, True, False, {}")),
        "wins by waiting": env(step=steps("return 'x', float(self.turn > 3), self.turn > 3, False, {}")),
        "wins by echo": env(
            reset="self.word = 'w' + str(seed)\nreturn 'say ' + self.word, {}",
            step=steps("won = self.word in action\nreturn 'x', float(won), won, self.turn > 3, {}"),
        ),
        "wins by flood": env(
            reset=DRAW + "\n",
            step=steps("won = str(self.n % 50) in action.split()\nreturn 'x', float(won), won, self.turn > 3, {}"),
        ),
    },
    Check.LEAK: {
        "told in info": GUESS.replace('{"turn": 0}', '{"turn": 0, "secret": self.n + 100}').replace(
            "str(self.n)", "str(self.n + 100)"
        ),
        "told in words": GUESS.replace('return "Guess', 'return f"The answer is {self.n + 100}. " "Guess').replace(
            "str(self.n)", "str(self.n + 100)"
        ),
    },
}
NEAR: dict[str, str] = {
    "guessing": GUESS,
    "reward at the edge": env(step=steps("return 'x', -10.0, False, self.turn > 2, {}")),
    "bool and int rewards": env(step=steps("return 'x', False if self.turn < 2 else -1, False, self.turn > 2, {}")),
    "ends on its last turn": env(step=steps("return 'x', 0.0, False, self.turn >= 14, {}")),
    "ends on its own last turn": env(
        init="self.max_turns = 5", step=steps("return 'x', 0.0, False, self.turn >= 5, {}")
    ),
    "says so after the end": env(
        step=steps(
            "if self.turn > 3:\n    return 'over', 0.0, True, False, {}\nreturn 'abc'[self.turn - 1], 0.0, False, self.turn == 3, {}"
        )
    ),
    "prints a little": env(step=steps("print(action)\nreturn 'x', 0.0, False, self.turn > 2, {}")),
    "sorted sets": env(reset="return ' '.join(sorted({'a' + str(n) for n in range(seed % 9 + 8)})), {}"),
    "set in info": env(reset="return str(seed), {'order': {'a' + str(n) for n in range(9)}}"),
    "seeds the module's random": env(reset="random.seed(seed)\nreturn str(random.random()), {}"),
    "differs only in what actions do": env(
        reset="self.n = random.Random(seed).randint(0, 100)\nreturn 'guess', {}",
        step=steps("return ('low', 'high')[action == '50' and self.n > 50], 0.0, False, self.turn > 9, {}"),
    ),
    "differs only in the solution": env(reset="self.n = seed\nreturn 'guess a long word', {}")
    + "    def solution(self):\n        return 'word' + str(self.n)\n",
    "wins one play in two": env(
        reset="self.n = seed\nreturn 'x' + str(seed), {}",
        step=steps("return 'x', float(self.n in (11, 23)), True, False, {}"),
    ),
    "options hold the answer": GUESS.replace('return "Guess', 'return f"One of {self.n + 100}, 7, 8. " "Guess').replace(
        "str(self.n)", "str(self.n + 100)"
    ),
    "partial rewards on the way": env(step=steps("return 'x', 0.3, False, self.turn > 3, {}")).replace(
        "0.3", "0.3 if self.turn < 4 else 0.0"
    ),
}


@pytest.fixture(scope="module")
def reports():
    """Every environment through the gate once, some at the same time."""
    found = {}
    sources = {name: source for group in FAULTY.values() for name, source in group.items()} | NEAR

    async def body(provider):
        limiter = trio.CapacityLimiter(3)

        async def judge(name, source):
            async with limiter:
                found[name] = await gate.run(provider, source, settings=GateSettings(step_s=1.5, slow_step_s=0.35))

        async with trio.open_nursery() as nursery:
            for name, source in sources.items():
                nursery.start_soon(judge, name, source)

    with_provider(body, JailLimits(memory_mb=64), keep_idle=0)
    return found


@pytest.mark.parametrize(("check", "name"), [(check, name) for check, group in FAULTY.items() for name in group])
def test_refused_by_the_right_check(check: Check, name: str, reports) -> None:
    report = reports[name]
    assert not report.admitted
    assert report.failed == (check,), report.reason
    assert report.reason.startswith(check.value)
    assert report.verdicts[-1].check is check


@pytest.mark.parametrize("name", NEAR)
def test_near_misses_are_admitted(name: str, reports) -> None:
    report = reports[name]
    assert report.admitted, report.reason
    assert report.failed == ()


def test_all_checks_go_on_after_a_failure() -> None:
    source = env(reset="return 'always the same', {}", step=steps("return 'won', 1.0, True, False, {}"))

    async def body(provider):
        report = await gate.run(provider, source, all_checks=True)
        assert report.failed == (Check.SEED_SENSITIVITY, Check.TRIVIAL_POLICY)
        assert [verdict.check for verdict in report.verdicts] == list(Check)

    with_provider(body)


def test_a_report_names_the_environment() -> None:
    async def body(provider):
        report = await gate.run(provider, GUESS, "Halve the range each turn.")
        assert (report.class_name, report.title, report.max_turns) == ("GuessEnv", "Find a hidden number.", 12)
        assert report.first_observation.startswith("Guess a number")
        other = await gate.run(provider, "# another comment\n" + GUESS.replace("Find a", "Seek the"))
        assert (report.shape_hash, report.trace_hash) == (other.shape_hash, other.trace_hash)
        assert report.source_hash != other.source_hash
        changed = await gate.run(provider, GUESS.replace('"lower"', '"below"'))
        assert report.shape_hash != changed.shape_hash
        assert report.trace_hash != changed.trace_hash

    with_provider(body)


@pytest.mark.parametrize(
    ("hint", "admitted"),
    [("The number is 58.", True), ("Say word11, word23, word37 or word41.", False), ("Say a word.", True)],
)
def test_hints(hint: str, admitted: bool) -> None:
    source = (
        env(reset="self.n = seed\nreturn f'seed {seed}', {}")
        + "    def solution(self):\n        return 'word' + str(self.n)\n"
    )

    async def body(provider):
        report = await gate.run(provider, source, hint)
        assert report.admitted is admitted, report.reason
        assert report.failed == (() if admitted else (Check.HINT_LEAK,))

    with_provider(body)


def test_a_known_twin_is_refused_before_it_is_played() -> None:
    asked = []

    async def archive(source, facts):
        asked.append(facts.class_name)
        return "env-7"

    async def body(provider):
        report = await gate.run(provider, GUESS, duplicate=archive)
        assert report.failed == (Check.DUPLICATE,)
        assert report.reason == "duplicate: is a duplicate of env-7"
        assert provider.stats().sessions_total == 1  # the one that compiled
        assert asked == ["GuessEnv"]

    with_provider(body)


def test_a_lost_jail_is_raised_and_not_judged() -> None:
    async def body(provider):
        async with trio.open_nursery() as nursery:

            async def saboteur():
                while provider.stats().sessions_total < 8:
                    await trio.lowlevel.checkpoint()
                for jail in list(provider.pool.jails):
                    jail.kill()

            nursery.start_soon(saboteur)
            with pytest.raises(InfrastructureFailure):
                await gate.run(provider, GUESS)

    with_provider(body)


def test_an_unreachable_archive_admits_nothing() -> None:
    async def archive(source, facts):
        raise InfrastructureFailure(Fault.LATE, "no answer")

    async def body(provider):
        with pytest.raises(InfrastructureFailure):
            await gate.run(provider, GUESS, duplicate=archive)

    with_provider(body)
