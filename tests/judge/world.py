"""A small world around the trial machine: hub queues, memory, agents and a learner, all driven by hand."""

import sqlite3
from collections.abc import Callable

import msgspec

from spade_actors.judge import effects, spool
from spade_actors.judge.heldout import HeldOut
from spade_actors.judge.machine import Delivered, Machine
from spade_actors.judge.rules import Rules
from spade_actors.judge.trials import Outcome, play_scores
from spade_actors.scoring import score_trial
from spade_protocols.design import Admission, DesignResult
from spade_protocols.play import ScoreTrial, TrialScore
from spade_protocols.queues import DESIGNS, PLAYS, PROPOSALS, SAMPLES, ItemEnded
from spade_protocols.sample import LearnerStepped, SampleItem


def rules(**changes: object) -> Rules:
    """Small numbers: two pairs, groups of two designs, batches of ten."""
    base = {"eta": 1, "batch": 10, "pairs": 2, "min_pairs": 1, "design_group": 2, "skills": ("a", "b"), "steps": 99}
    return Rules(**{**base, **changes})  # type: ignore[arg-type]


class World:
    """The machine, its journal in memory, and everything its effects did."""

    def __init__(self, machine_rules: Rules, heldout: list[HeldOut] | None = None) -> None:
        self.rules = machine_rules
        self.heldout = heldout or []
        self.db = sqlite3.connect(":memory:")
        self.db.executescript(spool.SCHEMA)
        self.queues: dict[str, dict[str, str]] = {name: {} for name in (DESIGNS, PROPOSALS, PLAYS, SAMPLES)}
        """item -> ready | completed | cancelled | dead"""
        self.sample_items: dict[str, SampleItem] = {}
        self.sample_group: dict[str, str] = {}
        self.events: list[tuple[str, dict[str, object]]] = []
        self.put_log: list[str] = []
        self.pending: dict[str, list[tuple[int, effects.Effect]]] = {"memory": [], "hub": [], "record": []}
        self.done: list[int] = []
        self.number = 0
        self.synchronised = True
        self.machine = Machine(machine_rules, self.heldout, msgspec.json.decode(b"{}", type=spool.Saved))

    def commit(self, plan: bool = True) -> None:
        """Plans, journals the change and hands its effects to their lanes."""
        if plan:
            self.machine.plan(self.synchronised)
        change = self.machine.take()
        numbered = []
        for effect in change.effects:
            self.number += 1
            numbered.append((self.number, effect))
            self.pending[effects.LANES[type(effect)]].append(numbered[-1])
        spool.run(self.db, spool.statements(change))
        spool.run(self.db, spool.effect_statements(numbered, self.done))
        self.done = []

    def restart(self) -> None:
        """The judge dies after a commit; another one goes on from the journal."""
        saved, left = spool.load(self.db)
        self.machine = Machine(self.rules, self.heldout, saved)
        self.pending = {"memory": [], "hub": [], "record": []}
        for number, effect in left:
            self.pending[effects.LANES[type(effect)]].append((number, effect))

    def carry_out(self, lane: str, forget: bool = True) -> None:
        """The lane's next effect; without `forget` its end is not journalled, so that a restart repeats it."""
        number, effect = self.pending[lane].pop(0)
        match effect:
            case effects.GrantDesigns():
                for grant in effect.grants:
                    if grant.id in self.machine.designs:
                        self.queues[DESIGNS].setdefault(grant.id, "ready")
            case effects.FetchHint():
                self.machine.hint_ready(effect.trial, "title", "hint")
            case effects.StoreHeldOut():
                self.machine.heldout_ready(effect.evaluation)
            case effects.PutPlays():
                trial = self.machine.trials.get(effect.trial)
                for play in trial.plays if trial else ():
                    self._put(PLAYS, play)
            case effects.PutEvalPlays():
                examination = self.machine.evaluations.get(effect.evaluation)
                for play in examination.plays if examination else ():
                    self._put(PLAYS, play)
            case effects.PutSamples():
                for name, body in effect.items.items():
                    self._put(SAMPLES, name)
                    self.sample_items[name] = msgspec.convert(body, SampleItem)
                    self.sample_group[name] = effect.group
            case effects.CancelItems():
                for name in effect.ids:
                    self.end(effect.queue, name, "cancelled")
            case effects.Announce():
                self.events.append((effect.event, effect.body))
            case _:
                pass
        if forget:
            self.done.append(number)

    def settle(self) -> None:
        """Commits and carries out until nothing is left to do."""
        self.commit()
        while any(self.pending.values()):
            for lane in self.pending:
                while self.pending[lane]:
                    self.carry_out(lane)
            self.commit()

    def _put(self, queue: str, name: str) -> None:
        if name not in self.queues[queue]:
            self.queues[queue][name] = "ready"
            self.put_log.append(name)

    def ready(self, queue: str) -> list[str]:
        """Items without an end."""
        return [name for name, state in self.queues[queue].items() if state == "ready"]

    def end(self, queue: str, name: str, state: str, result: object = None) -> None:
        """The hub ends an item once, and tells."""
        if self.queues[queue].get(name) != "ready":
            return
        self.queues[queue][name] = state
        event = ItemEnded(queue=queue, id=name, state=state, result=msgspec.to_builtins(result or {}))
        {
            DESIGNS: self.machine.design_ended,
            PROPOSALS: self.machine.proposal_ended,
            PLAYS: self.machine.play_ended,
            SAMPLES: self.machine.sample_ended,
        }[queue](event)

    def generate(self, design: str, *, version: int | None = None, attempt: int = 1, code: bool = True) -> bool:
        """A designer delivers a generation."""
        at = self.machine.meta.version if version is None else version
        return self.machine.design_delivered(
            Delivered(
                design=design, attempt=attempt, environment=f"env-{design}" if code else "", oldest=at, first=at,
                trained=20, length=30,
            )
        )  # fmt: skip

    def propose(self, design: str, code: bool = True) -> None:
        """A designer completes its item, with a proposal or without."""
        environment = f"env-{design}" if code else ""
        if code:
            self.queues[PROPOSALS].setdefault(design, "ready")
        self.end(DESIGNS, design, "completed", DesignResult(proposed=code, environment=environment, reason="no_code"))

    def gate(self, design: str, admitted: bool) -> None:
        """The sandbox decides."""
        verdict = Admission(admitted=admitted, environment=f"env-{design}", failed="" if admitted else "runtime")
        self.end(PROPOSALS, design, "completed", verdict)

    def admit(self, design: str, version: int | None = None) -> None:
        """A design from its brief to an open trial."""
        self.generate(design, version=version)
        self.propose(design)
        self.gate(design, True)
        self.settle()

    def play(
        self, name: str, reward: float = 0.0, *, version: int | None = None, complete: bool = True, **fields: object
    ) -> bool:
        """An agent delivers a play that the environment terminated, and completes its item."""
        at = self.machine.meta.version if version is None else version
        outcome = Outcome(
            finished=True, ending="terminated", rewards=(reward,), terminated=True, turns=1, trained=3, length=9,
            oldest=at, newest=at, version=float(at),
        )  # fmt: skip
        new = self.machine.play_delivered(name.split(".")[0], name, msgspec.structs.replace(outcome, **fields))
        if complete:
            self.end(PLAYS, name, "completed")
        return new

    def score(self, change: Callable[[TrialScore], TrialScore] = lambda score: score) -> None:
        """Scores what is complete."""
        for trial in self.machine.to_score():
            asked = ScoreTrial(
                trial=trial.id, environment=trial.environment, skill=trial.skill, plays=play_scores(trial)
            )
            self.machine.scored(trial.id, change(score_trial(asked)))

    def finish_trial(self, design: str, plain: list[float], hinted: list[float]) -> None:
        """All plays of an open trial, then its score."""
        for arm, values in (("p", plain), ("h", hinted)):
            for index, value in enumerate(values):
                self.play(f"{design}.{index}.{arm}", value)
        self.score()
        self.settle()

    def step(self, number: int, samples: int, version: int, final: bool = False) -> None:
        """The learner consumed a batch."""
        self.machine.stepped(
            LearnerStepped(
                step=number, version=version, samples=samples, stale=0, by_role={}, staleness={}, metrics={},
                seconds=1.0, final=final,
            )
        )  # fmt: skip
