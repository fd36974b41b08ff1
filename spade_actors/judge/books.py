"""What the trial machine keeps, and the moves every decision is made of: touching, releasing, resolving, forgetting.

Always holds: whatever changes an entity also drafts its row; an entity leaves memory with its end, its row stays.
"""

from collections import Counter
from typing import Any

import msgspec

from spade_actors.judge import groups
from spade_actors.judge.capacity import capacity
from spade_actors.judge.effects import Announce, PutSamples, TellMemory, WriteDesign, WriteEpisodes
from spade_actors.judge.evaluation import Evaluation
from spade_actors.judge.groups import Design, Group
from spade_actors.judge.heldout import HeldOut
from spade_actors.judge.rules import Rules
from spade_actors.judge.state import Change, Draft, NewSample, Saved, ledger_of
from spade_actors.judge.trials import Trial
from spade_protocols.sample import SampleItem


class Books:
    """The entities of a run that have not ended, the ledger, and the draft of the next change."""

    def __init__(self, rules: Rules, heldout: list[HeldOut], saved: Saved) -> None:
        self.rules = rules
        self.heldout = heldout
        self.meta = saved.meta
        self.ledger = ledger_of(saved)
        self.counters = Counter(saved.meta.counters)
        self.groups: dict[str, Group] = {group.id: group for group in saved.groups}
        self.designs: dict[str, Design] = {m.id: m for group in saved.groups for m in group.members}
        self.trials: dict[str, Trial] = {trial.id: trial for trial in saved.trials}
        self.evaluations: dict[str, Evaluation] = {e.id: e for e in saved.evaluations}
        self.examinations = set(saved.done_evaluations) | set(self.evaluations)
        self.draft = Draft()

    def take(self) -> Change:
        """What has changed since the last call."""
        return self.draft.take(self.meta, self.ledger, self.counters)

    # capacity

    def running(self) -> int:
        """Trainable samples that open designs and trials can still yield."""
        rules = self.rules
        agents = sum(trial.yields(rules) for trial in self.trials.values())
        agents += self.untried() * rules.pairs * len(rules.arms_trained)
        designers = sum(group.yields() for group in self.groups.values()) if rules.train_designer else 0
        return agents + designers

    def untried(self) -> int:
        """Designs between their brief and the gate's decision."""
        return sum(design.state in ("granted", "proposed") for design in self.designs.values())

    def capacity(self) -> int:
        """See `capacity.capacity`."""
        return capacity(self.rules.eta, self.rules.batch, self.ledger.waiting, self.running())

    def _touch(self, design: Design) -> None:
        self.draft.designs[design.id] = design
        self.draft.groups[design.group] = self.groups[design.group]

    def _save_plays(self, trial: Trial) -> None:
        self.draft.plays |= {name: (trial.id, play) for name, play in trial.plays.items()}

    def _sample(self, role: str, trial: str, advantage: float, tokens: int, length: int, oldest: int) -> SampleItem:
        return SampleItem(
            role=role, trial=trial, advantage=advantage, tokens=tokens, length=length, oldest=oldest,
            ready_version=self.meta.version,
        )  # fmt: skip

    def _put_samples(self, group: str, items: dict[str, SampleItem]) -> None:
        if not items:
            return
        self.ledger.release(list(items))
        bodies: dict[str, dict[str, Any]] = {name: msgspec.to_builtins(item) for name, item in items.items()}
        self.draft.samples += [
            NewSample(name, item.role, item.trial, group, item.advantage) for name, item in items.items()
        ]
        self.draft.effects.append(PutSamples(group=group, items=bodies))

    def _tell_memory(
        self, design: Design, admitted: bool, verdicts: list[dict[str, Any]], scores: dict[str, float]
    ) -> None:
        self.draft.effects.append(
            TellMemory(
                design=design.id, environment=design.environment, skill=design.skill, version=design.first,
                admitted=admitted, verdicts=verdicts, scores=scores,
            )
        )  # fmt: skip

    def _close_record(self, trial: Trial, scores: dict[str, float], returns: dict[str, float], kept: list[str]) -> None:
        body = {"trial": trial.id, "environment": trial.environment, "skill": trial.skill, "title": trial.title}
        body |= {"state": trial.state, "reason": trial.reason[:500]}
        self.draft.trials[trial.id] = trial
        self._save_plays(trial)
        self.draft.effects += [
            Announce(event="trial.scored", body={**body, "scores": scores}, id=f"trial-{trial.id}"),
            WriteDesign(
                design=trial.id, environment=trial.environment, state=trial.state, reason=trial.reason,
                skill=trial.skill, verdicts=trial.verdicts, scores=scores,
            ),
            WriteEpisodes(trial=trial.id, returns=returns, keep=kept),
        ]  # fmt: skip
        del self.trials[trial.id]

    def _withdraw(self, design: Design, reason: str) -> None:
        design.state, design.reason = "withdrawn", reason
        self.counters["designs_withdrawn"] += 1
        self._write_design(design, [])
        self._resolved(design)

    def _invalid(self, design: Design, reason: str, verdicts: list[dict[str, Any]] | None = None) -> None:
        design.state, design.reward, design.reason = "invalid", self.rules.invalid_reward, reason
        self.counters["designs_invalid"] += 1
        self._write_design(design, verdicts or [])
        self._resolved(design)

    def _write_design(self, design: Design, verdicts: list[dict[str, Any]]) -> None:
        if design.attempt:
            self.draft.effects.append(
                WriteDesign(
                    design=design.id, environment=design.delivered, state=design.state, reason=design.reason,
                    skill=design.skill, verdicts=verdicts,
                )
            )  # fmt: skip

    def _resolved(self, design: Design) -> None:
        group = self.groups[design.group]
        self._touch(design)
        if group.state != "open" or not group.complete:
            return
        advantages = groups.released(group, self.rules)
        members = {member.id: member for member in group.members}
        items = {
            name: self._sample(
                "designer", name, advantage, members[name].trained, members[name].length, members[name].oldest
            )
            for name, advantage in advantages.items()
            if members[name].trained
        }
        self.counters["designer_samples_zero"] += sum(m.state != "withdrawn" for m in group.members) - len(items)
        self._put_samples(group.id, items)
        self._forget(group, keep=set(items))

    def _forget(self, group: Group, keep: set[str] | None = None) -> None:
        self.draft.groups[group.id] = group
        self.draft.dropped += [m.id for m in group.members if m.id not in (keep or set())]
        del self.groups[group.id]
        for member in group.members:
            del self.designs[member.id]
