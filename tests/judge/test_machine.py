"""The trial machine, case by case, without clock or sockets."""

import math

import msgspec
import pytest

from spade_actors.judge import effects
from spade_actors.judge.capacity import Ledger, LedgerError, capacity
from spade_actors.judge.heldout import HeldOut
from spade_actors.judge.rules import grants_allowed
from spade_actors.judge.trials import ARMS, open_trial
from spade_protocols.design import Grant
from spade_protocols.queues import DESIGNS, PLAYS, PROPOSALS, SAMPLES
from tests.judge.world import World, rules


def test_capacity_is_the_published_rule() -> None:
    # (eta + version + 1) * B - (accepted + running), accepted = version * B + waiting
    for eta, version, batch, waiting, running in [(0, 0, 10, 0, 0), (2, 5, 64, 30, 100), (1, 3, 8, 20, 1)]:
        published = (eta + version + 1) * batch - (version * batch + waiting + running)
        assert capacity(eta, batch, waiting, running) == published
    assert [grants_allowed(c, 9) for c in (-5, 0, 1, 9, 10, 576)] == [0, 0, 1, 1, 2, 64]


def test_ledger_keeps_samples_of_lost_steps() -> None:
    ledger = Ledger()
    ledger.release([f"s{i}" for i in range(10)])
    ledger.stepped(1, 4)
    ledger.stepped(2, 3)
    assert ledger.waiting == 3
    ledger.restarted(1)
    assert ledger.waiting == 6
    ledger.stepped(2, 4)
    assert ledger.waiting == 2
    for i in range(8):
        assert ledger.ended(f"s{i}", "trained")
        assert ledger.waiting == 2
    ledger.checkpointed(2)
    assert ledger.ended("s8", "stale")
    assert ledger.waiting == 1
    assert not ledger.ended("s8", "trained")
    assert (ledger.released, ledger.trained, ledger.stale, ledger.lost) == (10, 8, 1, 0)
    with pytest.raises(LedgerError, match="s9"):
        ledger.release(["s9"])


def test_grants_fill_the_capacity_and_rotate_skills_by_group() -> None:
    world = World(rules())
    world.settle()
    # capacity 20, 3 samples per trial -> 7 designs in groups of two
    assert [(d.id, d.group, d.skill) for d in world.machine.designs.values()] == [
        ("d000000", "g00000", "a"), ("d000001", "g00000", "a"), ("d000002", "g00001", "b"), ("d000003", "g00001", "b"),
        ("d000004", "g00002", "a"), ("d000005", "g00002", "a"), ("d000006", "g00003", "b"),
    ]  # fmt: skip
    assert len(world.ready(DESIGNS)) == 7
    assert world.machine.running() == 21
    assert world.machine.capacity() == -1


def test_a_scored_trial_releases_its_plain_group_and_the_design_group_follows() -> None:
    world = World(rules())
    world.settle()
    world.admit("d000000")
    assert sorted(world.ready(PLAYS)) == ["d000000.0.h", "d000000.0.p", "d000000.1.h", "d000000.1.p"]
    world.finish_trial("d000000", [1, 0], [1, 1])
    assert {n: world.sample_items[n].advantage for n in world.ready(SAMPLES)} == {
        "d000000.0.p": 0.5,
        "d000000.1.p": -0.5,
    }
    assert set(world.sample_group.values()) == {"d000000.plain"}
    world.generate("d000001", code=False)
    world.propose("d000001", code=False)
    world.settle()
    designers = {n: i for n, i in world.sample_items.items() if i.role == "designer"}
    assert designers.keys() == {"d000000", "d000001"}
    assert world.sample_group["d000000"] == "g00000"
    # mean .5 -> plateau 1, regret .5 shrunk by SE .5: .6 + .4 * .5 * .0225 / (.0225 + .25) / .15, against -.1
    reward = 0.6 + 0.4 * (0.5 * 0.0225 / 0.2725) / 0.15
    assert designers["d000000"].advantage == pytest.approx(reward + 0.1)
    assert designers["d000001"].advantage == pytest.approx(-reward - 0.1)
    assert "g00000" not in world.machine.groups
    assert [body["state"] for kind, body in world.events if kind == "trial.scored"] == ["scored"]


