"""Finding a scorer by its configured name, and refusing nonsense a scorer returns."""

import importlib
import math
from collections.abc import Callable
from importlib.metadata import entry_points

from spade_protocols.play import ScoreTrial, TrialScore

Scorer = Callable[[ScoreTrial], TrialScore]
GROUP = "spade_actors.scorers"
PROCESS = "process"


class ScorerError(ValueError):
    """A scorer that cannot be found, or a score that cannot be used; the text is one line for a user."""


def load_scorer(name: str) -> Scorer:
    """The function named by an entry point of `spade_actors.scorers` or by `package.module:function`.

    Raises:
        ScorerError: there is none, or it cannot be imported.
    """
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    try:
        if name in found:
            scorer = found[name].load()
        elif ":" in name:
            module, _, attribute = name.partition(":")
            scorer = getattr(importlib.import_module(module), attribute)
        else:
            known = ", ".join(sorted(found)) or "none is installed"
            raise ScorerError(f"judge.scorer = {name!r}: expected one of {known}, `package.module:function` or process")
    except (ImportError, AttributeError) as error:
        raise ScorerError(f"judge.scorer = {name!r}: cannot be imported: {error}") from error
    if not callable(scorer):
        raise ScorerError(f"judge.scorer = {name!r}: is {type(scorer).__name__}, expected a function")
    function: Scorer = scorer
    return function


def check_score(trial: ScoreTrial, score: object) -> TrialScore:
    """The score itself, if it is one of this trial: every play has a finite return, no unknown plays, finite numbers.

    Raises:
        ScorerError: naming the first fault.
    """
    if not isinstance(score, TrialScore):
        raise ScorerError(f"the scorer returned {type(score).__name__}, expected TrialScore")
    plays = {play.play for play in trial.plays}
    for what, values in (("returns", score.returns), ("advantages", score.advantages)):
        unknown = values.keys() - plays
        if unknown:
            raise ScorerError(f"the scorer's {what} name {min(unknown)!r}, no play of trial {trial.trial}")
    missing = plays - score.returns.keys()
    if missing:
        raise ScorerError(f"the scorer gave no return for play {min(missing)!r}")
    numbers = {
        "designer_reward": score.designer_reward,
        **{f"return of {k}": v for k, v in score.returns.items()},
        **{f"advantage of {k}": v for k, v in score.advantages.items()},
        **{f"score {k}": v for k, v in score.scores.items()},
    }
    for what, value in numbers.items():
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ScorerError(f"the scorer's {what} is {value!r}, expected a finite number")
    return score
