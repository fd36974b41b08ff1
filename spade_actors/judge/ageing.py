"""Which open work is too old to be trained: whole arms and whole design groups, never single plays.

Dropping single plays would drop the slow ones and leave a group whose returns favour quick episodes. Samples that were
released are the learner's: it drops stale groups when it takes a batch, and knows which it already holds.
Staleness of a sample = learner version at consumption - oldest version among its trained tokens.
"""

from collections.abc import Iterable

from spade_actors.judge.groups import Group
from spade_actors.judge.rules import Rules
from spade_actors.judge.trials import Trial


def stale_arms(trials: Iterable[Trial], version: int, rules: Rules) -> list[tuple[Trial, str]]:
    """Trained arms with a finished play older than the agent's bound. Their trial goes on for its designer."""
    return [
        (trial, arm)
        for trial in trials
        if trial.live
        for arm in rules.arms_trained
        if arm not in trial.stale_arms
        and any(version - play.oldest > rules.agent_bound for play in trial.of(arm, "finished"))
    ]


def stale_groups(groups: Iterable[Group], version: int, rules: Rules) -> list[Group]:
    """Open design groups with a delivered, not withdrawn member older than the designer's bound."""
    if not rules.train_designer:
        return []
    return [
        group
        for group in groups
        if group.state == "open"
        and any(
            member.attempt and member.state != "withdrawn" and version - member.oldest > rules.designer_bound
            for member in group.members
        )
    ]
