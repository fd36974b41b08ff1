"""Takes source and hint out of a designer's generation.

What always holds: the result is either a `Design` with non-empty source and hint, or a `Rejected` with one reason; no
text makes it raise. Only the last complete ```python fence outside thinking text counts.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from spade_actors.prompts.agent import after_thinking


class ExtractFailure(StrEnum):
    """Why a generation holds no design."""

    UNTERMINATED = "unterminated"
    """A fence or the thinking text was opened and never closed: usually the token limit."""
    NO_CODE = "no_code"
    """No complete python fence, or an empty one."""
    NO_HINT = "no_hint"
    """Nothing behind `HINT:` after the last fence."""


@dataclass(frozen=True, slots=True)
class Design:
    """An environment's source and its privileged hint."""

    source: str
    hint: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A generation without a design."""

    reason: ExtractFailure


_FENCE = re.compile(r"^[ \t]*```[ \t]*(?:python|py)[ \t]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
_OPEN = re.compile(r"^[ \t]*```[ \t]*(?:python|py)[ \t]*$", re.MULTILINE)
_HINT = re.compile(r"HINT:[ \t]*(.*)", re.DOTALL)
_TITLE = re.compile(r'^class[^\n]*\n\s*"""(.*?)"""', re.DOTALL | re.MULTILINE)
_CLASS = re.compile(r"^class\s+(\w+)", re.MULTILINE)


def extract(text: str) -> Design | Rejected:
    """Parses one designer generation (text without the end token)."""
    if "<think>" in text and "</think>" not in text:
        return Rejected(ExtractFailure.UNTERMINATED)
    text = after_thinking(text)
    fences = list(_FENCE.finditer(text))
    opened_last = [m.start() for m in _OPEN.finditer(text)]
    if not fences:
        return Rejected(ExtractFailure.UNTERMINATED if opened_last else ExtractFailure.NO_CODE)
    last = fences[-1]
    if opened_last and opened_last[-1] >= last.end():
        return Rejected(ExtractFailure.UNTERMINATED)
    source = last.group(1).rstrip() + "\n"
    if not source.strip():
        return Rejected(ExtractFailure.NO_CODE)
    found = _HINT.search(text, last.end())
    hint = found.group(1).strip() if found else ""
    return Design(source, hint) if hint else Rejected(ExtractFailure.NO_HINT)


def title(source: str) -> str:
    """A short name for an environment: its class docstring's first line, else the class name, else "untitled"."""
    found = _TITLE.search(source)
    if found and found.group(1).strip():
        return found.group(1).strip().splitlines()[0][:80]
    named = _CLASS.search(source)
    return named.group(1) if named else "untitled"
