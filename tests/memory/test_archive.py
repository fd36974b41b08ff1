"""Briefs, exemplars, duplicates and lineage, on a database in memory."""

import random
import sqlite3
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from spade_actors.config.schema import MemoryConfig
from spade_actors.memory import archive
from spade_actors.memory.passages import CorpusError, draw, load_corpus
from spade_actors.memory.ranking import Judged, bound, exemplars, negative
from spade_actors.scoring.title import class_title
from spade_protocols.content import content_hash
from spade_protocols.design import CheckDuplicate, Grant, Passage, PutEnvironment, StoreJudged

PASSAGES = [Passage(id=f"p{i}", domain="d", title=f"t{i}", text="words") for i in range(5)]
CONFIG = MemoryConfig(exemplar_rate=1.0, exemplars=1, best=2, recent=10)


def database() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.executescript(archive.SCHEMA)
    return db


def grant(number: int, skill: str = "a") -> Grant:
    return Grant(id=f"d{number}", group="g0", skill=skill, seed=number)


def add(db: sqlite3.Connection, design: str, source: str, *, skill: str = "a", **scores: float) -> str:
    """Puts and judges an environment."""
    name = content_hash(source, "hint")
    archive.put_environment(db, PutEnvironment(environment=name, source=source, hint="hint"))
    judged = StoreJudged(
        design=design, environment=name, skill=skill, parent="", version=3, admitted=True, verdicts=[], scores={}
    )
    archive.store_judged(db, judged)
    if scores:
        archive.store_judged(db, msgspec.structs.replace(judged, scores=scores))
    return name


def source(number: int) -> str:
    return f"class E{number}Env:\n    size = {number}\n"


def test_a_brief_is_written_once_and_stays() -> None:
    db = database()
    archive.write_briefs(db, [grant(1)], PASSAGES, CONFIG, 7)
    first = archive.read_brief(db, "d1")
    assert first is not None
    assert first.exemplars == []
    add(db, "d9", source(9), regret=0.4, regret_se=0.1, win_rate=0.5)
    archive.write_briefs(db, [grant(1), grant(2)], PASSAGES, CONFIG, 7)
    assert archive.read_brief(db, "d1") == first
    second = archive.read_brief(db, "d2")
    assert second is not None
    assert second.exemplars[0].source == source(9)
    assert second.parent == second.exemplars[0].environment
    assert archive.read_brief(db, "d3") is None


def test_passages_come_once_each_before_any_comes_twice_and_a_resumed_run_continues() -> None:
    drawn = [draw(PASSAGES, 7, n).id for n in range(15)]
    assert all(count == 3 for count in Counter(drawn).values())
    assert set(drawn[:5]) == {p.id for p in PASSAGES}
    assert drawn[5:10] != drawn[:5] or drawn[10:] != drawn[:5]
    db = database()
    archive.write_briefs(db, [grant(n) for n in range(4)], PASSAGES, CONFIG, 7)
    again = sqlite3.connect(":memory:")
    db.commit()
    db.backup(again)
    archive.write_briefs(again, [grant(4)], PASSAGES, CONFIG, 7)
    found = [archive.read_brief(again, f"d{n}") for n in range(5)]
    assert [brief.passage.id for brief in found if brief] == drawn[:5]


def test_exemplars_rank_by_the_lower_confidence_bound() -> None:
    lucky = Judged("lucky", "a", "", 0.5, 0.5, 0.5)
    sure = Judged("sure", "a", "", 0.3, 0.05, 0.5)
    hard = Judged("hard", "a", "", 0.9, 0.0, 0.0)
    assert bound(sure, 1.0) > bound(lucky, 1.0)
    rng = random.Random(1)
    assert exemplars([lucky, sure, hard], best=1, count=2, confidence=1.0, rng=rng) == [sure]
    assert exemplars([lucky, sure, hard], best=1, count=2, confidence=0.0, rng=rng) == [lucky]
    assert exemplars([lucky, lucky], best=2, count=2, confidence=1.0, rng=rng) == [lucky]
    assert exemplars([], best=2, count=2, confidence=1.0, rng=rng) == []


def test_the_negative_names_what_was_too_easy_or_too_hard() -> None:
    rng = random.Random(1)
    assert (
        negative([Judged("e", "a", "the hunt", 0.0, 0.1, 0.95)], rng) == "the hunt was too easy: 95% of plays were won"
    )
    assert "too hard" in negative([Judged("e", "a", "", 0.0, 0.1, 0.05)], rng)
    assert negative([Judged("e", "a", "", 0.0, 0.1, 0.5)], rng) == ""


