"""Text to token ids and back, by a Hugging Face ``tokenizer.json``.  No torch, no transformers.

Always holds: ``encode`` adds no special tokens of its own, and ``decode`` keeps the ones that are there, so token lists can be
joined and cut freely.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tokenizers

TOKENIZER_FILE = "tokenizer.json"


class Tokenizer:
    """Reads its file on first use, so that a process which never encodes pays nothing."""

    def __init__(self, path: Path | str) -> None:
        """``path``: the file, or a model folder that holds one."""
        path = Path(path)
        self.path = path / TOKENIZER_FILE if path.is_dir() else path
        self._loaded: tokenizers.Tokenizer | None = None

    @property
    def vocab_size(self) -> int:
        """Ids are below this."""
        size: int = self._tokenizer().get_vocab_size(with_added_tokens=True)
        return size

    def encode(self, text: str) -> list[int]:
        """Ids of ``text``; special tokens written out in it become their ids."""
        ids: list[int] = self._tokenizer().encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        """Text of ``ids``, special tokens included."""
        text: str = self._tokenizer().decode(ids, skip_special_tokens=False)
        return text

    def token_id(self, token: str) -> int:
        """Id of one token such as ``<|im_end|>``; ``KeyError`` if the vocabulary has no such token."""
        found: int | None = self._tokenizer().token_to_id(token)
        if found is None:
            raise KeyError(f"token {token!r} is not in the vocabulary of {self.path}")
        return found

    def _tokenizer(self) -> tokenizers.Tokenizer:
        if self._loaded is None:
            import tokenizers

            if not self.path.is_file():
                raise FileNotFoundError(f"{self.path}: no such file; expected a Hugging Face tokenizer.json")
            self._loaded = tokenizers.Tokenizer.from_file(str(self.path))
        return self._loaded
