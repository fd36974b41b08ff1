"""The micro tokenizer: byte-level BPE over chunks cut so that code is short and words are whole.

What always holds: any text round-trips (bytes are the base alphabet); control tokens have the ids below; a word or
number after a space is cut the same way in observations, hints and actions, so that it can be copied as one token.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from spade_actors.prompts.chat import CHAT_TEMPLATE, END_OF_TEXT, IM_END, IM_START

VOCAB = 1280
SPECIAL = (END_OF_TEXT, IM_START, IM_END)
PAD_ID, START_ID, END_ID = range(3)

KEYWORDS = "def|class|return|if|else|for|in|not|and|import"
PATTERN = "|".join(
    (
        r"(?:system|user|assistant)\n",  # a role header ends its chunk, so that what follows it is cut by itself
        r'"?,? ?[01]\.0(?:, (?:True|False|\{\}))*',  # the constant part of a step's result
        rf"(?:\n+ *| )?(?:(?:{KEYWORDS}) )*[A-Za-z_]+(?:[.(\[]+[A-Za-z_]+)*\(?",  # words, dotted names, calls
        r" ?-?\d\d?",
        r"\n* ?[^\sA-Za-z0-9_]+",
        r"\s+",
        r".",
    )
)


def train(texts: Iterable[str]) -> Tokenizer:
    """Learns the merges from rendered documents."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json (with the chat template) for transformers and SGLang."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": IM_END,
        "pad_token": END_OF_TEXT,
        "unk_token": None,
        "additional_special_tokens": [IM_START],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1024,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    generation = {"eos_token_id": END_ID, "pad_token_id": PAD_ID, "do_sample": True, "temperature": 1.0}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
