"""The gate: plays an environment by fixed scripts in two jails and has the checks decide.

In a run the cheap comes first and the first failure ends it; with `all_checks` everything that can be judged is. It
fails closed: only a full set of passes (or skips that say why) admits. An infrastructure failure is raised, never a
verdict.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from hashlib import sha256
from time import perf_counter

import trio

from ..errors import EnvironmentFailure, InfrastructureFailure
from ..provider import Environment, SandboxProvider
from ..replies import Facts
from .checks import DECISIONS, wins
from .plays import TRIVIAL, play
from .record import Record, Trace
from .verdict import Check, GateReport, GateSettings, Verdict

DEFAULT_SEEDS = (11, 23, 37, 41)
Duplicate = Callable[[str, Facts], Awaitable[str | None]]  # (source, facts) -> id of a known twin, or None


async def run(
    provider: SandboxProvider,
    source: str,
    hint: str | None = None,
    *,
    seeds: Sequence[int] = DEFAULT_SEEDS,
    max_turns: int = 14,
    settings: GateSettings = GateSettings(),  # noqa: B008 (frozen)
    all_checks: bool = False,
    duplicate: Duplicate | None = None,
) -> GateReport:
    """Judge a proposal. `max_turns` is the turn budget of a play.

    Raises `InfrastructureFailure` (also what `duplicate` raises) when it could not judge: the proposal is then to be
    tried again. Cancellation leaves nothing running.
    """
    started = perf_counter()
    record = Record(source, hint)
    async with AsyncExitStack() as stack:
        spent = await _compile(provider, record, stack)
        verdicts = _Verdicts(record, settings, all_checks, {Check.PARSE: spent[1]})
        environment = spent[0]
        if environment is not None and not verdicts.end_after(Check.PARSE):
            if duplicate is not None:
                mark = perf_counter()
                record.duplicate_of = await duplicate(source, environment.facts)
                record.duplicate_asked = True
                verdicts.ms[Check.DUPLICATE] = _ms(mark)
            if not verdicts.end_after(Check.DUPLICATE):
                mark = perf_counter()
                record.traces.append(await play(environment, "mixed", seeds[0], max_turns, settings, thorough=True))
                if not verdicts.end_after(Check.REWARD):
                    await _play_all(provider, environment, record, seeds, max_turns, settings, all_checks, stack)
                verdicts.ms[Check.RUNTIME] = _ms(mark)
        return _report(record, verdicts.all(), started)


async def _compile(
    provider: SandboxProvider, record: Record, stack: AsyncExitStack
) -> tuple[Environment | None, float]:
    mark = perf_counter()
    try:
        environment = await provider.environment(record.source)
    except EnvironmentFailure as failure:
        record.compile_failure = failure
        return None, _ms(mark)
    stack.callback(environment.close)
    record.facts = environment.facts
    return environment, _ms(mark)


Play = tuple[Environment, str, int, bool]  # where, policy, seed, thorough


async def _play_all(
    provider: SandboxProvider,
    environment: Environment,
    record: Record,
    seeds: Sequence[int],
    max_turns: int,
    settings: GateSettings,
    all_checks: bool,
    stack: AsyncExitStack,
) -> None:
    """The other plays: the probe and the random player on every seed, the other trivial ones on two, two plays again in
    the other jail; then more of a trivial player that seems to win too often.
    """
    twin = await provider.environment(record.source, hash_class=1)
    stack.callback(twin.close)
    plan: list[Play] = [(twin, "mixed", seeds[0], False), (twin, "probe", seeds[-1], False)]
    plan += [(environment, "probe", seed, True) for seed in seeds]
    plan += [
        (environment, policy, s, False) for policy in TRIVIAL for s in (seeds if policy == "random" else seeds[:2])
    ]
    await _some_at_once(plan, record, max_turns, settings, all_checks)
    if all(trace.failure is None for trace in record.traces):
        more = range(max(seeds) + 1, max(seeds) + 1 + settings.confirm_plays)
        suspects = [policy for policy in TRIVIAL if _wins_too_often(record, policy, settings)]
        again: list[Play] = [(environment, policy, seed, False) for policy in suspects for seed in more]
        await _some_at_once(again, record, max_turns, settings, all_checks)


def _wins_too_often(record: Record, policy: str, settings: GateSettings) -> bool:
    won, played = wins(record, policy, settings)
    return bool(played) and len(won) / played > settings.trivial_rate


async def _some_at_once(
    plan: Sequence[Play], record: Record, max_turns: int, settings: GateSettings, all_checks: bool
) -> None:
    """Play, `concurrency` at a time, and record in the plan's order; a failed play ends the others unless `all_checks`."""
    traces: dict[int, Trace] = {}
    failures: list[InfrastructureFailure] = []
    waiting = iter(enumerate(plan))
    async with trio.open_nursery() as nursery:

        async def work() -> None:
            for index, (where, policy, seed, thorough) in waiting:
                try:
                    traces[index] = await play(where, policy, seed, max_turns, settings, thorough=thorough)
                except InfrastructureFailure as failure:
                    failures.append(failure)
                    nursery.cancel_scope.cancel()
                    return
                if traces[index].failure is not None and not all_checks:
                    nursery.cancel_scope.cancel()
                    return

        for _ in range(min(settings.concurrency, len(plan))):
            nursery.start_soon(work)
    if failures:
        raise failures[0]
    record.traces += [traces[index] for index in sorted(traces)]


class _Verdicts:
    """Decisions as far as they are asked for, in order."""

    def __init__(self, record: Record, settings: GateSettings, all_checks: bool, ms: dict[Check, float]) -> None:
        self.ms = ms
        self._record, self._settings, self._all_checks = record, settings, all_checks

    def end_after(self, last: Check) -> bool:
        """Whether a check up to `last` fails and that ends the gate."""
        if self._all_checks:
            return False
        return any(verdict.verdict == "fail" for verdict in self._decide(last))

    def all(self) -> list[Verdict]:
        """Every verdict; without `all_checks` those up to the first failure."""
        return self._decide(None)

    def _decide(self, last: Check | None) -> list[Verdict]:
        made: list[Verdict] = []
        for check, decide in DECISIONS.items():
            mark = perf_counter()
            verdict = decide(self._record, self._settings)
            spent = _ms(mark) + self.ms.get(check, 0.0)
            made.append(verdict._replace(ms=spent, reason=verdict.reason[:400], evidence=verdict.evidence[:600]))
            if check is last or (verdict.verdict == "fail" and not self._all_checks):
                break
        return made


def _report(record: Record, verdicts: list[Verdict], started: float) -> GateReport:
    failed = tuple(verdict.check for verdict in verdicts if verdict.verdict == "fail")
    first = next((trace.reset for trace in record.traces if trace.reset is not None), None)
    facts = record.facts
    played = record.compile_failure is None and bool(record.traces)
    return GateReport(
        admitted=played and not failed,
        failed=failed,
        verdicts=tuple(verdicts),
        ms=_ms(started),
        source_hash=sha256(record.source.encode("utf-8", "surrogatepass")).hexdigest(),
        shape_hash=facts.shape if facts else "",
        trace_hash=record.trace_hash() if record.traces else "",
        class_name=facts.class_name if facts else "",
        title=facts.title if facts else "",
        max_turns=first.max_turns if first else None,
        first_observation=first.observation[:2000] if first else "",
    )


def _ms(since: float) -> float:
    return (perf_counter() - since) * 1e3
