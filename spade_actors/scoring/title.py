"""What people call an environment."""

import re

_CLASS = re.compile(r"^class\s+(\w*Env)\b", re.MULTILINE)
_DOC = re.compile(
    r'^class\s+\w*Env\b[^\n]*:[^\S\n]*\n\s*(?:"""|\'\'\')(.*?)(?:"""|\'\'\'|\n)', re.MULTILINE | re.DOTALL
)
LONGEST = 80
_SEARCHED = 20_000
"""Characters that are looked at: a title far down a long source is none."""


def class_title(source: str) -> str:
    """First line of its class's docstring, else the class's name without `Env` in words, else nothing."""
    source = source[:_SEARCHED]
    doc = _DOC.search(source)
    if doc and doc.group(1).strip():
        return doc.group(1).strip()[:LONGEST]
    found = _CLASS.search(source)
    if not found:
        return ""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", found.group(1).removesuffix("Env"))
    return " ".join(words).lower()[:LONGEST]
