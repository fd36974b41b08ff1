"""The trial machine under any order of deliveries, ends, deaths, crashes and restarts: nothing lost, nothing twice."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spade_actors.judge.heldout import HeldOut
from spade_protocols.queues import DESIGNS, PLAYS, PROPOSALS, SAMPLES
from tests.judge.world import World, rules

HELDOUT = [HeldOut(id=f"h{i}", source=f"class H{i}Env: pass", hint="rule") for i in range(2)]


class JudgeWorld(RuleBasedStateMachine):
    """Rules are what may happen to a judge; invariants what must hold whatever happens."""

    @initialize(eta=st.integers(0, 2), hinted=st.booleans(), frozen=st.booleans(), bound=st.integers(0, 3))
    def begin(self, eta: int, hinted: bool, frozen: bool, bound: int) -> None:
        """A run with small numbers."""
        self.rules = rules(
            eta=eta, train_hinted=hinted, train_designer=not frozen, agent_bound=bound if eta else 0,
            designer_bound=bound + 1 if eta else 0, eval_plays=1, eval_every=3, eval_small=1,
        )  # fmt: skip
        self.world = World(self.rules, HELDOUT)
        self.held: list[str] = []
        self.lost_steps: dict[int, list[str]] = {}
        self.durable = 0
        self.step = 0
        self.world.commit()

    @rule()
    def commit(self) -> None:
        """A decision is journalled."""
        self.world.commit()

    @rule(lane=st.sampled_from(["memory", "hub", "record"]), forget=st.booleans())
    def carry_out(self, lane: str, forget: bool) -> None:
        """An effect happens; its end may be forgotten by a crash, so it happens again after a restart."""
        if self.world.pending[lane]:
            self.world.carry_out(lane, forget)
            if not forget:
                self.world.commit()
                self.world.restart()

    @rule()
    def restart(self) -> None:
        """kill -9 of the judge after a commit."""
        self.world.commit(plan=False)
        self.world.restart()

    @rule(data=st.data(), code=st.booleans(), delivered=st.booleans(), late=st.integers(0, 2))
    def design(self, data: st.DataObject, code: bool, delivered: bool, late: int) -> None:
        """A designer ends its work, perhaps without having delivered, perhaps begun versions ago."""
        name = self._pick(data, DESIGNS)
        if name:
            if delivered:
                self.world.generate(name, version=max(0, self.world.machine.meta.version - late), code=code)
            self.world.propose(name, code)

    @rule(data=st.data(), admitted=st.booleans())
    def gate(self, data: st.DataObject, admitted: bool) -> None:
        """The sandbox decides."""
        name = self._pick(data, PROPOSALS)
        if name:
            self.world.gate(name, admitted)

    @rule(
        data=st.data(),
        reward=st.sampled_from([0.0, 1.0, float("nan")]),
        times=st.integers(1, 4),
        late=st.integers(0, 2),
    )
    def play(self, data: st.DataObject, reward: float, times: int, late: int) -> None:
        """Agents deliver, perhaps twice."""
        version = max(0, self.world.machine.meta.version - late)
        for _ in range(times):
            name = self._pick(data, PLAYS)
            if name:
                self.world.play(name, reward, version=version, complete=data.draw(st.booleans()))
                assert not self.world.play(name, 1.0, version=version)

    @rule(data=st.data(), queue=st.sampled_from([DESIGNS, PROPOSALS, PLAYS, PLAYS]))
    def die(self, data: st.DataObject, queue: str) -> None:
        """An item runs out of attempts."""
        name = self._pick(data, queue)
        if name:
            self.world.end(queue, name, "dead")

    @rule(fails=st.booleans())
    def score(self, fails: bool) -> None:
        """The scorer answers, or raises."""
        if fails:
            for trial in self.world.machine.to_score():
                self.world.machine.score_failed(trial.id, "raised")
        self.world.score()

    @rule(count=st.integers(1, 6))
    def learn(self, count: int) -> None:
        """A step takes what is there and publishes."""
        free = [n for n in self.world.ready(SAMPLES) if n not in self._taken()]
        if free and len(free) >= count:
            self.step += 1
            self.lost_steps[self.step] = free[:count]
            self.world.step(self.step, count, self.world.machine.meta.version + 1)

    @rule()
    def checkpoint(self) -> None:
        """The samples of all steps so far end as trained."""
        for names in self.lost_steps.values():
            for name in names:
                self.world.end(SAMPLES, name, "completed", {"outcome": "trained"})
        self.lost_steps.clear()
        self.durable = self.step
        self.world.machine.checkpointed(self.step)

    @rule()
    def learner_crashes(self) -> None:
        """Steps since the checkpoint are lost; their samples wait again."""
        self.step = self.durable
        self.lost_steps.clear()
        self.world.machine.started(self.step, self.world.machine.meta.version)

    @rule(data=st.data())
    def stale_sample(self, data: st.DataObject) -> None:
        """The learner drops a sample by age."""
        free = [n for n in self.world.ready(SAMPLES) if n not in self._taken()]
        if free:
            self.world.end(SAMPLES, data.draw(st.sampled_from(free)), "completed", {"outcome": "stale"})

    @rule(synchronised=st.booleans())
    def weights(self, synchronised: bool) -> None:
        """Generators catch up, or do not."""
        self.world.synchronised = synchronised

    @precondition(lambda self: self.step > 0)
    @rule()
    def settle_and_compare(self) -> None:
        """With nothing under way, the hub's open items are exactly the machine's open work."""
        self._compare()

    @invariant()
    def waiting_is_what_nobody_took(self) -> None:
        """The ledger's waiting, against the learner's own view."""
        if not hasattr(self, "world"):
            return
        ledger = self.world.machine.ledger
        assert ledger.waiting == len(ledger.open - self._taken())
        assert ledger.released == ledger.trained + ledger.stale + ledger.lost + len(ledger.open)

    @invariant()
    def every_design_is_somewhere(self) -> None:
        """Granted = resolved once + open."""
        if not hasattr(self, "world"):
            return
        machine = self.world.machine
        count = machine.counters
        resolved = count["trials_scored"] + count["designs_invalid"] + count["designs_withdrawn"]
        still = sum(not design.resolved for design in machine.designs.values())
        assert count["designs_granted"] == resolved + still
        assert set(machine.trials) == {d.id for d in machine.designs.values() if d.state == "trial"}

    @invariant()
    def capacity_is_kept(self) -> None:
        """At most one trial's samples above the rule, and a group's members that count again when it is full."""
        if not hasattr(self, "world"):
            return
        machine = self.world.machine
        limit = (self.rules.eta + 1) * self.rules.batch + self.rules.per_trial + self.rules.design_group
        held = sum(len(names) for names in self.lost_steps.values())
        assert machine.running() + machine.ledger.waiting <= limit + self.rules.batch * (held == 0)

    def teardown(self) -> None:
        """At the end everything still adds up."""
        if hasattr(self, "world"):
            self._compare()
            put = self.world.put_log
            assert len(put) == len(set(put))

    def _compare(self) -> None:
        world = self.world
        world.settle()
        world.score()
        world.settle()
        machine = world.machine
        assert set(world.ready(DESIGNS)) == {d.id for d in machine.designs.values() if d.state == "granted"}
        assert set(world.ready(PROPOSALS)) == {d.id for d in machine.designs.values() if d.state == "proposed"}
        plays = {name for trial in machine.trials.values() for name in trial.open_plays()}
        plays |= {p.id for e in machine.evaluations.values() if e.state == "open" for p in e.open_plays()}
        # a play whose trajectory is stored is over for the judge; its item ends when its agent says so
        assert plays <= set(world.ready(PLAYS))
        stored = dict(world.db.execute("SELECT id, state FROM plays UNION SELECT id, state FROM eval_plays"))
        assert all(stored[name] in ("finished", "failed") for name in set(world.ready(PLAYS)) - plays)
        assert set(world.ready(SAMPLES)) == machine.ledger.open
        live = {
            name for (name,) in world.db.execute("SELECT id FROM trials WHERE state IN ('opening','open','scoring')")
        }
        assert live == set(machine.trials)
        assert all(stored[p] != "open" for (p, t) in world.db.execute("SELECT id, trial FROM plays") if t not in live)

    def _taken(self) -> set[str]:
        return {name for names in self.lost_steps.values() for name in names}

    def _pick(self, data: st.DataObject, queue: str) -> str:
        names = self.world.ready(queue)
        return data.draw(st.sampled_from(names)) if names else ""


TestJudgeWorld = JudgeWorld.TestCase
TestJudgeWorld.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
