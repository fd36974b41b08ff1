"""Arranging one step's requests into groups whose attention runs together.  Pure numpy.

Always holds: every request is in exactly one group; requests with one new token (decoding) come first, in ascending slot order
inside a group, and never share a group with those that read a prompt.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

# Measured on two x86 cores: one more group costs about as much as this many cache columns read per layer.
_GROUP_COSTS = 1000
# Reading a run of slots in place, unused ones included, beats copying the used ones out up to this ratio.
_IN_PLACE = 1.4


class Group(NamedTuple):
    """Requests [first, last) of the arranged order: at most ``width`` new tokens and ``length`` cached positions each.

    With ``high > low`` the cache is read in place over the slots [low, high), else it is gathered.
    """

    first: int
    last: int
    width: int
    length: int
    low: int = 0
    high: int = 0


def arrange(slots: Ints, starts: Ints, counts: Ints) -> tuple[Ints, list[Group]]:
    """Order of the requests and their groups.  Request i feeds ``counts[i]`` >= 1 tokens from position ``starts[i]``."""
    lengths = starts + counts
    single = np.flatnonzero(counts == 1)
    parts: list[Ints] = []
    groups: list[Group] = []
    done = 0
    by_length = single[np.argsort(-lengths[single], kind="stable")]
    while by_length.size:
        upto = lengths[by_length]
        saved = (upto[0] - upto) * np.arange(len(upto), 0, -1)
        best = int(saved.argmax())
        cut = best if saved[best] > _GROUP_COSTS else len(by_length)
        members, by_length = by_length[:cut], by_length[cut:]
        members = members[np.argsort(slots[members])]
        low, high = int(slots[members[0]]), int(slots[members[-1]]) + 1
        if high - low > _IN_PLACE * cut:
            low = high = 0
        parts.append(members)
        groups.append(Group(done, done + cut, 1, int(upto[0]), low, high))
        done += cut

    reading = np.flatnonzero(counts > 1)
    reading = reading[np.lexsort((-lengths[reading], -counts[reading]))]
    while reading.size:
        width, length, cut = int(counts[reading[0]]), int(lengths[reading[0]]), 1
        while cut < reading.size:
            following = reading[cut]
            wide = max(length, int(lengths[following]))
            if width * wide > 2 * int(counts[following]) * int(lengths[following]) + 4 * _GROUP_COSTS:
                break
            length, cut = wide, cut + 1
        parts.append(reading[:cut])
        groups.append(Group(done, done + cut, width, length))
        done, reading = done + cut, reading[cut:]
    return np.concatenate(parts), groups
