"""Every family: contract, determinism, ends in time, can be won by its rule, cannot be won by trivial play."""

import ast
import json
from random import Random
from typing import Any

import pytest

from spade_actors.micro import play
from spade_actors.micro.documents import draw_variant
from spade_actors.micro.families import ALL, DIFFICULTIES, SKILLS, UNSEEN, WARM, Family, Variant, is_held_out
from spade_actors.micro.families.base import WORDS
from spade_actors.micro.signature import recogniser, signature

FAMILIES = pytest.mark.parametrize("family", ALL.values(), ids=list(ALL))


def some(family: Family, count: int, held_out: bool | None = None) -> list[Variant]:
    """Variants over all difficulties and styles."""
    rng = Random(f"tests {family.name}")
    sides = [i % 2 == 1 if held_out is None else held_out for i in range(count)]
    drawn = [draw_variant(family, rng, DIFFICULTIES[i % 3], side) for i, side in enumerate(sides)]
    return [Variant(family, v.params, i % 3, v.title) for i, v in enumerate(drawn)]


def test_there_are_eight_and_three_families_of_four_skills() -> None:
    assert (len(WARM), len(UNSEEN), len(ALL)) == (8, 3, 11)
    assert {skill: sum(f.skill == skill for f in WARM) for skill in SKILLS} == dict.fromkeys(SKILLS, 2)
    assert not {f.name for f in WARM} & {f.name for f in UNSEEN}


@FAMILIES
def test_contract_for_any_action(family: Family) -> None:
    rng = Random(family.name)
    texts = ("", " ", "a", "7", "-1", "²", "٣", "1" * 5000, "send", "send 7", "up\nup", "x" * 50_000, "\ud800", "{}")
    for variant in some(family, 12):
        env = play.load(variant)()
        assert type(env.max_turns) is int
        assert 3 <= env.max_turns <= 14
        for seed in (0, 1, None):
            observation, info = env.reset(seed)
            assert isinstance(observation, str)
            assert observation.strip()
            assert info == {}
            for _ in range(env.max_turns):
                observation, reward, terminated, truncated, info = env.step(rng.choice(texts))
                assert isinstance(observation, str)
                assert observation.strip()
                assert type(terminated) is bool
                assert type(truncated) is bool
                assert reward in (0.0, 1.0)
                assert info == {}
                if terminated or truncated:
                    break
                assert reward == 0.0
            assert terminated or truncated
            for text in texts:
                assert len(env.step(text)) == 5


@FAMILIES
def test_same_seed_same_episode_and_seeds_differ(family: Family) -> None:
    for variant in some(family, 8):
        make = play.load(variant)
        plays = [
            [play.play(make, seed, play.mixed(variant, False, Random(seed), 0.5)) for seed in range(8)]
            for _ in range(2)
        ]
        assert plays[0] == plays[1]
        assert len({p.observations[0] for p in plays[0]}) > 1
        env = make()
        first = env.reset(3)
        env.step("a")
        assert env.reset(3) == first


@FAMILIES
def test_expert_with_the_rule_wins_and_the_rule_helps(family: Family) -> None:
    rng, plays = Random(5), 0
    wins = dict.fromkeys(("rule", "no rule", "guess"), 0.0)
    for variant in some(family, 60):
        make = play.load(variant)
        for seed in range(4):
            plays += 1
            wins["rule"] += play.play(make, seed, play.expert(variant, True, rng)).reward
            wins["no rule"] += play.play(make, seed, play.expert(variant, False, rng)).reward
            wins["guess"] += play.play(make, seed, play.mixed(variant, False, rng, 0.0)).reward
    rate = {name: n / plays for name, n in wins.items()}
    assert rate["rule"] >= 0.9
    assert rate["no rule"] <= rate["rule"]
    assert rate["guess"] <= 0.5
    assert rate["rule"] - rate["guess"] >= 0.4


