"""Real processes kept, restarted, given up and drained."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import trio

from spade_actors.supervisor.children import Children
from spade_actors.supervisor.drain import Drain
from spade_actors.supervisor.keeper import Death, Keeper
from spade_actors.supervisor.last_words import last_words
from spade_actors.supervisor.plan import Planned
from spade_actors.supervisor.restarts import Policy, Restarts

OBEDIENT = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True); signal.pause()"
)
DEAF = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
)


def run(
    tmp_path: Path,
    programs: dict[str, str],
    script: Callable[[Keeper], object],
    policy: Policy | None = None,
    bound: float = 0.2,
) -> tuple[Keeper, list[Death], list[str]]:
    """Keeps one process per program, runs `script` once all are up (or the keeper gave up), then drains."""
    deaths: list[Death] = []
    order: list[str] = []

    async def main() -> Keeper:
        with Children(tmp_path) as children:
            keeper = Keeper(
                children,
                lambda planned: [sys.executable, "-c", programs[planned.name]],
                dict(os.environ),
                deaths.append,
                Restarts(policy or Policy()),
                Drain(bounds=tuple((role, bound) for role in ("designer", "agent", "hub"))),
            )
            with trio.fail_after(30):
                async with trio.open_nursery() as nursery:
                    for name in programs:
                        nursery.start_soon(keeper.keep, Planned(name, name.split("-")[0], ()))
                    while not keeper.stopping.is_set() and any(
                        not last_words(name, tmp_path).text for name in programs
                    ):
                        await trio.sleep(0.01)
                    result = script(keeper)
                    if result is not None:
                        await result  # type: ignore[misc]
                    await keeper.drain(order.append)
            assert children.living == {}
            return keeper

    return trio.run(main), deaths, order


def test_drains_in_order_and_kills_what_does_not_listen(tmp_path: Path) -> None:
    keeper, deaths, order = run(
        tmp_path, {"hub": OBEDIENT, "agent-1": DEAF, "designer-1": OBEDIENT}, lambda keeper: None
    )
    assert order == ["designer-1", "agent-1", "hub"]
    assert keeper.drain_state.killed == ["agent-1"]
    assert deaths == []


def test_the_second_interrupt_does_not_wait(tmp_path: Path) -> None:
    started = time.monotonic()
    keeper, _, order = run(tmp_path, {"hub": DEAF, "agent-1": DEAF}, lambda keeper: keeper.stop(now=True), bound=600.0)
    assert order == []
    assert set(keeper.drain_state.killed) == {"hub", "agent-1"}
    assert time.monotonic() - started < 25


def test_a_killed_process_comes_back(tmp_path: Path) -> None:
    async def script(keeper: Keeper) -> None:
        before = keeper.children.living["agent-1"].pid
        keeper.children.kill("agent-1")
        while keeper.children.living.get("agent-1") is None or keeper.children.living["agent-1"].pid == before:
            await trio.sleep(0.01)

    keeper, deaths, _ = run(tmp_path, {"agent-1": OBEDIENT}, script)
    assert keeper.restarts.total == {"agent-1": 1}
    assert [(death.name, death.code, death.restart_in_s) for death in deaths] == [("agent-1", -signal.SIGKILL, 0.0)]


def test_the_run_gives_up_and_says_what_and_where(tmp_path: Path) -> None:
    async def script(keeper: Keeper) -> None:
        await keeper.stopping.wait()

    broken = "raise RuntimeError('no such model')"
    keeper, deaths, order = run(tmp_path, {"hub": OBEDIENT, "agent-1": broken}, script, Policy(give_up=3, first_s=0.01))
    assert keeper.gave_up is not None
    assert keeper.gave_up.name == "agent-1"
    assert keeper.gave_up.last_words == "RuntimeError: no such model"
    assert keeper.gave_up.log == tmp_path / "agent-1.out"
    assert [death.restart_in_s for death in deaths] == [0.0, 0.01, None]
    assert order == ["hub"]
