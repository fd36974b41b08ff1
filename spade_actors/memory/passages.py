"""The corpus: passages, and the order in which briefs use them.

Always holds: the n-th draw of a run depends only on the run's seed and n, so a resumed run continues where it was; every
passage comes once before any comes twice.
"""

import random
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from spade_protocols.design import Passage

LONGEST = 8000
"""characters of a passage that a brief carries"""


class CorpusError(ValueError):
    """A corpus that cannot be used; one line for a user."""


def load_corpus(path: str) -> list[Passage]:
    """Passages of a JSONL file (`text`, optional `id`, `domain`, `title`), or the shipped corpus if `path` is empty.

    Raises:
        CorpusError: unreadable, no passage, or a line that is none.
    """
    try:
        shipped = resources.files("spade_actors.memory") / "corpus" / "passages.jsonl"
        data = Path(path).read_bytes() if path else shipped.read_bytes()
    except OSError as error:
        raise CorpusError(f"memory.corpus = {path!r}: {error.strerror}; name a JSONL file or leave it empty") from error
    name = path or "the shipped corpus"
    passages = []
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            passages.append(_passage(line, name, number))
    if not passages:
        raise CorpusError(f"memory.corpus = {path!r}: no passage in {name}; expected lines of JSON with a `text`")
    return passages


def _passage(line: bytes, name: str, number: int) -> Passage:
    try:
        entry: Any = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise CorpusError(f"memory.corpus: {name} line {number} is not JSON: {error}") from error
    text = entry.get("text") if isinstance(entry, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise CorpusError(f"memory.corpus: {name} line {number} has no `text`")
    title = str(entry.get("title") or " ".join(text.split()[:5]))
    return Passage(
        id=str(entry.get("id") or f"line-{number}"),
        domain=str(entry.get("domain") or ""),
        title=title[:120],
        text=text[:LONGEST],
    )


def draw(passages: list[Passage], seed: int, number: int) -> Passage:
    """The passage of draw `number` (from 0)."""
    epoch, position = divmod(number, len(passages))
    order = list(range(len(passages)))
    random.Random(f"{seed}/passages/{epoch}").shuffle(order)
    return passages[order[position]]
