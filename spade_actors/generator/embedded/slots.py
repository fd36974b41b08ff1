"""Cache slots: which tokens lie in which slot, who uses it, and which slot serves a new prompt best.

Bookkeeping only; the keys and values themselves belong to ``forward.Cache``, addressed by the same slot numbers.

Always holds: ``computed[s] <= length[s]``, the cache of slot ``s`` is valid for its first ``computed[s]`` tokens, and a prompt
is matched only against slots of its own key.  A running slot is never handed out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Copying a shorter prefix from another slot costs more than computing it again.
_WORTH_COPYING = 4
_NO_KEY = -1


class Grant(NamedTuple):
    """``slot`` now runs; its first ``reused`` tokens are cached once ``copy_from`` (if any) has been copied into it."""

    slot: int
    reused: int
    copy_from: int | None


class SlotTable:
    """``slots`` rows of at most ``max_len`` tokens each."""

    def __init__(self, slots: int, max_len: int) -> None:
        self.slots, self.max_len = slots, max_len
        self.tokens: NDArray[np.int32] = np.zeros((slots, max_len), np.int32)
        self.length: NDArray[np.int64] = np.zeros(slots, np.int64)
        self.computed: NDArray[np.int64] = np.zeros(slots, np.int64)
        self._key = np.full(slots, _NO_KEY, np.int64)
        self._keys: dict[str, int] = {}
        self._next_key = 0
        self._running = np.zeros(slots, np.bool_)
        self._forget_on_release = np.zeros(slots, np.bool_)
        self._used_at = np.zeros(slots, np.int64)
        self._clock = 0

    @property
    def running(self) -> int:
        """Slots in use by a request."""
        return int(self._running.sum())

    def acquire(self, tokens: NDArray[np.int32], key: str) -> Grant | None:
        """Give the request a slot that holds ``tokens``, or ``None`` when all slots run.

        Reuses the longest cached prefix of the same ``key``, but never the last token: its logits are needed.  A slot whose
        whole cache is a prefix of ``tokens`` is continued in place; otherwise the least recently used slot is overwritten.
        """
        if self._running.all():
            return None
        key_id = self._key_id(key)
        source, shared = self._longest_prefix(tokens, key_id)
        if shared >= self.computed[source] and shared > 0 and not self._running[source]:
            slot, copy_from = source, None
        else:
            slot = int(np.argmin(np.where(self._running, np.iinfo(np.int64).max, self._used_at)))
            copy_from = source if source != slot and shared >= _WORTH_COPYING else None
            if source != slot and copy_from is None:
                shared = 0
        self._running[slot] = True
        self._key[slot] = key_id
        self.tokens[slot, : len(tokens)] = tokens
        self.length[slot] = len(tokens)
        self.computed[slot] = shared
        return Grant(slot, shared, copy_from)

    def release(self, slot: int) -> None:
        """The request is over; what it computed stays for its next turn."""
        self._running[slot] = False
        self._clock += 1
        self._used_at[slot] = self._clock
        if self._forget_on_release[slot]:
            self._clear(slot)

    def flush(self) -> None:
        """Forget every cached prefix; running slots keep theirs until they are released."""
        self._forget_on_release |= self._running
        for slot in np.flatnonzero(~self._running):
            self._clear(int(slot))

    def _key_id(self, key: str) -> int:
        """A number per key, never used for another one; keys that no slot holds are forgotten now and then."""
        if key not in self._keys:
            if len(self._keys) > 4 * self.slots:
                held = set(self._key.tolist())
                self._keys = {name: number for name, number in self._keys.items() if number in held}
            self._keys[key] = self._next_key
            self._next_key += 1
        return self._keys[key]

    def _longest_prefix(self, tokens: NDArray[np.int32], key_id: int) -> tuple[int, int]:
        candidates = np.flatnonzero((self._key == key_id) & (self.computed > 0))
        width = len(tokens) - 1
        if not candidates.size or width < 1:
            return 0, 0
        differs = self.tokens[candidates, :width] != tokens[:width]
        shared = np.where(differs.any(axis=1), differs.argmax(axis=1), width)
        shared = np.minimum(shared, self.computed[candidates])
        # Among equals, one that need not be copied.
        best = int(np.argmax(shared * 2 + ~self._running[candidates]))
        return int(candidates[best]), int(shared[best])

    def _clear(self, slot: int) -> None:
        self._key[slot] = _NO_KEY
        self.computed[slot] = self.length[slot] = 0
        self._used_at[slot] = 0
        self._forget_on_release[slot] = False
