"""The tokenizer wrapper: no special tokens added or lost, lazy, errors that name the file."""

import subprocess
import sys

import pytest
import tokenizers

from spade_actors.sampling.tokenizer import Tokenizer


@pytest.fixture
def folder(tmp_path):
    words = {"<|im_start|>": 0, "<|im_end|>": 1, "a": 2, "b": 3, "[UNK]": 4}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_special_tokens_are_read_and_kept(folder):
    tokenizer = Tokenizer(folder)
    assert tokenizer.encode("<|im_start|> a b <|im_end|>") == [0, 2, 3, 1]
    assert tokenizer.decode([0, 2, 3, 1]) == "<|im_start|> a b <|im_end|>"
    assert tokenizer.token_id("<|im_end|>") == 1
    assert tokenizer.vocab_size == 5


def test_an_unknown_token_is_named(folder):
    with pytest.raises(KeyError, match="im_sep"):
        Tokenizer(folder).token_id("<|im_sep|>")


def test_a_missing_file_is_named_on_first_use(tmp_path):
    tokenizer = Tokenizer(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json: no such file"):
        tokenizer.encode("a")


def test_sampling_needs_only_the_base_install():
    code = "import sys, spade_actors.sampling, spade_actors.sampling.tokenizer as t; t.Tokenizer('x')"
    code += "; sys.exit(bool({'torch', 'numpy', 'tokenizers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
