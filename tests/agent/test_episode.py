"""The episode machine over a tokenizer of bytes."""

from hypothesis import given
from hypothesis import strategies as st

from spade_actors.agent.episode import Bounds, Ending, Episode, turn_seed
from spade_actors.prompts.agent import ActionFormat
from spade_actors.prompts.chat import IM_END, Chat, Message, render

END = 256


def encode(text: str) -> list[int]:
    ids: list[int] = []
    for i, piece in enumerate(text.split(IM_END)):
        ids.extend(([END] if i else []) + list(piece.encode()))
    return ids


def decode(ids) -> str:
    return bytes(i for i in ids if i < 256).decode(errors="replace")


CHAT = Chat(encode, END)


def episode(*, turns: int = 5, context: int = 10_000, answer: int = 16, **more) -> Episode:
    return Episode(CHAT, decode, Bounds(turns, context, answer), **more)


def say(e: Episode, text: str, version: int = 1, end: bool = True) -> str | None:
    ids = encode(text + (IM_END if end else ""))
    return e.sampled(ids, [-0.5] * len(ids), [(version, 0, len(ids))])


def test_the_context_is_the_chat_templates_rendering_and_the_mask_marks_what_was_sampled():
    e = episode()
    assert e.begin("start") is None
    assert e.prompt == encode(render([Message("user", "start")]))
    assert say(e, " left ") == "left"
    assert e.observed("wall", 0.0, False, False) is None
    said = render([Message("user", "start"), Message("assistant", " left "), Message("user", "wall")])
    assert e.prompt == encode(said)
    assert decode(t for t, m in zip(e.tokens, e.mask, strict=True) if m) == " left "
    assert len(e.tokens) == len(e.mask) == len(e.logprobs)
    assert {lp for lp, m in zip(e.logprobs, e.mask, strict=True) if not m} == {0.0}
    say(e, "right", version=2)
    assert e.observed("gone", 1.0, True, False) is Ending.TERMINATED
    assert e.rewards == [0.0, 1.0]
    assert [tuple(t) for t in e.turns] == [("start", "left", 0.0), ("wall", "right", 1.0)]
    assert [v for v, _, _ in e.versions] == [1, 2]


def test_the_hint_is_in_the_first_message_of_the_hinted_arm_only():
    e = episode(hint="go left")
    e.begin("start")
    assert "HINT: go left" in decode(e.tokens)


def test_the_environments_truncation_and_our_turn_limit_are_told_apart():
    e = episode(turns=2)
    e.begin("o")
    say(e, "a")
    assert e.observed("o", 0.0, False, True) is Ending.TRUNCATED
    e = episode(turns=2)
    e.begin("o")
    say(e, "a")
    assert e.observed("o", 0.0, False, False) is None
    say(e, "a")
    assert e.observed("o", 0.0, False, False) is Ending.MAX_TURNS
    e = episode(turns=1)
    e.begin("o")
    say(e, "a")
    assert e.observed("o", 1.0, True, True) is Ending.TERMINATED


def test_an_answer_without_an_end_is_a_format_ending_and_is_not_played():
    e = episode(answer=4)
    e.begin("o")
    assert say(e, "abcd", end=False) is None
    assert e.ending is Ending.FORMAT
    assert [tuple(t) for t in e.turns] == [("o", "abcd", 0.0)]
    assert sum(e.mask) == 4


def test_context_endings():
    assert episode(context=10).begin("long observation") is Ending.CONTEXT
    prompt = len(encode(render([Message("user", "o")])))
    e = episode(context=prompt + 3, answer=8)
    assert e.begin("o") is None
    assert e.room == 3
    assert say(e, "abc", end=False) is None
    assert e.ending is Ending.CONTEXT
    e = episode(context=prompt + 12)
    e.begin("o")
    say(e, "ab")
    assert e.observed("a very long observation", 0.0, False, False) is Ending.CONTEXT


def test_boxed_actions_are_passed_on_boxed_and_a_missing_box_is_no_ending():
    e = episode(answer=64, action_format=ActionFormat.BOXED)
    e.begin("o")
    assert say(e, "I go \\boxed{left}") == "\\boxed{left}"
    assert e.observed("o", 0.0, False, False) is None
    assert say(e, "I go left") == "I go left"


def test_control_tokens_in_an_observation_do_not_open_a_turn():
    e = episode()
    e.begin("x<|im_end|>y")
    assert e.tokens.tolist().count(END) == 1


def test_turn_seeds():
    assert turn_seed(-1, 3) is None
    assert turn_seed(5, 3) == turn_seed(5, 3)
    assert len({turn_seed(s, t) for s in range(50) for t in range(14)}) == 700


ANSWERS = st.tuples(st.text(max_size=6), st.booleans(), st.text(max_size=8), st.booleans(), st.booleans())


@given(st.lists(ANSWERS, min_size=1, max_size=8), st.integers(1, 6), st.integers(20, 400))
def test_whatever_happens_the_token_list_only_grows_and_stays_aligned(answers, turns, context):
    e = episode(turns=turns, context=context, answer=32)
    before: list[int] = []
    e.begin("start")
    for text, ends, observation, terminated, truncated in answers:
        if e.ending:
            break
        text = text.replace("<|", "").encode("utf-8", "ignore").decode()[: max(0, e.room // 4 - 1)]
        action = say(e, text, end=ends and e.room > 4)
        if action is not None:
            e.observed(observation.encode("utf-8", "ignore").decode(), 0.5, terminated, truncated)
        assert e.tokens.tolist()[: len(before)] == before
        before = e.tokens.tolist()
        assert len(e.tokens) == len(e.mask) == len(e.logprobs)
        covered = sorted(i for _, first, last in e.versions for i in range(first, last))
        assert covered == [i for i, m in enumerate(e.mask) if m]
        assert len(e.turns) == len(e.rewards) <= turns
