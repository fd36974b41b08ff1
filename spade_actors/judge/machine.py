"""The trial machine: every decision of the judge, without tasks, sockets or clocks.

Inputs are what was delivered and what the journal says, in order; each may be given twice. Outputs are a `Change` (rows
and effects, taken by `take`). Always holds: a design is resolved once, a play ends once, a group is released once, and
the samples of every design are at any moment either running, waiting, consumed, or counted among those that left.
"""

from collections.abc import Iterable

import msgspec

from spade_actors.judge import ageing, evaluation, trials
from spade_actors.judge.effects import (
    CancelItems,
    Effect,
    FetchHint,
    GrantDesigns,
    PutEvalPlays,
    PutPlays,
    PutSamples,
    StoreHeldOut,
)
from spade_actors.judge.examinations import Examinations
from spade_actors.judge.groups import Design, Group
from spade_actors.judge.rules import grants_allowed
from spade_actors.judge.trials import Outcome, Trial
from spade_actors.scoring.advantage import EPSILON
from spade_protocols.design import Admission, DesignResult, Grant
from spade_protocols.play import TrialScore
from spade_protocols.queues import DESIGNS, PLAYS, PROPOSALS, ItemEnded
from spade_protocols.sample import LearnerStepped


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """What a delivered generation says about its design."""

    design: str
    attempt: int
    environment: str
    oldest: int
    first: int
    trained: int
    length: int


