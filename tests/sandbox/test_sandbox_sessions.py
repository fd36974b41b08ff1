"""Episodes in real jails: results, isolation, deadlines, cancellation."""

import pytest
import trio
import trio.testing
from jail_helpers import GUESS, LIMITS, env, needs_jails, with_provider

from spade_sandbox import EnvironmentFailure, InfrastructureFailure, JailLimits, ProcessProvider
from spade_sandbox.errors import Fault, SandboxSetupError

pytestmark = needs_jails


def test_an_episode_from_reset_to_the_end() -> None:
    async def body(provider):
        environment = await provider.environment(GUESS)
        assert (environment.facts.class_name, environment.facts.title) == ("GuessEnv", "Find a hidden number.")
        session, reset = await environment.open(7, max_turns=3)
        assert reset.observation == r"Guess a number between 1 and 100 with \boxed{n}."
        assert (reset.info, reset.max_turns) == ({"turn": 0}, 3)
        seen = [await session.step(r"\boxed{0}") for _ in range(3)]
        assert [step.observation for step in seen] == ["higher"] * 3
        assert [step.truncated for step in seen] == [False, False, True]
        assert seen[1].info == {"turn": 2}
        found = await session.inspect()
        last = await session.step(rf"\boxed{{{found.solution}}}")
        assert (last.observation, last.reward, last.terminated) == ("Right.", 1.0, True)
        session.close()
        session.close()

    with_provider(body)


def test_every_episode_starts_in_a_process_where_nothing_ran_before() -> None:
    source = env(
        head="import builtins\nSTATE = []",
        reset="STATE.append(1)\nbuiltins.mark = getattr(builtins, 'mark', 0) + 1\nreturn f'{len(STATE)} {builtins.mark}', {}",
    )

    async def body(provider):
        environment = await provider.environment(source)
        for _ in range(3):
            session, reset = await environment.open(1)
            assert reset.observation == "1 1"
            session.close()

    with_provider(body)
    with_provider(body, fresh="jail")


def test_python_random_is_not_inherited() -> None:
    async def body(provider):
        environment = await provider.environment(env(reset="return str(random.random()), {}"))
        drawn = set()
        for _ in range(4):
            session, reset = await environment.open(1)
            drawn.add(reset.observation)
            session.close()
        assert len(drawn) == 4

    with_provider(body)


def test_numpy_random_is_not_inherited() -> None:
    pytest.importorskip("numpy")

    async def body(provider):
        environment = await provider.environment(env(reset="return str(np.random.random()), {}"))
        drawn = {(await environment.open(1))[1].observation for _ in range(3)}
        assert len(drawn) == 3

    with_provider(body, JailLimits())


def test_one_source_one_jail_and_hash_classes_differ() -> None:
    source = env(reset="return str(hash('a word')), {}")

    async def body(provider):
        same = [await provider.environment(source) for _ in range(2)]
        assert same[0] is same[1]
        twin = await provider.environment(source, hash_class=1)
        other = await provider.environment(env())
        assert provider.stats().jails_total == 3
        seen = [(await e.open(1))[1].observation for e in (same[0], same[1], twin)]
        assert seen[0] == seen[1] != seen[2]
        for handle in (*same, twin, other):
            handle.close()
        assert (provider.stats().busy, provider.stats().idle) == (0, 3)

    with_provider(body)


def test_idle_jails_are_kept_and_then_let_go() -> None:
    async def body(provider):
        sources = [env(head=f"N = {n}") for n in range(3)]
        for source in sources:
            (await provider.environment(source)).close()
        assert provider.stats().idle == 2
        before = provider.stats().jails_total
        (await provider.environment(sources[2])).close()
        assert provider.stats().jails_total == before
        (await provider.environment(sources[0])).close()
        assert provider.stats().jails_total == before + 1

    with_provider(body, keep_idle=2)


def test_many_episodes_at_once_do_not_mix_their_answers() -> None:
    source = env(step="self.turn += 1\nreturn f'{self.seed} {action}', 0.5, False, False, {}")

    async def body(provider):
        environment = await provider.environment(source)

        async def one(seed):
            session, reset = await environment.open(seed)
            assert reset.observation == f"start {seed}"
            for turn in range(20):
                step = await session.step(f"act {turn}")
                assert step.observation == f"{seed} act {turn}"
            session.close()

        async with trio.open_nursery() as nursery:
            for seed in range(-20, 20):
                nursery.start_soon(one, seed)
        await _quiet(provider)
        assert provider.stats().sessions == 0

    with_provider(body)


def test_a_bare_string_and_tool_free_class_rules() -> None:
    helper = "class Env:\n    pass\nclass HelperEnv:\n    pass\n"

    async def body(provider):
        environment = await provider.environment(env(head=helper, reset="return 'bare'"))
        session, reset = await environment.open(3)
        assert (reset.observation, reset.info, reset.max_turns) == ("bare", {}, None)
        session.close()

    with_provider(body)


def test_dataclasses_annotations_and_published_names_work() -> None:
    head = "from dataclasses import dataclass, field\n@dataclass\nclass Item:\n    names: List[str] = field(default_factory=list)\n"
    reset = "q = deque([1]); c = Counter('aab'); x = deepcopy(Item(['a']))\nreturn f'{q[0]} {c[\"a\"]} {x.names} {math.pi:.2f}', {}"

    async def body(provider):
        environment = await provider.environment(env(head=head, reset=reset))
        _, reset_ = await environment.open(3)
        assert reset_.observation == "1 2 ['a'] 3.14"

    with_provider(body)


