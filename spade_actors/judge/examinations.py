"""The held-out side of the trial machine: which evaluations there are, when they open, and when the run is complete.

Always holds: the first evaluation's plays are asked for before any trial's; the run is complete once, after its last
evaluation.
"""

from collections.abc import Iterable

from spade_actors.judge import evaluation
from spade_actors.judge.books import Books
from spade_actors.judge.effects import Announce, PutEvalPlays, StoreHeldOut, WriteEvaluation
from spade_actors.judge.evaluation import Evaluation


class Examinations(Books):
    """Evaluations on top of the books."""

    def synchronised(self, generators: Iterable[str]) -> bool:
        """Whether the newest version samples: one generator applied it, and none of these (in service) lags."""
        newest, applied = self.meta.version, self.meta.applied
        if newest == 0:
            return True
        return newest in applied.values() and all(applied.get(name, 0) >= newest for name in generators)

    def heldout_ready(self, name: str) -> None:
        """The environments of an evaluation are stored."""
        examination = self.evaluations.get(name)
        if examination is not None and examination.state == "planned":
            examination.state = "stored"
            self.draft.evaluations[name] = examination

    def _open_evaluations(self, synchronised: bool) -> None:
        if self.meta.examined < 0:
            self.meta.examined = self.meta.version
            self._examine(evaluation.FIRST)
        for examination in self.evaluations.values():
            if examination.state == "stored" and (synchronised or examination.version < self.meta.version):
                examination.state = "open"
                self.draft.evaluations[examination.id] = examination
                self.draft.effects.append(PutEvalPlays(evaluation=examination.id))

    def _examine(self, label: str) -> None:
        planned = evaluation.plan(self.meta.version, label, self.heldout, self.rules)
        if not planned.plays or planned.id in self.examinations:
            return
        self.examinations.add(planned.id)
        self.evaluations[planned.id] = planned
        self.draft.evaluations[planned.id] = planned
        self.draft.eval_plays |= {name: (planned.id, play) for name, play in planned.plays.items()}
        self.draft.effects.append(StoreHeldOut(evaluation=planned.id))

    def _examined(self, examination: Evaluation) -> None:
        if not examination.complete:
            return
        examination.state = "done"
        del self.evaluations[examination.id]
        self.draft.evaluations[examination.id] = examination
        body = {"version": examination.version, "label": examination.label, "pinned": examination.pinned}
        body["scores"] = evaluation.scores(examination)
        self.draft.effects.append(WriteEvaluation(evaluation=examination.id))
        self.draft.effects.append(
            Announce(event="evaluation.done", body=body, id=examination.id, key=examination.id, retain=True)
        )
        self._complete()

    def _abandon(self, name: str) -> None:
        """The plays of an evaluation cannot be released: all are lost."""
        examination = self.evaluations.get(name)
        if examination is None:
            return
        examination.state = "open"
        for play in examination.open_plays():
            play.state = "lost"
            self.draft.eval_plays[play.id] = (name, play)
        self._examined(examination)

    def _drop_smaller(self) -> None:
        """The last evaluation examines the same version on more environments."""
        for name in [e.id for e in self.evaluations.values() if e.label == evaluation.BETWEEN and e.state != "open"]:
            dropped = self.evaluations.pop(name)
            evaluation.drop(dropped)
            self.draft.evaluations[name] = dropped
            self.draft.eval_plays |= {play.id: (name, play) for play in dropped.plays.values()}

    def _complete(self) -> None:
        if self.meta.final and not self.evaluations and not self.meta.complete:
            self.meta.complete = True
            self.draft.effects.append(
                Announce(
                    event="run.state",
                    body={"state": "complete", "reason": f"{self.meta.step} updates done"},
                    id=f"complete-{self.meta.seq}",
                    retain=True,
                )
            )