def test_only_recent_ones_of_the_skill_are_shown() -> None:
    db = database()
    for number in range(12):
        add(db, f"d{number}", source(number), skill="a" if number else "b", regret=0.1, regret_se=0.1, win_rate=0.5)
    recent = archive.recent_judged(db, "a", 10)
    assert [j.title for j in recent] == [class_title(source(n)) for n in range(11, 1, -1)]
    assert {j.skill for j in recent} == {"a"}


def test_duplicates_exact_renamed_and_its_own() -> None:
    db = database()
    text = "class AEnv:\n    def step(self, action):\n        goal = 3\n        return goal\n"
    name = add(db, "d1", text)
    verdict = archive.check_duplicate(db, CheckDuplicate(design="d2", source=text + "\n"), 0)
    assert (verdict.duplicate, verdict.of, verdict.how) == (True, name, "exact")
    verdict = archive.check_duplicate(db, CheckDuplicate(design="d2", source=text.replace("goal", "aim")), 0)
    assert (verdict.duplicate, verdict.of, verdict.how) == (True, name, "normalised")
    assert not archive.check_duplicate(db, CheckDuplicate(design="d2", source=text.replace("3", "4")), 0).duplicate
    assert not archive.check_duplicate(db, CheckDuplicate(design="d1", source=text), 0).duplicate


def test_only_admitted_ones_within_the_window_count() -> None:
    db = database()
    for number in range(4):
        add(db, f"d{number}", source(number))
    rejected = StoreJudged(
        design="d8",
        environment=content_hash(source(8), "hint"),
        skill="a",
        parent="",
        version=0,
        admitted=False,
        verdicts=[],
    )
    archive.put_environment(db, PutEnvironment(environment=rejected.environment, source=source(8), hint="hint"))
    archive.store_judged(db, rejected)

    def seen(number: int, window: int) -> bool:
        return archive.check_duplicate(db, CheckDuplicate(design="d99", source=source(number)), window).duplicate

    assert not seen(8, 0)
    assert [seen(n, 2) for n in range(4)] == [False, False, True, True]
    assert [seen(n, 4) for n in range(4)] == [True] * 4
    assert [seen(n, 100) for n in range(4)] == [True] * 4


def test_scores_complete_an_admission_and_are_never_taken_back() -> None:
    db = database()
    archive.write_briefs(db, [grant(1)], PASSAGES, CONFIG, 7)
    name = add(db, "d1", source(1), regret=0.2, regret_se=0.1, win_rate=0.4)
    early = StoreJudged(design="d1", environment=name, skill="a", parent="", version=3, admitted=True, verdicts=[])
    archive.store_judged(db, early)
    assert [j.regret for j in archive.recent_judged(db, "a", 5)] == [0.2]
    stats = archive.stats(db, 5)
    assert (stats.environments, stats.judged, stats.passages, stats.exemplars) == (1, 1, 5, {"a": 1})
    archive.write_briefs(db, [grant(2)], PASSAGES, CONFIG, 7)
    child = add(db, "d2", source(2))
    assert db.execute("SELECT parent FROM judged WHERE design = 'd2'").fetchone() == (name,)
    assert child != name


def test_titles() -> None:
    assert class_title('class HuntEnv:\n    """Find it."""\n') == "Find it."
    assert class_title("import x\n\n\nclass GraphWalkEnv(object):\n    pass\n") == "graph walk"
    assert class_title("nothing here") == ""
    assert class_title("class HuntEnv:" + "\n" * 200_000 + '    """Find it."""\n') == "hunt"


def test_the_shipped_corpus_and_own_ones(tmp_path: Path) -> None:
    assert len(load_corpus("")) >= 200
    path = tmp_path / "own.jsonl"
    path.write_text(
        '{"text": "one two three four five six"}\n\n{"text": "x", "title": "T", "id": "i", "domain": "d"}\n'
    )
    own = load_corpus(str(path))
    assert [(p.id, p.title) for p in own] == [("line-1", "one two three four five"), ("i", "T")]
    for text, message in [("", "no passage"), ("{", "not JSON"), ('{"title": "x"}', "no `text`"), ("[1]", "no `text`")]:
        path.write_text(text)
        with pytest.raises(CorpusError, match=message):
            load_corpus(str(path))
    with pytest.raises(CorpusError, match="No such file"):
        load_corpus(str(tmp_path / "none"))
