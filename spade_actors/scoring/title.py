"""What people call an environment."""

import re

_CLASS = re.compile(r"^class\s+(\w*Env)\b", re.MULTILINE)
_DOC = re.compile(r'^class\s+\w*Env\b[^\n]*:\s*\n\s*(?:"""|\'\'\')(.*?)(?:"""|\'\'\'|\n)', re.MULTILINE | re.DOTALL)
LONGEST = 80


def class_title(source: str) -> str:
    """First line of its class's docstring, else the class's name without `Env` in words, else nothing."""
    doc = _DOC.search(source)
    if doc and doc.group(1).strip():
        return doc.group(1).strip()[:LONGEST]
    found = _CLASS.search(source)
    if not found:
        return ""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", found.group(1).removesuffix("Env"))
    return " ".join(words).lower()[:LONGEST]