def test_a_constant_group_leaves_at_once_and_its_returns_still_reach_the_designer() -> None:
    world = World(rules())
    world.settle()
    before = world.machine.running()
    world.admit("d000000")
    for name in world.ready(PLAYS):
        world.play(name, 0.0)
    world.score()
    assert world.machine.running() == before - 2
    world.settle()
    assert world.ready(SAMPLES) == []
    assert world.machine.counters["agent_samples_zero"] == 2
    assert world.machine.designs["d000000"].reward == 0.0


def test_an_environment_failure_costs_the_design_and_cancels_the_rest() -> None:
    world = World(rules())
    world.settle()
    world.admit("d000000")
    world.play("d000000.0.p", 1.0)
    world.play("d000000.0.h", finished=False, ending="hang", blame="environment", rewards=())
    world.settle()
    assert world.queues[PLAYS] == {
        "d000000.0.p": "completed", "d000000.0.h": "completed", "d000000.1.p": "cancelled", "d000000.1.h": "cancelled",
    }  # fmt: skip
    assert world.machine.designs["d000000"].state == "invalid"
    assert world.machine.designs["d000000"].reward == -0.1
    assert world.ready(SAMPLES) == []
    assert not world.play("d000000.1.p", 1.0)
    state, reason = (world.events[-1][1][key] for key in ("state", "reason"))
    assert state == "failed"
    assert "hang" in str(reason)


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_non_finite_reward_is_an_environment_failure(reward: float) -> None:
    world = World(rules())
    world.settle()
    world.admit("d000000")
    world.play("d000000.0.p", reward)
    world.settle()
    assert world.machine.designs["d000000"].state == "invalid"


def test_lost_plays_cost_pairs_and_too_few_pairs_withdraw_the_trial() -> None:
    world = World(rules(pairs=3, min_pairs=2))
    world.settle()
    world.admit("d000000")
    world.end(PLAYS, "d000000.0.h", "dead")
    assert world.machine.trials["d000000"].possible_pairs() == 2
    for name in ("d000000.0.p", "d000000.1.p", "d000000.1.h", "d000000.2.p", "d000000.2.h"):
        world.play(name, float(name.endswith("p")))
    assert world.machine.trials["d000000"].state == "scoring"
    world.score()
    world.settle()
    scored = next(body for kind, body in world.events if kind == "trial.scored")
    assert scored["scores"]["pairs"] == 2  # type: ignore[index]

    world.admit("d000001")
    world.play("d000001.0.p", 1.0)
    world.end(PLAYS, "d000001.0.h", "dead")
    world.end(PLAYS, "d000001.1.h", "dead")
    world.settle()
    # the only other member has a reward: one of two is not enough to centre
    assert "g00000" not in world.machine.groups
    assert world.machine.counters["trials_withdrawn"] == 1
    assert not [n for n in world.sample_items if n.startswith("d000001")]
    assert not [n for n, i in world.sample_items.items() if i.role == "designer"]


def test_the_first_result_of_a_play_wins() -> None:
    world = World(rules())
    world.settle()
    world.admit("d000000")
    assert world.play("d000000.0.p", 1.0, complete=False)
    assert not world.play("d000000.0.p", 0.0)
    assert world.machine.trials["d000000"].plays["d000000.0.p"].rewards == [1.0]
    assert not world.play("d999999.0.p", 0.0)
    assert world.machine.counters["deliveries_duplicate"] == 2


def test_a_newer_generation_replaces_one_whose_designer_died() -> None:
    world = World(rules())
    world.settle()
    assert world.generate("d000000", attempt=1)
    assert not world.generate("d000000", attempt=1)
    assert world.generate("d000000", attempt=2)
    assert not world.generate("d000000", attempt=1)
    world.propose("d000000")
    assert not world.generate("d000000", attempt=3)
    assert world.machine.designs["d000000"].state == "proposed"


def test_a_proposal_whose_tokens_never_came_is_withdrawn() -> None:
    world = World(rules())
    world.settle()
    world.propose("d000000")
    world.settle()
    assert world.machine.designs["d000000"].state == "withdrawn"
    assert world.queues[PROPOSALS]["d000000"] == "cancelled"


