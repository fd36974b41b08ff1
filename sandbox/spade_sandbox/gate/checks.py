"""The decisions: pure functions from what was recorded to a verdict. None of them runs anything.

To add a check: a name in `verdict.Check`, a function here, its row in `DECISIONS`, a faulty and a near-miss
environment in the tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ..errors import EnvironmentFailure, Reason
from .plays import TRIVIAL
from .record import Record, Trace
from .verdict import Check, GateSettings, Verdict

_PARSE = {Reason.SYNTAX}
_CONTRACT = {Reason.CONTRACT, Reason.BAD_REPLY}
_RUNTIME = {Reason.LOAD, Reason.EXCEPTION, Reason.EXIT, Reason.CRASH}
_RESOURCE = {Reason.HANG, Reason.CPU, Reason.MEMORY, Reason.OUTPUT}
_REWARD = {Reason.NON_FINITE}


def parse(record: Record, settings: GateSettings) -> Verdict:
    """The source compiles."""
    failure = record.compile_failure
    if failure is not None and failure.reason in _PARSE:
        return Verdict(Check.PARSE, "fail", failure.detail, failure.trace)
    if failure is not None:
        return Verdict(Check.PARSE, "skipped", f"compiling ended with {failure.reason.value}")
    return Verdict(Check.PARSE, "pass")


def duplicate(record: Record, settings: GateSettings) -> Verdict:
    """Nothing like it is known; who knows is asked by the driver."""
    if not record.duplicate_asked:
        return Verdict(Check.DUPLICATE, "skipped", "no archive to compare with")
    if record.duplicate_of is not None:
        return Verdict(Check.DUPLICATE, "fail", f"is a duplicate of {record.duplicate_of}")
    return Verdict(Check.DUPLICATE, "pass")


def contract(record: Record, settings: GateSettings) -> Verdict:
    """Class, signatures and the exact types of what `reset` and `step` return."""
    return _no_failure(Check.CONTRACT, record, _CONTRACT)


def runtime(record: Record, settings: GateSettings) -> Verdict:
    """Nothing raises, exits or dies: not on well-formed, malformed, empty, long or non-ASCII actions, nor on one after the end."""
    verdict = _no_failure(Check.RUNTIME, record, _RUNTIME)
    if verdict.verdict != "pass" or not settings.post_terminal:
        return verdict
    for trace in record.traces:
        if trace.after is not None:
            return _failed(Check.RUNTIME, trace, trace.after, "after the end")
    return verdict


def resource(record: Record, settings: GateSettings) -> Verdict:
    """Within wall clock, processor, memory and output limits, and no play that is slow at every step."""
    verdict = _no_failure(Check.RESOURCE, record, _RESOURCE)
    if verdict.verdict != "pass":
        return verdict
    for trace in record.traces:
        if trace.turns and (fastest := min(turn.wall_s for turn in trace.turns)) > settings.slow_step_s:
            reason = f"every step takes {fastest:.2f} s or more, at most {settings.slow_step_s} s are taken"
            return Verdict(Check.RESOURCE, "fail", reason, _where(trace))
    return verdict


def termination(record: Record, settings: GateSettings) -> Verdict:
    """Every play ends (terminated or truncated) within the turns it has."""
    traces = _sound(record)
    if not traces:
        return _no_plays(Check.TERMINATION)
    for trace in traces:
        if not trace.ended:
            return Verdict(Check.TERMINATION, "fail", f"does not end within {len(trace.turns)} turns", _where(trace))
    return Verdict(Check.TERMINATION, "pass")


def reward(record: Record, settings: GateSettings) -> Verdict:
    """Rewards are finite and in range."""
    verdict = _no_failure(Check.REWARD, record, _REWARD)
    if verdict.verdict != "pass":
        return verdict
    low, high = settings.reward_range
    for trace in record.traces:
        for number, turn in enumerate(trace.turns):
            if not low <= turn.step.reward <= high:
                reason = f"reward {turn.step.reward:g} is outside [{low:g}, {high:g}]"
                return Verdict(Check.REWARD, "fail", reason, f"{_where(trace)}, turn {number + 1}")
    return verdict


def determinism(record: Record, settings: GateSettings) -> Verdict:
    """The same seed and actions show the same, in two jails with different hash seeds."""
    first = {(t.policy, t.seed): t for t in record.traces if t.hash_class == 0}
    pairs = [(first[key], t) for t in record.traces if t.hash_class == 1 and (key := (t.policy, t.seed)) in first]
    if not pairs:
        return Verdict(Check.DETERMINISM, "skipped", "no seed was played twice")
    for one, two in pairs:
        for number, (a, b) in enumerate(zip(one.seen(), two.seen(), strict=False)):
            if a != b:
                where = "reset" if number == 0 else f"turn {number}"
                evidence = f"{_where(one)}, {where}: {a!r:.200} against {b!r:.200}"
                return Verdict(Check.DETERMINISM, "fail", "the same seed and actions do not give the same", evidence)
        if len(one.seen()) != len(two.seen()):
            reason = f"the same seed and actions end after {len(one.turns)} and {len(two.turns)} turns"
            return Verdict(Check.DETERMINISM, "fail", reason, _where(one))
    return Verdict(Check.DETERMINISM, "pass")


def seed_sensitivity(record: Record, settings: GateSettings) -> Verdict:
    """Different seeds give different instances: something shown, or the solution, differs."""
    by_policy: dict[str, list[Trace]] = {}
    for trace in _sound(record):
        if trace.hash_class == 0:
            by_policy.setdefault(trace.policy, []).append(trace)
    compared = [traces for traces in by_policy.values() if len({t.seed for t in traces}) > 1]
    if not compared:
        return Verdict(Check.SEED_SENSITIVITY, "skipped", "fewer than two seeds were played")
    for traces in compared:
        if any(trace.seen() != traces[0].seen() for trace in traces[1:]):
            return Verdict(Check.SEED_SENSITIVITY, "pass")
    solutions = [
        trace.inspection.solution for trace in _sound(record) if trace.inspection and trace.inspection.solution
    ]
    if any(solution != solutions[0] for solution in solutions[1:]):
        return Verdict(Check.SEED_SENSITIVITY, "pass")
    seeds = sorted({trace.seed for trace in compared[0]})
    return Verdict(
        Check.SEED_SENSITIVITY,
        "fail",
        f"seeds {', '.join(map(str, seeds))} give the same plays",
        _where(compared[0][0]),
    )


def trivial_policy(record: Record, settings: GateSettings) -> Verdict:
    """A player that understands nothing does not win above a rate."""
    rates: list[str] = []
    for policy in TRIVIAL:
        won, played = wins(record, policy, settings)
        if played and len(won) / played > settings.trivial_rate:
            reason = f"the {policy} player wins {len(won)} of {played} plays"
            return Verdict(Check.TRIVIAL_POLICY, "fail", reason, f"{_where(won[0])}: {won[0].turns[-1].action[:120]!r}")
        if played:
            rates.append(f"{policy} {len(won)}/{played}")
    if not rates:
        return _no_plays(Check.TRIVIAL_POLICY)
    return Verdict(Check.TRIVIAL_POLICY, "pass", evidence=", ".join(rates))


def wins(record: Record, policy: str, settings: GateSettings) -> tuple[list[Trace], int]:
    """The plays that a policy won, and how many it played to the end of its turns."""
    traces = [trace for trace in _sound(record) if trace.policy == policy and trace.hash_class == 0]
    return [trace for trace in traces if trace.final_reward > settings.win_reward], len(traces)


def leak(record: Record, settings: GateSettings) -> Verdict:
    """The first observation does not state the solution, and `info` does not hold it."""
    solved = _solved(record)
    if not solved:
        return Verdict(Check.LEAK, "skipped", "no solution() to compare with")
    found = [where for trace, answer in solved if (where := _stated(trace, answer))]
    if len(found) * 2 > len(solved):
        return Verdict(Check.LEAK, "fail", f"the solution is told in {found[0]}", _where(solved[0][0]))
    return Verdict(Check.LEAK, "pass")


def hint_leak(record: Record, settings: GateSettings) -> Verdict:
    """The hint is a rule, not the answer: it does not contain the solution of most seeds literally."""
    if not record.hint:
        return Verdict(Check.HINT_LEAK, "skipped", "no hint")
    solved = _solved(record)
    if not solved:
        return Verdict(Check.HINT_LEAK, "skipped", "no solution() to compare with")
    held = [answer for _, answer in solved if _holds(record.hint, answer)]
    if len(held) * 2 > len(solved):
        return Verdict(Check.HINT_LEAK, "fail", f"the hint contains the solution {held[0][:80]!r}", record.hint[:300])
    return Verdict(Check.HINT_LEAK, "pass")


DECISIONS: dict[Check, Callable[[Record, GateSettings], Verdict]] = {
    Check.PARSE: parse,
    Check.DUPLICATE: duplicate,
    Check.CONTRACT: contract,
    Check.RUNTIME: runtime,
    Check.RESOURCE: resource,
    Check.TERMINATION: termination,
    Check.REWARD: reward,
    Check.DETERMINISM: determinism,
    Check.SEED_SENSITIVITY: seed_sensitivity,
    Check.TRIVIAL_POLICY: trivial_policy,
    Check.LEAK: leak,
    Check.HINT_LEAK: hint_leak,
}


def _no_failure(check: Check, record: Record, reasons: set[Reason]) -> Verdict:
    """Fails on a failure that this check answers for; skipped when nothing was played."""
    if record.compile_failure is not None and record.compile_failure.reason in reasons:
        return Verdict(check, "fail", record.compile_failure.detail, "compiling")
    for trace in record.traces:
        if trace.failure is not None and trace.failure.reason in reasons:
            return _failed(check, trace, trace.failure, f"turn {len(trace.turns) + 1}" if trace.reset else "")
    if not record.traces:
        return _no_plays(check)
    return Verdict(check, "pass")


def _failed(check: Check, trace: Trace, failure: EnvironmentFailure, when: str) -> Verdict:
    evidence = ", ".join(part for part in (_where(trace), failure.phase, when, failure.trace) if part)
    return Verdict(check, "fail", f"{failure.reason.value}: {failure.detail}", evidence)


def _no_plays(check: Check) -> Verdict:
    return Verdict(check, "skipped", "no play to judge")


def _sound(record: Record) -> list[Trace]:
    return [trace for trace in record.traces if trace.failure is None and trace.reset is not None]


def _where(trace: Trace) -> str:
    return f"seed {trace.seed}, {trace.policy} player"


def _solved(record: Record) -> list[tuple[Trace, str]]:
    """Traces of one jail with their solution as text; solutions of fewer than two characters prove nothing."""
    found: list[tuple[Trace, str]] = []
    for trace in record.traces:
        if trace.hash_class == 0 and trace.inspection is not None:
            answer = _as_text(trace.inspection.solution)
            if len(answer) >= 2:
                found.append((trace, answer))
    return found


def _as_text(solution: object) -> str:
    if isinstance(solution, list):
        return ", ".join(_as_text(item) for item in solution)
    if solution is None or isinstance(solution, (bool, dict)):
        return ""
    text = str(solution).strip()
    boxed = re.fullmatch(r"\\boxed\{(.*)\}", text, re.DOTALL)
    return boxed.group(1).strip() if boxed else text


def _holds(text: str, answer: str) -> bool:
    """Whether the answer occurs in the text as a whole word."""
    return re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE) is not None


def _stated(trace: Trace, answer: str) -> str:
    """Where the reset gives the answer away: named as such in the observation, or as a value of `info`.

    Options to choose from may contain it.
    """
    if trace.reset is None:
        return ""
    named = rf"(answer|solution|secret|target|hidden\s+\w+)\W+(is\W+|=\W*)?{re.escape(answer)}(?!\w)"
    if re.search(named, trace.reset.observation, re.IGNORECASE):
        return "the first observation"
    if answer.lower() in (str(value).strip().lower() for value in _leaves(trace.reset.info)):
        return "the first info"
    return ""


def _leaves(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value