def trivial(name: str, rng: Random) -> play.Player:
    said: dict[str, Any] = {
        "empty": lambda obs, acts: "",
        "number": lambda obs, acts: str(rng.randint(0, 99)),
        "letter": lambda obs, acts: rng.choice("abcdefghijklmnopqrstuvwxyz"),
        "word": lambda obs, acts: rng.choice((*WORDS, "left", "right", "yes", "no", "look", "north")),
        "echo": lambda obs, acts: obs[-1],
        "flood": lambda obs, acts: " ".join(WORDS) * 40,
        "flood of numbers": lambda obs, acts: " ".join(map(str, range(200))),
    }
    player: play.Player = said[name]
    return player


@FAMILIES
@pytest.mark.parametrize("policy", ["empty", "number", "letter", "word", "echo", "flood", "flood of numbers"])
def test_trivial_play_does_not_win(family: Family, policy: str) -> None:
    rng, wins, plays = Random(policy), 0.0, 0
    for variant in some(family, 40):
        make = play.load(variant)
        for seed in range(5):
            plays += 1
            wins += play.play(make, seed, trivial(policy, rng)).reward
    assert wins / plays <= 0.1


@FAMILIES
def test_hint_is_one_short_rule_of_the_class(family: Family) -> None:
    for variant in some(family, 40):
        assert variant.hint == Variant(family, variant.params, (variant.style + 1) % 3, "other").hint
        assert 2 <= len(variant.hint.split()) <= 16
        assert "\n" not in variant.hint


@FAMILIES
def test_source_is_short_and_in_one_style(family: Family) -> None:
    for variant in some(family, 12):
        tree = ast.parse(variant.source)
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        assert [node.name for node in classes] == [f"{family.classes[variant.style]}Env"]
        assert ast.get_docstring(classes[0]) == variant.title
        assert 20 <= len(variant.source.splitlines()) <= 60
        assert "$" not in variant.source


def test_held_out_rules_are_about_a_fifth() -> None:
    rng = Random(0)
    for family in ALL.values():
        rules = {json.dumps(family.core(p)): p for p in (family.draw(rng, "medium") for _ in range(600))}
        share = sum(is_held_out(family, p) for p in rules.values()) / len(rules)
        assert 0.08 <= share <= 0.4, family.name


def test_mutation_changes_something_and_stays_on_its_side() -> None:
    rng = Random(1)
    for family in WARM:
        for variant in some(family, 20, held_out=False):
            child = family.mutate(variant.params, rng, "medium")
            assert child != variant.params
            assert child.keys() == variant.params.keys()
            assert not is_held_out(family, child)
            assert signature(Variant(family, child, 0, "child").source) == family.name


@FAMILIES
def test_signature_knows_every_style_and_other_names(family: Family) -> None:
    for variant in some(family, 24):
        assert signature(variant.source) == family.name
    renamed = variant.source.replace("self.max_turns", "self.limit").replace(family.classes[variant.style], "Odd")
    assert signature(renamed.replace("self.limit", "self.max_turns")) == family.name
    assert recogniser().nearest(renamed) == (family.name, pytest.approx(1.0))


def test_signature_knows_a_family_after_a_small_change_only() -> None:
    source = some(ALL["hunt"], 1)[0].source
    assert signature(source + "\n\nlimit = 3\n") == "hunt"
    assert signature(source[: len(source) // 2]) is None
    assert signature("") is None
    assert signature("x = 1\n") is None
    assert signature("def (") is None
    assert signature("(" * 10_000) is None
    other = """\
class CoinEnv:
    def __init__(self):
        self.max_turns = 6

    def reset(self, seed=None):
        self.count = (seed or 0) % 5
        return "toss", {}

    def step(self, action):
        if action == "stop":
            return "over", self.count / 5, True, False, {}
        self.count = (self.count * 3 + len(action)) % 5
        return str(self.count), 0.0, False, False, {}
"""
    assert signature(other) is None
