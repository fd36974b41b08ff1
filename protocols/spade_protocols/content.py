"""Content addresses: the same source and hint have the same name everywhere."""

import hashlib


def content_hash(source: str, hint: str) -> str:
    """First 32 hex digits of sha256 over `source \\0 hint` in UTF-8; lone surrogates are encoded as they are."""
    data = f"{source}\0{hint}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:32]