def test_rejected_duplicate_and_dead_proposals() -> None:
    world = World(rules(design_group=3))
    world.settle()
    for design in ("d000000", "d000001", "d000002"):
        world.generate(design)
        world.propose(design)
    world.gate("d000000", False)
    world.end(PROPOSALS, "d000001", "dead")
    world.settle()
    group = world.machine.groups["g00000"]
    assert [m.state for m in group.members] == ["invalid", "withdrawn", "proposed"]
    world.admit("d000002")
    world.finish_trial("d000002", [1, 0], [1, 0])
    advantages = {n: i.advantage for n, i in world.sample_items.items() if i.role == "designer"}
    assert advantages == pytest.approx({"d000000": -0.7, "d000002": 0.7})


def test_negative_designer_advantages_are_scaled() -> None:
    world = World(rules(negative_scale=0.5))
    world.settle()
    world.admit("d000000")
    world.finish_trial("d000000", [1, 0], [1, 0])
    world.generate("d000001", code=False)
    world.propose("d000001", code=False)
    world.settle()
    assert world.sample_items["d000001"].advantage == pytest.approx(-0.35)


def test_an_aged_arm_is_dropped_whole_and_the_trial_goes_on_for_its_designer() -> None:
    world = World(rules(agent_bound=1, designer_bound=5))
    world.settle()
    world.admit("d000000")
    world.play("d000000.0.p", 1.0)
    before = world.machine.running()
    world.machine.published(2)
    assert world.machine.running() == before - 2
    for name in ("d000000.0.h", "d000000.1.p", "d000000.1.h"):
        world.play(name, 0.0)
    world.score()
    world.settle()
    assert world.machine.designs["d000000"].state == "scored"
    assert not [n for n in world.sample_items if n.startswith("d000000")]
    assert world.machine.counters["agent_samples_stale"] == 2


def test_an_aged_design_group_is_cancelled_whole() -> None:
    world = World(rules(designer_bound=2))
    world.settle()
    world.admit("d000000")
    world.play("d000000.0.p", 1.0)
    world.machine.published(3)
    world.settle()
    assert "g00000" not in world.machine.groups
    assert world.queues[DESIGNS]["d000001"] == "cancelled"
    assert world.queues[PLAYS]["d000000.1.h"] == "cancelled"
    assert world.machine.counters["design_groups_stale"] == 1
    # their capacity is free again
    assert world.machine.capacity() <= 0
    assert "d000007" in world.machine.designs


def test_with_eta_zero_everything_happens_at_one_version() -> None:
    world = World(rules(eta=0, batch=6, agent_bound=0, designer_bound=0))
    world.settle()
    assert list(world.machine.designs) == ["d000000", "d000001"]
    world.admit("d000000")
    world.finish_trial("d000000", [1, 0], [1, 1])
    world.admit("d000001")
    world.play("d000001.0.p", 1.0)
    world.synchronised = False
    world.step(1, 2, 1)
    world.settle()
    # the half-played trial and its group are gone, and nothing starts before the new weights sample
    assert world.machine.designs == {}
    assert world.machine.running() == 0
    assert set(world.queues[PLAYS].values()) <= {"completed", "cancelled"}
    world.machine.applied("generator-1", 1)
    assert world.machine.synchronised(["generator-1"])
    world.synchronised = True
    world.settle()
    assert list(world.machine.designs) == ["d000002", "d000003"]
    # a late generation of the old version never becomes a sample
    world.generate("d000002", version=0)
    world.settle()
    assert "d000002" not in world.machine.designs


def test_a_synchronous_run_never_waits_for_itself() -> None:
    """With eta 0 and groups that do not divide the batch, the batch still fills."""
    world = World(rules(eta=0, batch=7, design_group=4, agent_bound=0, designer_bound=0))
    for _ in range(40):
        world.settle()
        for design in world.ready(DESIGNS):
            world.admit(design)
            world.finish_trial(design, [1, 0], [1, float(design[-1] in "0369")])
        if world.machine.ledger.waiting >= 7:
            return
    raise AssertionError(f"waiting {world.machine.ledger.waiting}, running {world.machine.running()}")


def test_generators_that_lag_hold_a_synchronous_run_and_dead_ones_do_not() -> None:
    world = World(rules(eta=0))
    machine = world.machine
    assert machine.synchronised(["g1", "g2"])
    machine.published(1)
    assert not machine.synchronised(["g1", "g2"])
    machine.applied("g1", 1)
    machine.applied("g2", 0)
    assert not machine.synchronised(["g1", "g2"])
    assert machine.synchronised(["g1"])
    # one that comes back has the newest weights before it takes work, and says so
    machine.applied("g2", 1)
    assert machine.synchronised(["g1", "g2"])


