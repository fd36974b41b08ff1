"""The shipped tokenizer: round trip, template, lengths, and one token for a word wherever it is read or said."""

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment
from tokenizers import Tokenizer

from spade_actors.micro import documents, tokenizer
from spade_actors.micro.encode import chat_of, encode
from spade_actors.micro.families import ALL
from spade_actors.micro.families.base import WORDS
from spade_actors.prompts import designer
from spade_actors.prompts.chat import CHAT_TEMPLATE, END_OF_TEXT, IM_END, IM_START, Chat, Message, render

FOLDER = Path(tokenizer.__file__).with_name("assets") / "model"


@pytest.fixture(scope="module")
def vocabulary() -> Tokenizer:
    return Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


@pytest.fixture(scope="module")
def chat(vocabulary: Tokenizer) -> Chat:
    return chat_of(vocabulary)


def test_ids_and_files(vocabulary: Tokenizer) -> None:
    assert vocabulary.get_vocab_size() == tokenizer.VOCAB
    assert [vocabulary.token_to_id(t) for t in (END_OF_TEXT, IM_START, IM_END)] == [0, 1, 2]
    config = json.loads((FOLDER / "tokenizer_config.json").read_text())
    assert config["chat_template"] == CHAT_TEMPLATE
    assert (config["eos_token"], config["pad_token"]) == (IM_END, END_OF_TEXT)
    shape = json.loads((FOLDER / "config.json").read_text())
    assert (shape["eos_token_id"], shape["pad_token_id"], shape["vocab_size"]) == (2, 0, tokenizer.VOCAB)
    assert json.loads((FOLDER / "generation_config.json").read_text())["eos_token_id"] == 2


@given(text=st.text(st.characters(exclude_categories=("Cs",)), max_size=80))
def test_any_text_round_trips(text: str) -> None:
    loaded = _loaded()
    assert loaded.decode(loaded.encode(text).ids, skip_special_tokens=False) == text


def _loaded(kept: list[Tokenizer] = []) -> Tokenizer:  # noqa: B006
    if not kept:
        kept.append(Tokenizer.from_file(str(FOLDER / "tokenizer.json")))
    return kept[0]


def test_growing_list_equals_template(vocabulary: Tokenizer, chat: Chat) -> None:
    compiled, rng = Environment().from_string(CHAT_TEMPLATE), Random(4)
    for _ in range(60):
        told = documents.draw_play(rng)
        rows = [{"role": "user", "content": told.users[0]}]
        ids = chat.start(told.users[0])
        for said, user in zip(told.answers, told.users[1:], strict=False):
            assert ids == vocabulary.encode(compiled.render(messages=rows, add_generation_prompt=True)).ids
            sampled = [*chat.encode(said), *([2] if rng.random() < 0.5 else [])]
            ids = ids + sampled + chat.follow(sampled, user)
            rows += [{"role": "assistant", "content": said}, {"role": "user", "content": user}]
        assert ids == vocabulary.encode(compiled.render(messages=rows, add_generation_prompt=True)).ids
        messages = [Message(row["role"], row["content"]) for row in rows]
        assert ids == chat.encode(render(messages))


def test_a_word_is_one_token_wherever_it_is_copied(vocabulary: Tokenizer) -> None:
    copied = [*WORDS, "up", "down", "left", "right", "send", *"abcdefghijkmn", *map(str, [*range(16), *range(20, 61)])]
    assert [word for word in copied if len(vocabulary.encode(" " + word).ids) != 1] == []
    for word in WORDS:
        token = vocabulary.encode(" " + word).ids[0]
        for text in (f"did {word}: a b", f"no {word}, x", f"order {word}", f"to a: {word} b"):
            assert token in vocabulary.encode(text).ids, text


def test_sizes(vocabulary: Tokenizer, chat: Chat) -> None:
    rng = Random(9)
    for name, family in ALL.items():
        for i in range(12):
            variant = documents.draw_variant(family, rng, "medium", held_out=i % 2 == 0)
            size = len(chat.encode(designer.answer(variant.source, variant.hint)))
            assert 80 <= size <= 240, name
    designs = [encode(documents.draw_design(rng), chat) for _ in range(200)]
    plays = [documents.draw_play(rng) for _ in range(400)]
    lengths = [len(encode(told, chat).ids) for told in plays]
    assert max(len(d.ids) for d in designs) <= 512
    assert sum(lengths) / len(lengths) <= 75
    assert max(lengths) <= 256
    assert max(len(chat.encode(answer)) for told in plays for answer in told.answers) <= 5


def test_weights_mark_what_was_said(vocabulary: Tokenizer, chat: Chat) -> None:
    told = documents.Document(("to a: b c d", "out"), (" b", " c"))
    found = encode(told, chat)
    said = [i for i, w in zip(found.ids, found.weights, strict=True) if w == 1.0]
    assert vocabulary.decode(said, skip_special_tokens=False) == f" b{IM_END} c{IM_END}"
    assert {w for w in found.weights if w != 1.0} == {0.2}
