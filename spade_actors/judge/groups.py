"""Design groups: k consecutive briefs of one skill whose rewards are centred together.

Always holds: a member is resolved once (scored, invalid or withdrawn); a group ends once, when all k members are
resolved (released or dropped) or when it is stale. No barrier: other groups go on.
"""

from typing import Literal

import msgspec

from spade_actors.judge.rules import Rules, derive
from spade_actors.scoring.advantage import design_advantages

RESOLVED = ("scored", "invalid", "withdrawn")


class Design(msgspec.Struct, kw_only=True):
    """One member: a brief from its grant to its reward."""

    id: str
    group: str
    skill: str
    seed: int
    state: Literal["granted", "proposed", "trial", "scored", "invalid", "withdrawn"] = "granted"
    environment: str = ""
    reward: float = 0.0
    reason: str = ""
    attempt: int = 0
    """of the delivered generation; 0 = nothing delivered"""
    delivered: str = ""
    """environment of the delivered generation"""
    oldest: int = 0
    first: int = 0
    """weight version of its first token"""
    trained: int = 0
    length: int = 0

    @property
    def resolved(self) -> bool:
        """Whether its reward, or the lack of one, is decided."""
        return self.state in RESOLVED


class Group(msgspec.Struct, kw_only=True):
    """A design group; `members` in the order they were granted."""

    id: str
    skill: str
    size: int
    members: list[Design] = msgspec.field(default_factory=list)
    state: Literal["open", "released", "dropped", "stale"] = "open"
    reason: str = ""

    @property
    def full(self) -> bool:
        """Whether all its briefs are granted."""
        return len(self.members) >= self.size

    @property
    def complete(self) -> bool:
        """Whether it can end: every brief granted and resolved."""
        return self.full and all(member.resolved for member in self.members)

    def yields(self) -> int:
        """Designer samples it can still release with the briefs it has.

        Resolved members of a group that still lacks briefs cannot come out before more are granted; counting them
        would let a synchronous run wait for itself.
        """
        counted = [m for m in self.members if m.state != "withdrawn"]
        return len(counted) if self.full else sum(not m.resolved for m in counted)


class Rotation(msgspec.Struct, kw_only=True):
    """Where the sequence of briefs stands; journalled, so that a resumed run continues it."""

    designs: int = 0
    groups: int = 0
    filling: str = ""
    """the group that takes the next brief, or empty"""

    def grant(self, rules: Rules, groups: dict[str, Group]) -> Design:
        """The next design, in the group being filled or a new one of the next skill."""
        group = groups.get(self.filling)
        if group is None or group.full or group.state != "open":
            skill = rules.skills[self.groups % len(rules.skills)]
            group = Group(id=f"g{self.groups:05d}", skill=skill, size=rules.design_group)
            groups[group.id] = group
            self.groups += 1
            self.filling = group.id
        name = f"d{self.designs:06d}"
        design = Design(id=name, group=group.id, skill=group.skill, seed=derive(rules.seed, "design", self.designs))
        group.members.append(design)
        self.designs += 1
        return design


def released(group: Group, rules: Rules) -> dict[str, float]:
    """Ends a complete group: design id -> advantage of the samples to release, empty when it is dropped."""
    counted = {member.id: member.reward for member in group.members if member.state != "withdrawn"}
    advantages = design_advantages(counted, rules.negative_scale)
    if advantages is None:
        group.state, group.reason = "dropped", f"{len(counted)} of {len(group.members)} members have a reward"
        return {}
    kept = {name: value for name, value in advantages.items() if value != 0.0}
    if not kept or not rules.train_designer:
        group.state = "dropped"
        group.reason = "the designer is frozen" if kept else "all rewards are equal"
        return {}
    group.state = "released"
    return kept
