"""Which environments count as the same."""

import ast
import random

from hypothesis import given
from hypothesis import strategies as st

from spade_actors.memory.normalise import exact_key, normalised_key
from spade_actors.micro.families import WARM

SOURCE = '''
import random


class HuntEnv:
    """Find the number."""

    LIMIT = 9

    def __init__(self):
        self.max_turns = 8
        self._left = [1, 2]

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.goal = rng.randint(1, 9)
        self._left.append(self.goal)
        return f"guess 1-{self.LIMIT}", {}

    def step(self, action):
        text: str = action.strip()
        if text == str(self.goal):
            return self._tell(word="won"), 1.0, True, False, {}
        return "no", 0.0, False, False, {}

    def _tell(self, word):
        return word
'''


def renamed(source: str, **names: str) -> str:
    """The source with whole words replaced."""
    import re

    for old, new in names.items():
        source = re.sub(rf"\b{old}\b", new, source)
    return source


def test_renaming_and_layout_give_the_same_key() -> None:
    key = normalised_key(SOURCE)
    same = [
        renamed(
            SOURCE, goal="aim", rng="r", text="t", HuntEnv="SeekEnv", LIMIT="TOP", _left="_todo", _tell="_say", word="w"
        ),
        SOURCE.replace('"""Find the number."""', '"""Another title."""'),
        SOURCE.replace("text: str = ", "text = "),
        SOURCE.replace("        return word", "        # says it\n        return (word)"),
    ]
    for other in same:
        ast.parse(other)
        assert normalised_key(other) == key
        assert exact_key(other) != exact_key(SOURCE)
    assert exact_key(SOURCE + "\n\n") == exact_key(SOURCE)


def test_other_parameters_words_and_mechanics_give_another_key() -> None:
    key = normalised_key(SOURCE)
    for old, new in [
        ("randint(1, 9)", "randint(1, 8)"),
        ("max_turns = 8", "max_turns = 9"),
        ('"won"', '"yes"'),
        ("==", "!="),
        ("randint", "randrange"),
        (".append(self.goal)", ".remove(self.goal)"),
        ("1.0, True", "0.5, True"),
    ]:
        other = SOURCE.replace(old, new)
        assert other != SOURCE
        assert normalised_key(other) != key, new


def test_swapped_roles_of_two_names_are_not_the_same() -> None:
    one = "class AEnv:\n    def f(self, a, b):\n        return a - b\n"
    two = "class AEnv:\n    def f(self, a, b):\n        return b - a\n"
    assert normalised_key(one) != normalised_key(two)


def test_sources_that_do_not_parse_have_no_key() -> None:
    for text in ("def (", "\0", "(" * 5000, "x = '\ud800'"):
        assert normalised_key(text) in ("", normalised_key(text))
    assert normalised_key("def (") == ""


@given(st.text(max_size=200))
def test_any_text_has_an_exact_key(text: str) -> None:
    assert len(exact_key(text)) == 32
    normalised_key(text)


def test_every_family_is_one_environment_in_all_its_styles() -> None:
    rng = random.Random(3)
    for family in WARM:
        params = family.sample(rng, "medium", False)
        other = family.mutate(params, rng, "medium")
        keys = {normalised_key(family.source(params, style, f"title {style}")) for style in range(3)}
        assert len(keys) == 1, family.name
        assert normalised_key(family.source(other, 0, "title")) not in keys