def test_a_frozen_designer_has_no_samples_and_takes_no_capacity() -> None:
    world = World(rules(train_designer=False))
    world.settle()
    assert world.machine.running() == 20
    world.admit("d000000")
    world.finish_trial("d000000", [1, 0], [1, 1])
    world.admit("d000001")
    world.finish_trial("d000001", [0, 0], [0, 0])
    assert {i.role for i in world.sample_items.values()} == {"agent"}
    assert "g00000" not in world.machine.groups


def test_hinted_plays_train_as_a_group_of_their_own() -> None:
    world = World(rules(train_hinted=True))
    world.settle()
    world.admit("d000000")
    for name in world.ready(PLAYS):
        world.play(name, float("0" in name.split(".")[1]))

    def both(score: object) -> object:
        advantages = {"d000000.0.p": 0.5, "d000000.1.p": -0.5, "d000000.0.h": 0.5, "d000000.1.h": -0.5}
        return msgspec.structs.replace(score, advantages=advantages)  # type: ignore[type-var]

    world.score(both)  # type: ignore[arg-type]
    world.settle()
    assert set(world.sample_group.values()) == {"d000000.plain", "d000000.hinted"}


def test_a_scorer_that_fails_withdraws_the_trial_only() -> None:
    world = World(rules())
    world.settle()
    world.admit("d000000")
    for name in world.ready(PLAYS):
        world.play(name, 0.0)
    world.machine.score_failed("d000000", "the scorer raised ValueError: no")
    world.settle()
    assert world.machine.designs["d000000"].state == "withdrawn"
    assert world.machine.counters["scorer_failures"] == 1
    assert world.events[-1][1]["state"] == "withdrawn"
    world.machine.score_failed("d000000", "again")
    assert world.machine.counters["scorer_failures"] == 1


HELDOUT = [
    HeldOut(
        id=f"h{i}",
        source=f"class H{i}Env: pass",
        hint="rule",
        split="heldout" if i < 4 else "unseen",
        family=f"f{i % 2}",
    )
    for i in range(6)
]


def test_the_first_evaluation_is_released_before_any_training_play() -> None:
    world = World(rules(eval_plays=2, eval_hinted=1), HELDOUT)
    world.settle()
    world.admit("d000000")
    evaluation_plays = [n for n in world.put_log if n.startswith("e0f.")]
    assert len(evaluation_plays) == 6 * 3
    assert world.put_log[: len(evaluation_plays)] == evaluation_plays
    before = world.machine.capacity()
    for name in evaluation_plays:
        world.play(name, float(".h0" in name))
    world.settle()
    assert world.machine.capacity() == before
    done = next(body for kind, body in world.events if kind == "evaluation.done")
    assert done["label"] == "first"
    assert done["pinned"] is True
    scores = done["scores"]
    assert isinstance(scores, dict)
    assert scores["heldout"] == 0.25
    assert scores["heldout_n"] == 8
    assert scores["unseen"] == 0.0
    assert scores["heldout_hinted"] == 0.25
    assert scores["family.f0"] == pytest.approx(1 / 3)


def test_evaluations_are_the_same_examination_each_time_and_say_when_they_are_mixed() -> None:
    world = World(rules(eval_plays=1, eval_every=2, eval_small=3), HELDOUT)
    world.settle()
    first = dict(world.machine.evaluations["e0f"].plays)
    world.machine.published(1)
    world.settle()
    assert set(world.machine.evaluations) == {"e0f"}
    world.machine.published(3)
    world.settle()
    between = world.machine.evaluations["e3v"].plays
    assert len(between) == 3
    assert {p.split for p in between.values()} == {"heldout", "unseen"}
    for play in between.values():
        same = first[f"e0f.{play.heldout}.0p"]
        assert (play.seed, play.sampling_seed) == (same.seed, same.sampling_seed)
    for name in list(between):
        world.play(name, 1.0, version=2)
    world.settle()
    done = next(body for kind, body in world.events if kind == "evaluation.done" and body["label"] == "version")
    assert done["pinned"] is False


