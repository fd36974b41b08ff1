"""The tokenizer and chat format of a run's model. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spade_actors.config.paths import model_folder
from spade_actors.config.schema import Config
from spade_actors.prompts.chat import IM_END, Chat
from spade_actors.sampling.tokenizer import Tokenizer


class Language(NamedTuple):
    """Text to tokens and back, as the run's model speaks."""

    tokenizer: Tokenizer
    chat: Chat

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids."""
        return self.tokenizer.decode(list(ids))


def language(config: Config) -> Language:
    """Reads the model folder's tokenizer; raises FileNotFoundError or KeyError naming what is missing."""
    tokenizer = Tokenizer(model_folder(config))
    return Language(tokenizer, Chat(tokenizer.encode, tokenizer.token_id(IM_END)))


def spans_of(spans: Sequence[tuple[str, int, int]]) -> list[tuple[int, int, int]]:
    """A server's version spans with the versions as numbers; an unknown name counts as version 0."""
    return [(int(version) if version.isdigit() else 0, start, end) for version, start, end in spans]
