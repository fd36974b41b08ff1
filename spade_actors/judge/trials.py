"""Trials: n seeds of one environment, each played without and with the hint.

Always holds: a play ends once, the first result wins; a pair counts only if both arms ended by policy or environment
rules; an environment failure ends the trial and costs the design; infrastructure costs a pair, never a reward.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from spade_actors.judge.rules import Rules, derive
from spade_actors.scoring.returns import finite
from spade_protocols.play import HINTED, PLAIN, PlayScore

ARMS = (PLAIN, HINTED)


class Play(msgspec.Struct, kw_only=True):
    """One play; its id and seed stay through retries."""

    id: str
    index: int
    arm: str
    seed: int
    state: Literal["open", "finished", "failed", "lost", "cancelled"] = "open"
    ending: str = ""
    rewards: list[float] = msgspec.field(default_factory=list)
    terminated: bool = False
    turns: int = 0
    trained: int = 0
    length: int = 0
    oldest: int = 0
    newest: int = 0
    version: float = 0.0
    """mean weight version of its sampled tokens"""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a delivered trajectory says about its play."""

    finished: bool
    ending: str
    blame: str = ""
    rewards: tuple[float, ...] = ()
    terminated: bool = False
    turns: int = 0
    trained: int = 0
    length: int = 0
    oldest: int = 0
    newest: int = 0
    version: float = 0.0


class Trial(msgspec.Struct, kw_only=True):
    """One environment on trial. The id is its design's."""

    id: str
    group: str
    skill: str
    environment: str
    min_pairs: int
    plays: dict[str, Play]
    state: Literal["opening", "open", "scoring", "scored", "failed", "withdrawn"] = "opening"
    reason: str = ""
    title: str = ""
    verdicts: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """the gate's, for the record"""
    stale_arms: list[str] = msgspec.field(default_factory=list)

    @property
    def live(self) -> bool:
        """Whether it can still be scored."""
        return self.state in ("opening", "open", "scoring")

    def of(self, arm: str, *states: str) -> list[Play]:
        """Plays of an arm in one of the states."""
        return [play for play in self.plays.values() if play.arm == arm and play.state in states]

    def open_plays(self) -> list[str]:
        """Ids of plays without an end."""
        return [play.id for play in self.plays.values() if play.state == "open"]

    def yields(self, rules: Rules) -> int:
        """Agent samples it can still release."""
        if not self.live:
            return 0
        arms = [arm for arm in rules.arms_trained if arm not in self.stale_arms]
        return sum(len(self.of(arm, "open", "finished")) for arm in arms)

    def possible_pairs(self) -> int:
        """Pairs that are whole or can still become whole."""
        sound: dict[int, int] = {}
        for play in self.plays.values():
            if play.state in ("open", "finished"):
                sound[play.index] = sound.get(play.index, 0) + 1
        return sum(count == len(ARMS) for count in sound.values())


def open_trial(design: str, group: str, skill: str, environment: str, rules: Rules) -> Trial:
    """A trial with its plays, none released yet; ids and seeds depend on nothing but the design and the run's seed."""
    plays: dict[str, Play] = {}
    for index in range(rules.pairs):
        seed = derive(rules.seed, "instance", design, index)
        for arm in ARMS:
            name = f"{design}.{index}.{arm[0]}"
            plays[name] = Play(id=name, index=index, arm=arm, seed=seed)
    return Trial(
        id=design, group=group, skill=skill, environment=environment, min_pairs=rules.min_pairs, plays=plays
    )  # fmt: skip


def record(trial: Trial, name: str, outcome: Outcome) -> bool:
    """Stores a play's first result; False if it has ended before. May end the trial."""
    play = trial.plays[name]
    if play.state != "open" or not trial.live:
        return False
    play.ending, play.terminated, play.turns = outcome.ending, outcome.terminated, outcome.turns
    play.trained, play.length = outcome.trained, outcome.length
    play.oldest, play.newest, play.version = outcome.oldest, outcome.newest, outcome.version
    if not outcome.finished and outcome.blame == "infrastructure":
        lose(trial, name, outcome.ending)
    elif not outcome.finished or not finite(outcome.rewards):
        play.state = "failed"
        play.ending = outcome.ending if not outcome.finished else "reward_not_finite"
        close(trial, "failed", f"environment failed in play {name}: {play.ending}")
    else:
        play.state, play.rewards = "finished", list(outcome.rewards)
        _settle(trial)
    return True


def lose(trial: Trial, name: str, reason: str) -> bool:
    """A play will never have a result, through no fault of the environment; False if it has ended before."""
    play = trial.plays[name]
    if play.state != "open" or not trial.live:
        return False
    play.state, play.ending = "lost", reason
    if trial.possible_pairs() < trial.min_pairs:
        close(
            trial, "withdrawn", f"at most {trial.possible_pairs()} whole pairs left, {trial.min_pairs} needed: {reason}"
        )
    else:
        _settle(trial)
    return True


def close(trial: Trial, state: Literal["scored", "failed", "withdrawn"], reason: str = "") -> list[str]:
    """Ends the trial; returns the plays this cancels."""
    cancelled = trial.open_plays()
    for name in cancelled:
        trial.plays[name].state = "cancelled"
    trial.state, trial.reason = state, reason
    return cancelled


def play_scores(trial: Trial) -> list[PlayScore]:
    """What the scorer sees: the plays that ended by policy or environment rules, in pair order."""
    finished: Sequence[Play] = sorted(
        (play for play in trial.plays.values() if play.state == "finished"), key=lambda p: (p.index, p.arm != PLAIN)
    )
    return [
        PlayScore(
            play=play.id, arm=play.arm, index=play.index, rewards=play.rewards, terminated=play.terminated,
            ending=play.ending, turns=play.turns, version=play.version,
        )
        for play in finished
    ]  # fmt: skip


def _settle(trial: Trial) -> None:
    if trial.state == "open" and not trial.open_plays():
        trial.state = "scoring"
