"""From brief to proposal."""

from hypothesis import given
from hypothesis import strategies as st

from spade_actors.designer.design import TOO_LONG, prompt, proposal
from spade_actors.prompts.agent import ActionFormat
from spade_actors.prompts.designer import answer
from spade_protocols.content import content_hash
from spade_protocols.design import Brief, Exemplar, Passage

SOURCE = "class XEnv:\n    pass\n"


def brief(**more) -> Brief:
    fields = {
        "id": "d1",
        "group": "g",
        "skill": "search",
        "difficulty": "medium",
        "seed": 3,
        "passage": Passage(id="p", domain="tides", title="Tides and moons", text="The moon pulls."),
        "exemplars": [Exemplar(environment="e", source=SOURCE, hint="count up", regret=0.2, win_rate=0.5)],
        "negative": "too easy: a coin toss",
    }
    return Brief(**fields | more)


def test_the_micro_prompt_is_short_and_carries_the_exemplar():
    text = prompt(brief(), "micro", ActionFormat.RAW)
    assert text.startswith('design search medium\n    """tide moon"""')
    assert "count up" in text
    assert "too easy" not in text
    assert "count up" not in prompt(brief(exemplars=[]), "micro", ActionFormat.RAW)


def test_the_full_prompt_carries_passage_and_negative():
    text = prompt(brief(), "full", ActionFormat.BOXED)
    assert "The moon pulls." in text
    assert text.endswith("too easy: a coin toss")


def test_a_good_generation_is_proposed_under_its_content_hash():
    p = proposal(answer(SOURCE, "count up"), ended=True)
    assert (p.source, p.hint, p.reason) == (SOURCE, "count up", "")
    assert p.environment == content_hash(SOURCE, "count up")


def test_what_is_missing_is_the_reason():
    assert proposal("hello", ended=True).reason == "no_code"
    assert proposal("```python\nx = 1\n", ended=False).reason == "unterminated"
    assert proposal("```python\nx = 1\n```\n", ended=True).reason == "no_hint"
    assert proposal(answer(SOURCE, "é" * 2000), ended=True).reason == ""
    assert proposal(answer(SOURCE, "é" * 2001), ended=True).reason == "hint_too_long"
    assert proposal(answer(SOURCE, "count"), ended=False) == ("", "", "", TOO_LONG)


@given(st.text(), st.booleans())
def test_no_text_raises(text, ended):
    p = proposal(text, ended=ended)
    assert bool(p.environment) != bool(p.reason)
