"""Turns documents into token ids with a loss weight per token."""

from dataclasses import dataclass

from tokenizers import Tokenizer

from spade_actors.micro.documents import Document
from spade_actors.micro.tokenizer import END_ID
from spade_actors.prompts.chat import Chat

READ_WEIGHT = 0.2
"""Loss weight of tokens that the policy reads: prompts and observations."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """ids[i] is trained with weights[i] given ids[:i]."""

    ids: list[int]
    weights: list[float]


def chat_of(tokenizer: Tokenizer) -> Chat:
    """The chat over a loaded tokenizer."""
    return Chat(lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids), END_ID)


def encode(document: Document, chat: Chat) -> Encoded:
    """Encodes a document as it would grow in a run: answers end with the end token and carry weight 1."""
    ids = chat.start(document.users[0])
    weights = [READ_WEIGHT] * len(ids)
    for i, said in enumerate(document.answers):
        sampled = [*chat.encode(said), END_ID]
        ids += sampled
        weights += [1.0] * len(sampled)
        if i + 1 < len(document.users):
            after = chat.follow(sampled, document.users[i + 1])
            ids += after
            weights += [READ_WEIGHT] * len(after)
    return Encoded(ids, weights)
