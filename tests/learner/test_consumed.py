"""No sample is trained twice in the history that survives a crash."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spade_actors.learner.consumed import Consumed, Seen


def test_a_saved_sample_that_is_leased_again_is_to_be_ended():
    consumed = Consumed(["a"])
    assert consumed.leased("a", "1") is Seen.SAVED
    assert consumed.leased("b", "2") is Seen.NEW
    consumed.trained({"b": "2"})
    assert consumed.leased("b", "3") is Seen.UNSAVED
    assert consumed.ids() == ["a", "b"]
    assert consumed.checkpointed() == {"b": "3"}
    assert consumed.leased("b", "4") is Seen.SAVED
    consumed.ended(["a", "b", "never"])
    assert consumed.ids() == []


class Crashes(RuleBasedStateMachine):
    """A hub with ten samples, a learner that trains, checkpoints and crashes anywhere in between."""

    def __init__(self):
        super().__init__()
        self.ended: set[str] = set()
        self.disk_ids: list[str] = []
        self.disk_history: list[str] = []
        self.history: list[str] = []
        self.consumed = Consumed()
        self.serial = 0
        self.ours: dict[str, str] = {}

    @rule(which=st.sets(st.integers(0, 9), min_size=1, max_size=4))
    def lease_and_train(self, which):
        for i in (f"s{n}" for n in sorted(which)):
            if i in self.ended or i in self.ours:
                continue
            self.serial += 1
            seen = self.consumed.leased(i, str(self.serial))
            if seen is Seen.SAVED:
                self.ended.add(i)
                self.consumed.ended([i])
                continue
            self.ours[i] = str(self.serial)
            if seen is Seen.NEW:
                self.history.append(i)
                self.consumed.trained({i: str(self.serial)})

    @rule(which=st.sets(st.integers(0, 9), max_size=4))
    def leases_are_lost(self, which):
        for n in which:
            self.ours.pop(f"s{n}", None)

    @rule(reaches_hub=st.booleans())
    def checkpoint(self, reaches_hub):
        self.disk_ids, self.disk_history = self.consumed.ids(), list(self.history)
        due = self.consumed.checkpointed()
        if reaches_hub:
            done = [i for i, lease in due.items() if self.ours.get(i) == lease]
            self.ended |= set(done)
            self.consumed.ended(done)

    @rule()
    def crash(self):
        self.history, self.ours = list(self.disk_history), {}
        self.consumed = Consumed([i for i in self.disk_ids if i not in self.ended])

    @invariant()
    def trained_at_most_once(self):
        assert len(self.history) == len(set(self.history))
        assert self.ended <= set(self.disk_history)


TestCrashes = Crashes.TestCase
TestCrashes.settings = settings(max_examples=60, stateful_step_count=30)
