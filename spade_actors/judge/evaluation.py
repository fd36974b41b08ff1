"""Held-out evaluations: first (before any training play), every so many versions, last.

Always holds: an evaluation's instances and sampling seeds depend only on the environment and the play's number, so every
evaluation is the same examination; its plays have priority, stand outside capacity, are never trained and never reach
the archive; scores of plays by more than one weight version are flagged mixed (`pinned` false).
"""

import math
from typing import Literal

import msgspec

from spade_actors.judge.heldout import HeldOut, small_subset
from spade_actors.judge.rules import Rules, derive
from spade_actors.judge.trials import ARMS, Outcome
from spade_actors.scoring.returns import episode_return, finite, mean, win_rate
from spade_protocols.play import HINTED, PLAIN

PRIORITY = 10
FIRST, BETWEEN, LAST = "first", "version", "last"


class EvalPlay(msgspec.Struct, kw_only=True):
    """One held-out play."""

    id: str
    heldout: str
    environment: str
    split: str
    family: str
    arm: str
    index: int
    seed: int
    sampling_seed: int
    state: Literal["open", "finished", "failed", "lost", "cancelled"] = "open"
    value: float = 0.0
    """its return"""
    oldest: int = 0
    newest: int = 0


class Evaluation(msgspec.Struct, kw_only=True):
    """One examination of the policy."""

    id: str
    version: int
    label: str
    plays: dict[str, EvalPlay]
    state: Literal["planned", "stored", "open", "done", "dropped"] = "planned"
    """stored: memory has the environments; it opens when its version samples; dropped: never opened"""

    def open_plays(self) -> list[EvalPlay]:
        """Plays without an end."""
        return [play for play in self.plays.values() if play.state == "open"]

    @property
    def complete(self) -> bool:
        """Whether every play ended."""
        return self.state == "open" and not self.open_plays()

    @property
    def pinned(self) -> bool:
        """Whether one version, the evaluation's own, sampled every token."""
        finished = [play for play in self.plays.values() if play.state == "finished"]
        return all(play.oldest == play.newest == self.version for play in finished)


def due(version: int, previous: int, rules: Rules) -> bool:
    """Whether a publication of `version` after `previous` passes a multiple of `eval_every`."""
    return rules.eval_every > 0 and version // rules.eval_every > max(0, previous) // rules.eval_every


def plan(version: int, label: str, environments: list[HeldOut], rules: Rules) -> Evaluation:
    """The plays of an evaluation; one between first and last plays a fixed subset, without hints."""
    name = f"e{version}{label[0]}"
    between = label == BETWEEN
    chosen = small_subset(environments, rules.eval_small) if between else environments
    counts = {PLAIN: rules.eval_plays, HINTED: 0 if between else rules.eval_hinted}
    plays = [
        EvalPlay(
            id=f"{name}.{entry.id}.{index}{arm[0]}",
            heldout=entry.id,
            environment=entry.environment,
            split=entry.split,
            family=entry.family,
            arm=arm,
            index=index,
            seed=derive("heldout instance", entry.id, index),
            sampling_seed=derive("heldout sampling", entry.id, index, arm),
        )
        for entry in chosen
        for arm in ARMS
        for index in range(counts[arm])
    ]
    return Evaluation(id=name, version=version, label=label, plays={play.id: play for play in plays})


def record(evaluation: Evaluation, name: str, outcome: Outcome) -> bool:
    """Stores a play's first result; False if it has ended before."""
    play = evaluation.plays[name]
    if play.state != "open":
        return False
    play.oldest, play.newest = outcome.oldest, outcome.newest
    if not outcome.finished or not finite(outcome.rewards):
        play.state = "failed"
    else:
        play.state, play.value = "finished", episode_return(outcome.rewards, outcome.terminated)
    return True


def lose(evaluation: Evaluation, name: str) -> bool:
    """A play will have no result; False if it has ended before."""
    play = evaluation.plays[name]
    if play.state != "open":
        return False
    play.state = "lost"
    return True


def drop(evaluation: Evaluation) -> None:
    """Ends an evaluation whose plays were never released."""
    evaluation.state = "dropped"
    for play in evaluation.plays.values():
        play.state = "cancelled"


def scores(evaluation: Evaluation) -> dict[str, float]:
    """Share of finished plays with return > 0 by split, hinted ones apart, with counts and standard errors.

    `heldout`, `heldout_n`, `heldout_se`, `heldout_return`, `heldout_hinted` ..., the same for `unseen`; `family.NAME`
    for the plain arm; `failed` and `lost` count plays left out of every share.
    """
    out: dict[str, float] = {}
    finished = [play for play in evaluation.plays.values() if play.state == "finished"]
    for split in sorted({play.split for play in finished}):
        for arm in ARMS:
            values = [play.value for play in finished if play.split == split and play.arm == arm]
            if values:
                key = split if arm == PLAIN else f"{split}_hinted"
                rate = win_rate(values)
                out[key] = rate
                out[f"{key}_n"] = float(len(values))
                out[f"{key}_se"] = math.sqrt(rate * (1 - rate) / len(values))
                out[f"{key}_return"] = mean(values)
    for family in sorted({play.family for play in finished if play.family}):
        out[f"family.{family}"] = win_rate(
            [play.value for play in finished if play.family == family and play.arm == PLAIN]
        )
    for state in ("failed", "lost"):
        out[state] = float(sum(play.state == state for play in evaluation.plays.values()))
    return out