class Machine(Examinations):
    """See the module. The actor serialises its inputs and saves each `Change` before it answers anybody."""

    def plan(self, synchronised: bool) -> None:
        """Opens evaluations and grants designs, as far as capacity and, with eta = 0, the newest version allow."""
        self._open_evaluations(synchronised)
        if self.meta.final or (self.rules.eta == 0 and not synchronised):
            return
        grants: list[Grant] = []
        for _ in range(grants_allowed(self.capacity(), self.rules.per_trial)):
            design = self.meta.rotation.grant(self.rules, self.groups)
            self.designs[design.id] = design
            self._touch(design)
            grants.append(Grant(id=design.id, group=design.group, skill=design.skill, seed=design.seed))
        if grants:
            self.counters["designs_granted"] += len(grants)
            self.draft.effects.append(GrantDesigns(grants=grants))

    # designs

    def design_delivered(self, delivered: Delivered) -> bool:
        """A generation's tokens are to be stored; False when an earlier or newer delivery stands."""
        design = self.designs.get(delivered.design)
        if design is None or design.state != "granted" or delivered.attempt <= design.attempt:
            self.counters["deliveries_duplicate"] += 1
            return False
        design.attempt, design.delivered = delivered.attempt, delivered.environment
        design.oldest, design.first = delivered.oldest, delivered.first
        design.trained, design.length = delivered.trained, delivered.length
        self._touch(design)
        self._age([], [self.groups[design.group]])
        return True

    def design_ended(self, event: ItemEnded) -> None:
        """A generation led to a proposal, to nothing, or never came."""
        design = self.designs.get(event.id)
        if design is None or design.state != "granted":
            self.counters["ends_ignored"] += 1
            return
        if event.state != "completed":
            self._withdraw(design, f"generation {event.state}: {event.reason}")
            return
        try:
            result = msgspec.convert(event.result, DesignResult)
        except msgspec.ValidationError as error:
            self._withdraw(design, f"malformed result of the generation: {error}")
            return
        if not design.attempt or result.environment != design.delivered:
            self.draft.effects.append(CancelItems(queue=PROPOSALS, ids=[design.id], reason="its tokens are not known"))
            self._withdraw(design, "the judge does not have the tokens of this proposal")
        elif result.proposed:
            design.state, design.environment = "proposed", result.environment
            self._touch(design)
            self.counters["proposals"] += 1
        else:
            self._invalid(design, result.reason or "no proposal")

    def proposal_ended(self, event: ItemEnded) -> None:
        """The gate's one decision about a proposal."""
        design = self.designs.get(event.id)
        if design is None or design.state != "proposed":
            self.counters["ends_ignored"] += 1
            return
        if event.state != "completed":
            self._withdraw(design, f"gate {event.state}: {event.reason}")
            return
        try:
            admission = msgspec.convert(event.result, Admission)
        except msgspec.ValidationError as error:
            self._withdraw(design, f"malformed verdict of the gate: {error}")
            return
        verdicts = [msgspec.to_builtins(verdict) for verdict in admission.verdicts]
        self._tell_memory(design, admission.admitted, verdicts, {})
        if not admission.admitted:
            self.counters["rejected"] += 1
            self._invalid(design, f"{admission.failed}: {admission.reason}", verdicts)
            return
        self.counters["admitted"] += 1
        design.state = "trial"
        trial = trials.open_trial(design.id, design.group, design.skill, design.environment, self.rules)
        trial.verdicts = verdicts
        self.trials[trial.id] = trial
        self.draft.trials[trial.id] = trial
        self._save_plays(trial)
        self._touch(design)
        self.draft.effects.append(FetchHint(trial=trial.id, environment=trial.environment))

    # trials and plays

    def hint_ready(self, name: str, title: str, hint: str) -> None:
        """The environment of an opening trial is at hand: its plays are released."""
        trial = self.trials.get(name)
        if trial is None or trial.state != "opening":
            return
        trial.state, trial.title = "open", title
        self.draft.trials[name] = trial
        self.counters["plays_released"] += len(trial.plays)
        self.draft.effects.append(PutPlays(trial=name, hint=hint))

    def hint_failed(self, name: str, reason: str) -> None:
        """Memory does not have the environment of an opening trial."""
        trial = self.trials.get(name)
        if trial is not None and trial.state == "opening":
            trials.close(trial, "withdrawn", reason)
            self._trial_moved(trial)

    def play_delivered(self, owner: str, name: str, outcome: Outcome) -> bool:
        """A play's trajectory; `owner` is its trial or evaluation. False when its play had ended (or never was)."""
        examination = self.evaluations.get(owner)
        trial = self.trials.get(owner)
        if examination is not None and name in examination.plays:
            new = evaluation.record(examination, name, outcome)
            if new:
                self.draft.eval_plays[name] = (owner, examination.plays[name])
                self._examined(examination)
        elif trial is not None and name in trial.plays:
            new = trials.record(trial, name, outcome)
            if new:
                self.counters[f"plays_{trial.plays[name].state}"] += 1
                self.draft.plays[name] = (owner, trial.plays[name])
                self._trial_moved(trial)
                self._age([trial], [])
        else:
            new = False
        self.counters["deliveries_duplicate"] += not new
        return new

    def play_ended(self, event: ItemEnded) -> None:
        """A play's item ended at the hub. Only an end without a delivered trajectory decides something."""
        owner = event.id.split(".", 1)[0]
        examination = self.evaluations.get(owner)
        trial = self.trials.get(owner)
        if examination is not None and event.id in examination.plays:
            if evaluation.lose(examination, event.id):
                self.draft.eval_plays[event.id] = (owner, examination.plays[event.id])
                self._examined(examination)
        elif trial is not None and event.id in trial.plays:
            reason = event.reason if event.state != "completed" else "completed without a delivered trajectory"
            if trials.lose(trial, event.id, f"play {event.state}: {reason}"):
                self.counters["plays_lost"] += 1
                self.draft.plays[event.id] = (owner, trial.plays[event.id])
                self._trial_moved(trial)

    def to_score(self) -> list[Trial]:
        """Trials whose plays all ended; each is scored until `scored` or `score_failed`."""
        return [trial for trial in self.trials.values() if trial.state == "scoring"]

    def scored(self, name: str, score: TrialScore) -> None:
        """A checked score: releases the agents' groups and resolves the design."""
        trial = self.trials.get(name)
        if trial is None or trial.state != "scoring":
            return
        trial.state = "scored"
        kept: list[str] = []
        for arm in self.rules.arms_trained:
            kept += self._release_arm(trial, arm, score)
        design = self.designs[name]
        design.state, design.reward = "scored", score.designer_reward
        self.counters["trials_scored"] += 1
        self._tell_memory(design, True, trial.verdicts, score.scores)
        self._close_record(trial, score.scores, score.returns, kept)
        self._resolved(design)

    def score_failed(self, name: str, reason: str) -> None:
        """The scorer raised or answered nonsense."""
        trial = self.trials.get(name)
        if trial is not None and trial.state == "scoring":
            self.counters["scorer_failures"] += 1
            trials.close(trial, "withdrawn", reason)
            self._trial_moved(trial)

    # learner, weights, run

    def sample_ended(self, event: ItemEnded) -> None:
        """A sample's one end: in a checkpoint, too old, or otherwise."""
        outcome = str(event.result.get("outcome", "")) if event.state == "completed" else event.state
        if self.ledger.ended(event.id, outcome):
            self.draft.ended.append((event.id, outcome))

    def stepped(self, event: LearnerStepped) -> None:
        """A batch was consumed."""
        self.ledger.stepped(event.step, event.samples)
        self.meta.step = event.step
        self.published(event.version)
        if event.final:
            self._finish()

    def started(self, step: int, version: int) -> None:
        """The learner goes on from `step`; steps after it are lost and their samples wait again."""
        self.ledger.restarted(step)
        self.meta.step = step
        self.meta.version = max(self.meta.version, version)
        if step >= self.rules.steps:
            self._finish()
        else:
            self.meta.final = self.meta.complete = False

    def checkpointed(self, step: int) -> None:
        """Everything up to `step` survives a crash of the learner."""
        self.ledger.checkpointed(step)

    def published(self, version: int) -> None:
        """New weights exist: open work ages, an evaluation may be due."""
        previous = self.meta.version
        if version <= previous:
            return
        self.meta.version = version
        self._age(self.trials.values(), self.groups.values())
        if self.meta.examined >= 0 and evaluation.due(version, self.meta.examined, self.rules):
            self.meta.examined = version
            self._examine(evaluation.BETWEEN)

    def applied(self, generator: str, version: int) -> None:
        """A generator samples by `version` now; one that (re)starts says so before it takes work."""
        self.meta.applied[generator] = version

    def resumed(self) -> None:
        """The run goes on after it was complete or drained."""
        self.meta.final = self.meta.complete = False

    def refused(self, effect: Effect, reason: str) -> None:
        """An effect will never happen: what waits for it ends here."""
        self.counters["effects_given_up"] += 1
        match effect:
            case GrantDesigns():
                for grant in effect.grants:
                    design = self.designs.get(grant.id)
                    if design is not None and design.state == "granted":
                        self._stop(design, reason)
            case FetchHint() | PutPlays():
                trial = self.trials.get(effect.trial)
                if trial is not None and trial.live:
                    trials.close(trial, "withdrawn", reason)
                    self._trial_moved(trial)
            case StoreHeldOut() | PutEvalPlays():
                self._abandon(effect.evaluation)
            case PutSamples():
                for name in effect.items:
                    if self.ledger.ended(name, "refused"):
                        self.draft.ended.append((name, "refused"))
            case _:
                pass

    # inside

    def _finish(self) -> None:
        if self.meta.final:
            self._complete()
            return
        self.meta.final = True
        for design in [d for d in self.designs.values() if not d.resolved]:
            self._stop(design, "the run is complete")
        self._drop_smaller()
        self._examine(evaluation.LAST)
        self._complete()

    def _age(self, open_trials: Iterable[Trial], open_groups: Iterable[Group]) -> None:
        for trial, arm in ageing.stale_arms(open_trials, self.meta.version, self.rules):
            trial.stale_arms.append(arm)
            self.draft.trials[trial.id] = trial
        for group in ageing.stale_groups(open_groups, self.meta.version, self.rules):
            group.state, group.reason = "stale", f"older than {self.rules.designer_bound} versions"
            self.counters["design_groups_stale"] += 1
            self.counters["designs_stale"] += sum(m.state != "withdrawn" for m in group.members)
            for member in group.members:
                if not member.resolved:
                    self._stop(member, "its design group is stale")
            self._forget(group)

    def _stop(self, design: Design, reason: str) -> None:
        trial = self.trials.get(design.id)
        if trial is not None and trial.live:
            trials.close(trial, "withdrawn", reason)
            self._trial_moved(trial)
            return
        queue = DESIGNS if design.state == "granted" else PROPOSALS
        self.draft.effects.append(CancelItems(queue=queue, ids=[design.id], reason=reason))
        self._withdraw(design, reason)

    def _trial_moved(self, trial: Trial) -> None:
        if trial.live:
            if trial.state == "scoring":
                self.draft.trials[trial.id] = trial
            return
        cancelled = [play.id for play in trial.plays.values() if play.state == "cancelled"]
        if cancelled:
            self.counters["plays_cancelled"] += len(cancelled)
            self.draft.effects.append(CancelItems(queue=PLAYS, ids=cancelled, reason=trial.reason[:200]))
        self.counters[f"trials_{trial.state}"] += 1
        self._close_record(trial, {}, {}, [])
        design = self.designs[trial.id]
        if trial.state == "failed":
            design.state, design.reward, design.reason = "invalid", self.rules.invalid_reward, trial.reason
            self.counters["designs_invalid"] += 1
        else:
            design.state, design.reason = "withdrawn", trial.reason
            self.counters["designs_withdrawn"] += 1
        self._resolved(design)

    def _release_arm(self, trial: Trial, arm: str, score: TrialScore) -> list[str]:
        finished = trial.of(arm, "finished")
        if arm in trial.stale_arms:
            self.counters["agent_samples_stale"] += len(finished)
            return []
        moving = [p for p in finished if abs(score.advantages.get(p.id, 0.0)) > EPSILON and p.trained]
        self.counters["agent_samples_zero"] += len(finished) - len(moving)
        items = {
            play.id: self._sample("agent", trial.id, score.advantages[play.id], play.trained, play.length, play.oldest)
            for play in moving
        }
        self._put_samples(f"{trial.id}.{arm}", items)
        return list(items)
