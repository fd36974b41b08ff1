"""The sample ledger: what was released, what a step consumed, what is left.

Always holds: `released = waiting + taken + ended`, where `taken` are samples of steps no checkpoint contains yet. A step
consumes exactly the batch it took; a crash of the learner puts the samples of its lost steps back among the waiting.
Capacity = (eta + 1) * B - (waiting + running), in trainable samples.
"""

import msgspec


class LedgerError(RuntimeError):
    """An account that does not add up: an end of a sample that was never released."""


class Ledger(msgspec.Struct, kw_only=True):
    """Counts of samples, with the ids of those that have not ended."""

    open: set[str] = msgspec.field(default_factory=set)
    """released and not ended; taken ones included"""
    taken: dict[int, int] = msgspec.field(default_factory=dict)
    """step -> samples of its batch whose end was not seen yet"""
    released: int = 0
    trained: int = 0
    stale: int = 0
    lost: int = 0
    """ended otherwise: cancelled or dead"""

    @property
    def waiting(self) -> int:
        """Samples a learner may still take.

        An end may be seen before the step that took the sample is, or a lost step's samples after its learner
        returned; then more are taken than open, and nothing waits.
        """
        return max(0, len(self.open) - sum(self.taken.values()))

    def release(self, ids: list[str]) -> None:
        """Samples went into the queue; each id once."""
        fresh = set(ids) - self.open
        if len(fresh) != len(ids):
            raise LedgerError(f"sample {next(i for i in ids if i in self.open)} is released twice")
        self.open |= fresh
        self.released += len(fresh)

    def stepped(self, step: int, samples: int) -> None:
        """A step consumed its batch. A step done again after a crash replaces the lost one."""
        self.taken[step] = samples

    def restarted(self, step: int) -> None:
        """The learner goes on from `step`: what later steps took is waiting again."""
        for lost in [s for s in self.taken if s > step]:
            del self.taken[lost]

    def checkpointed(self, step: int) -> None:
        """All samples of the steps up to `step` have ended."""
        for done in [s for s in self.taken if s <= step]:
            del self.taken[done]

    def ended(self, sample: str, outcome: str) -> bool:
        """A sample's one end: "trained", "stale" or anything else (lost). False if it had ended or never was."""
        if sample not in self.open:
            return False
        self.open.remove(sample)
        if outcome == "trained":
            self.trained += 1
            for step in sorted(self.taken):
                if self.taken[step] > 0:
                    self.taken[step] -= 1
                    break
        elif outcome == "stale":
            self.stale += 1
        else:
            self.lost += 1
        return True


def capacity(eta: int, batch: int, waiting: int, running: int) -> int:
    """Trainable samples that may still be set going; negative when more is under way than allowed."""
    return (eta + 1) * batch - (waiting + running)