def test_failed_and_lost_evaluation_plays_are_counted_and_left_out() -> None:
    world = World(rules(eval_plays=1), HELDOUT[:3])
    world.settle()
    world.play("e0f.h0.0p", 1.0)
    world.play("e0f.h1.0p", finished=False, ending="hang", blame="environment", rewards=())
    world.end(PLAYS, "e0f.h2.0p", "dead")
    world.settle()
    scores = next(body for kind, body in world.events if kind == "evaluation.done")["scores"]
    assert isinstance(scores, dict)
    assert (scores["heldout"], scores["heldout_n"], scores["failed"], scores["lost"]) == (1.0, 1.0, 1.0, 1.0)


def test_the_run_is_complete_after_the_last_evaluation() -> None:
    world = World(rules(eval_plays=1, steps=3, eval_every=3), HELDOUT)
    world.settle()
    for name in world.ready(PLAYS):
        world.play(name, 1.0)
    world.admit("d000000")
    world.synchronised = False
    world.machine.published(3)
    world.commit()
    assert world.machine.evaluations["e3v"].state == "planned"
    world.step(3, 5, 3, final=True)
    world.settle()
    # the smaller one of the same version gives way, open work is cancelled and counted
    assert list(world.machine.evaluations) == ["e3l"]
    assert world.machine.trials == {}
    assert world.machine.counters["plays_cancelled"] == 4
    assert not world.ready(DESIGNS)
    world.synchronised = True
    world.settle()
    for name in world.ready(PLAYS):
        world.play(name, 1.0)
    world.settle()
    assert [body["state"] for kind, body in world.events if kind == "run.state"] == ["complete"]
    world.settle()
    assert not world.ready(DESIGNS)


def test_a_continued_run_grants_again_and_does_not_repeat_the_first_evaluation() -> None:
    world = World(rules(eval_plays=1, steps=3), HELDOUT)
    world.settle()
    for name in world.ready(PLAYS):
        world.play(name, 1.0)
    world.step(3, 0, 3, final=True)
    world.settle()
    for name in world.ready(PLAYS):
        world.play(name, 1.0)
    world.settle()
    assert world.machine.meta.complete
    world.rules = rules(eval_plays=1, steps=6)
    world.restart()
    world.machine.resumed()
    world.machine.started(3, 3)
    world.settle()
    assert world.ready(DESIGNS)
    assert world.machine.evaluations == {}
    # a learner that has nothing left to do ends the run again, without another examination
    world.rules = rules(eval_plays=1, steps=3)
    world.restart()
    world.machine.started(3, 3)
    world.settle()
    assert [body["state"] for kind, body in world.events if kind == "run.state"] == ["complete", "complete"]


def test_seeds_depend_on_the_design_and_the_run_only() -> None:
    one = open_trial("d1", "g", "s", "e", rules())
    two = open_trial("d1", "g", "s", "other", rules())
    assert [p.seed for p in one.plays.values()] == [p.seed for p in two.plays.values()]
    assert {p.arm for p in one.plays.values()} == set(ARMS)
    for index in range(2):
        assert one.plays[f"d1.{index}.p"].seed == one.plays[f"d1.{index}.h"].seed
    assert [p.seed for p in open_trial("d2", "g", "s", "e", rules()).plays.values()] != [
        p.seed for p in one.plays.values()
    ]


def test_effects_that_are_refused_for_good_end_what_waited_for_them() -> None:
    world = World(rules(eval_plays=1), HELDOUT[:1])
    world.settle()
    world.generate("d000001")
    world.propose("d000001")
    world.gate("d000001", True)
    world.machine.refused(effects.FetchHint(trial="d000001", environment="e"), "refused: no")
    assert "d000001" not in world.machine.trials
    grant = Grant(id="d000000", group="g00000", skill="a", seed=1)
    world.machine.refused(effects.GrantDesigns(grants=[grant]), "refused: no")
    world.settle()
    assert "g00000" not in world.machine.groups
    world.machine.refused(effects.PutEvalPlays(evaluation="e0f"), "refused: no")
    world.settle()
    done = next(body for kind, body in world.events if kind == "evaluation.done")
    assert done["scores"] == {"failed": 0.0, "lost": 1.0}
    world.admit("d000002")
    world.finish_trial("d000002", [1, 0], [1, 1])
    items = {name: {} for name in world.ready(SAMPLES)}
    assert len(items) == 2
    world.machine.refused(effects.PutSamples(group="d000002.plain", items=items), "refused: no")
    assert world.machine.ledger.waiting == 0
    assert world.machine.ledger.lost == 2
    assert world.machine.counters["effects_given_up"] == 4