def test_numpy_is_there_when_named() -> None:
    pytest.importorskip("numpy")
    source = env(reset="return str(np.arange(4).sum()), {'n': np.int64(3)}")

    async def body(provider):
        environment = await provider.environment(source)
        _, reset = await environment.open(3)
        assert (reset.observation, reset.info) == ("6", {"n": 3})

    with_provider(body, JailLimits())


def test_info_of_odd_values_becomes_plain() -> None:
    info = "{'set': {'b', 'a'}, 3: (1, 2), 'nan': float('nan'), 'big': 2**70, 'obj': object(), 'deep': [[[[[[[[[1]]]]]]]]]}"

    async def body(provider):
        environment = await provider.environment(env(reset=f"return 'x', {info}"))
        _, reset = await environment.open(3)
        assert reset.info == {
            "set": ["a", "b"],
            "3": [1, 2],
            "nan": "nan",
            "big": "1180591620717411303424",
            "obj": "<object>",
            "deep": [[[[[[[["..."]]]]]]]],
        }

    with_provider(body)


def test_long_and_odd_actions_arrive() -> None:
    source = env(step="return f'{len(action)} {action[:3]}', 0.0, False, False, {}")

    async def body(provider):
        environment = await provider.environment(source)
        session, _ = await environment.open(1)
        assert (await session.step("\u00e4\U0001f3b2x" * 30_000)).observation == "90000 \u00e4\U0001f3b2x"
        assert (await session.step("a\ud800b")).observation == "3 a?b"
        assert (await session.step("")).observation == "0 "

    with_provider(body)


def test_a_deadline_in_the_past_opens_nothing() -> None:
    async def body(provider):
        environment = await provider.environment(env())
        with pytest.raises(InfrastructureFailure) as caught:
            await environment.open(1, deadline=trio.current_time() - 1)
        assert caught.value.fault is Fault.LATE
        await _quiet(provider)
        assert provider.stats().sessions == 0

    with_provider(body)


def test_cancelling_a_step_kills_the_episode_and_nothing_else() -> None:
    source = env(step="if action == 'hang':\n    while True: pass\nreturn 'ok', 0.0, False, False, {}")

    async def body(provider):
        environment = await provider.environment(source)
        session, _ = await environment.open(1)
        other, _ = await environment.open(2)
        with trio.move_on_after(0.2):
            await session.step("hang")
        with pytest.raises(InfrastructureFailure) as caught:
            await session.step("again")
        assert caught.value.fault is Fault.CLOSED
        assert (await other.step("x")).observation == "ok"
        other.close()
        await _quiet(provider)
        assert provider.stats().sessions == 0

    with_provider(body)


def test_a_lost_jail_is_infrastructure_and_is_replaced() -> None:
    async def body(provider):
        environment = await provider.environment(env(step="while True: pass"))
        session, _ = await environment.open(1)
        async with trio.open_nursery() as nursery:

            async def play():
                with pytest.raises(InfrastructureFailure) as caught:
                    await session.step("x")
                assert caught.value.fault is Fault.JAIL_LOST

            nursery.start_soon(play)
            await trio.testing.wait_all_tasks_blocked()
            next(iter(provider.pool.jails)).kill()
        again, reset = await environment.open(5)
        assert reset.observation == "start 5"
        again.close()
        assert provider.stats().jails_lost == 1

    with_provider(body)


def test_a_full_jail_says_so() -> None:
    async def body(provider):
        environment = await provider.environment(env())
        held = [await environment.open(n) for n in range(2)]
        with pytest.raises(InfrastructureFailure) as caught:
            await environment.open(3)
        assert caught.value.fault is Fault.BUSY
        held[0][0].close()

    with_provider(body, JailLimits(sessions=2))


def test_a_provider_ends_its_jails_when_cancelled() -> None:
    from spade_sandbox import NsjailProvider

    async def main():
        with trio.fail_after(20):
            with trio.CancelScope() as scope:
                async with NsjailProvider(LIMITS, warm=2, twins=1) as provider:
                    await (await provider.environment(env())).open(1)
                    scope.cancel()
                    await trio.sleep_forever()
            assert provider.pool.jails == set()

    trio.run(main)


def test_errors_of_the_caller_pass_unwrapped() -> None:
    async def body(provider):
        await (await provider.environment(env())).open(1)
        raise KeyError("mine")

    with pytest.raises(KeyError):
        with_provider(body)


def test_the_process_provider_is_refused_unless_allowed_and_serves_the_same() -> None:
    with pytest.raises(SandboxSetupError, match=r"sandbox\.allow_unsafe"):
        ProcessProvider(allow_unsafe=False)

    async def main():
        with trio.fail_after(30):
            async with ProcessProvider(LIMITS, allow_unsafe=True, warm=1, twins=0) as provider:
                environment = await provider.environment(GUESS)
                session, _ = await environment.open(7)
                assert (await session.step(r"\boxed{0}")).observation == "higher"
                session.close()
                hostile = await provider.environment(env(reset="import os\nos.fork()\nreturn 'x', {}"))
                with pytest.raises(EnvironmentFailure):
                    await hostile.open(1)

    trio.run(main)


async def _quiet(provider):
    """Wait until every killed process has been reaped."""
    with trio.fail_after(5):
        while any(jail.sessions for jail in provider.pool.jails):
            await trio.sleep(0.01)
