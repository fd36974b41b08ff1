"""Warm-up documents, held-out set, checker: what may and may not occur in them."""

import json
from random import Random

import pytest

from spade_actors.micro import documents, drills, heldout
from spade_actors.micro.check import check
from spade_actors.micro.families import ALL, UNSEEN, WARM, Variant, is_held_out
from spade_actors.micro.signature import signature
from spade_actors.prompts.designer import Exemplar
from spade_actors.prompts.extract import Design, extract, title


def test_no_held_out_rule_and_no_unseen_family_is_ever_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Variant] = []
    plain = Variant.source.fget  # type: ignore[attr-defined]

    def spy(variant: Variant) -> str:
        made.append(variant)
        return str(plain(variant))

    monkeypatch.setattr(Variant, "source", property(spy))
    rng = Random(7)
    for _ in range(600):
        documents.draw_design(rng)
        documents.draw_play(rng)
    assert {variant.family.name for variant in made} == {family.name for family in WARM}
    assert not [v for v in made if is_held_out(v.family, v.params)]


def test_documents_are_reproducible_and_readable() -> None:
    one, two = Random(3), Random(3)
    for _ in range(50):
        design = documents.draw_design(one)
        assert design == documents.draw_design(two)
        assert isinstance(extract(design.answers[0]), Design)
        told = documents.draw_play(one)
        assert told == documents.draw_play(two)
        assert len(told.users) == len(told.answers) <= 14
        assert all(answer.startswith(" ") for answer in told.answers)


def test_every_drill_answer_stands_in_what_was_read() -> None:
    rng = Random(8)
    for _ in range(100):
        drill = drills.draw_drill(rng)
        assert len(drill.users) == len(drill.answers)
        read = drill.users[0]
        for user, said in zip(drill.users, drill.answers, strict=True):
            assert said in f" {read} {user}".replace(",", " ").replace("\n", " ")


def test_designs_keep_title_and_skill_and_vary_their_exemplar() -> None:
    rng, same, shown = Random(11), 0, 0
    for _ in range(200):
        design = documents.draw_design(rng)
        made = extract(design.answers[0])
        assert isinstance(made, Design)
        prompt, _, exemplar = design.users[0].partition("\n\n")
        _, skill, _, *words = prompt.replace('"""', "").split()
        name = signature(made.source)
        assert name is not None
        assert ALL[name].skill == skill
        assert title(made.source) == " ".join(words)
        if exemplar:
            first = extract(exemplar)
            assert isinstance(first, Design)
            assert (first.source, first.hint) != (made.source, made.hint)
            shown += 1
            same += signature(first.source) == name
    assert 70 <= shown <= 130
    assert 0.65 <= same / shown <= 0.95
    assert Exemplar("", "", 0, 0).source == ""


def test_held_out_set_is_the_one_built_now() -> None:
    items = heldout.read()
    assert items == heldout.build()
    by_split = {split: [item for item in items if item.split == split] for split in ("heldout", "unseen")}
    assert (len(by_split["heldout"]), len(by_split["unseen"])) == (192, 48)
    assert {item.family for item in by_split["heldout"]} == {family.name for family in WARM}
    assert {item.family for item in by_split["unseen"]} == {family.name for family in UNSEEN}
    assert len({item.id for item in items}) == len(items)
    assert all(signature(item.source) == item.family for item in items)
    assert heldout.HELD_OUT_FILE.stat().st_size < 1_500_000
    pairs = heldout.variants()
    assert all(is_held_out(v.family, v.params) for split, v in pairs if split == "heldout")
    assert len({json.dumps([v.family.name, v.params]) for _, v in pairs}) == len(items)


def test_held_out_file_is_the_same_each_time(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("set")
    heldout.write(folder / "one.jsonl.gz")
    assert (folder / "one.jsonl.gz").read_bytes() == heldout.HELD_OUT_FILE.read_bytes()


def test_checker_tells_valid_from_broken() -> None:
    rng = Random(2)
    good = [documents.draw_variant(family, rng, "medium").source for family in WARM]
    hunt = next(source for source in good if "isdecimal" in source)
    broken = {
        "SyntaxError": hunt[:-200] + "(",
        "ValueError: no class": "x = 1\n",
        "ValueError: reward": hunt.replace('"yes", 1.0', '"yes", 7.0').replace("0.0, False", "float('nan'), False"),
        "ValueError: no end": hunt.replace(">= self.max_turns", ">= 99"),
        "ValueError: step": hunt.replace(">= self.max_turns, {}", "> 1 and 1 or 0, {}"),
        "not deterministic": hunt.replace("random.Random(seed)", "random.Random()"),
        "seed has no effect": hunt.replace("random.Random(seed)", "random.Random(1)"),
        "SystemExit": "import sys\n" + hunt.replace("        low =", "        sys.exit(0)\n        low ="),
    }
    verdicts = check([*good, *broken.values(), "while True:\n    pass\n", "x = [0] * 10**9\n"])
    assert verdicts[: len(good)] == ["ok"] * len(good)
    for want, found in zip(broken, verdicts[len(good) :], strict=False):
        assert found.startswith(want), (want, found)
    assert verdicts[-2:] == ["killed", "MemoryError: "]
