"""Which samples make a batch, and how a batch is cut: pure, without torch, sockets or clocks.

Always holds: a group (advantage group of agents, design group) is taken, dropped or left as a whole; a batch is chosen
oldest first; cutting into minibatches and micro-batches puts every sample in exactly one of each.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

AGENT = "agent"
DESIGNER = "designer"
ROLES = (AGENT, DESIGNER)


class Held(NamedTuple):
    """A leased sample."""

    id: str
    lease: str
    group: str
    role: str
    oldest: int
    """oldest weight version among its trained tokens"""
    put_at: float


@dataclass(frozen=True, slots=True)
class Rules:
    """When a batch starts and what goes into it. `batch`, `min_batch` in samples; staleness in weight versions."""

    batch: int
    designer_share: float
    min_batch: int
    max_wait_s: float
    max_staleness: Mapping[str, int]
    """role -> largest lag that is still trained"""

    def wanted(self, role: str) -> int:
        """Samples of a role in a full batch."""
        designers = round(self.batch * self.designer_share)
        return designers if role == DESIGNER else self.batch - designers


@dataclass(slots=True)
class Pool:
    """Samples in hand, by group; the learner's only store of what it may train on next."""

    groups: dict[str, list[Held]] = field(default_factory=dict)

    def add(self, samples: Sequence[Held]) -> None:
        """Takes samples; a sample that is already there replaces itself (a lease can be granted again)."""
        for sample in samples:
            members = self.groups.setdefault(sample.group, [])
            members[:] = [m for m in members if m.id != sample.id]
            members.append(sample)

    def remove(self, ids: set[str]) -> None:
        """Forgets samples whose leases are gone."""
        for name in list(self.groups):
            left = [m for m in self.groups[name] if m.id not in ids]
            if left:
                self.groups[name] = left
            else:
                del self.groups[name]

    def count(self, role: str | None = None) -> int:
        """Samples in hand, of one role or all."""
        return sum(role is None or m.role == role for members in self.groups.values() for m in members)

    def take_stale(self, version: int, rules: Rules) -> list[Held]:
        """Removes and returns the groups with a member too old to be trained at `version`."""
        stale = [
            name
            for name, members in self.groups.items()
            if any(version - m.oldest > rules.max_staleness[m.role] for m in members)
        ]
        return [m for name in stale for m in self.groups.pop(name)]

    def take_batch(self, rules: Rules, waited_s: float) -> list[Held]:
        """Removes and returns the next batch, or nothing while it pays to wait.

        A batch starts when `batch` samples are in hand, or after `max_wait_s` with at least `min_batch`. Each role
        first gets its wanted number, oldest groups first; what is still missing comes from the other role, since
        samples that are left lying only age and hold back new ones. The last group may overshoot `batch`.
        """
        available = self.count()
        if available < rules.batch and (waited_s < rules.max_wait_s or available < max(1, rules.min_batch)):
            return []
        order = sorted(self.groups, key=lambda name: (min(m.put_at for m in self.groups[name]), name))
        chosen: list[str] = []
        taken = Counter[str]()
        for limited in (True, False):
            for name in order:
                role = self.groups[name][0].role
                room = taken[role] < rules.wanted(role) if limited else True
                if name not in chosen and room and taken.total() < rules.batch:
                    chosen.append(name)
                    taken[role] += len(self.groups[name])
        return [m for name in chosen for m in self.groups.pop(name)]


def staleness(samples: Sequence[Held], version: int) -> dict[str, int]:
    """Histogram: versions a sample lags behind -> samples."""
    counted = Counter(max(0, version - sample.oldest) for sample in samples)
    return {str(lag): counted[lag] for lag in sorted(counted)}


def minibatches(roles: Sequence[str], count: int, rng: random.Random) -> list[list[int]]:
    """Cuts sample indices into at most `count` non-empty minibatches, each with its share of every role."""
    cut: list[list[int]] = [[] for _ in range(min(count, len(roles)))]
    dealt = 0
    for role in sorted(set(roles)):
        members = [i for i, r in enumerate(roles) if r == role]
        rng.shuffle(members)
        for index in members:
            cut[dealt % len(cut)].append(index)
            dealt += 1
    return cut


def microbatches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Cuts sequences into packed rows of at most `budget` tokens, similar lengths together; a longer one goes alone."""
    rows: list[list[int]] = []
    used = 0
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if not rows or used + lengths[index] > budget:
            rows.append([])
            used = 0
        rows[-1].append(index)
        used += lengths[index]
    return rows
