"""The held-out environments: one JSON object a line, `{"id", "split", "skill", "family", "source", "hint"}`, plain or gzipped."""

import gzip
from importlib import resources
from pathlib import Path

import msgspec

from spade_protocols.content import content_hash

SHIPPED = ("heldout.jsonl", "heldout.jsonl.gz")


class HeldOut(msgspec.Struct, frozen=True, kw_only=True):
    """One environment that only evaluates."""

    id: str
    source: str
    hint: str
    split: str = "heldout"
    """heldout: families of the warm-up with other parameters; unseen: families never trained on"""
    skill: str = ""
    family: str = ""

    @property
    def environment(self) -> str:
        """Content hash."""
        return content_hash(self.source, self.hint)


class HeldOutError(ValueError):
    """A held-out file that cannot be used; one line for a user."""


def load_heldout(path: str) -> list[HeldOut]:
    """The environments of a file, in its order; of the shipped set if `path` is empty, and none if that is not built.

    Raises:
        HeldOutError: unreadable, a line that is no held-out environment, or an id twice.
    """
    if not path:
        assets = resources.files("spade_actors.micro") / "assets"
        for name in SHIPPED:
            if (assets / name).is_file():
                return _parse(name, (assets / name).read_bytes())
        return []
    try:
        return _parse(path, Path(path).read_bytes())
    except OSError as error:
        raise HeldOutError(
            f"judge.heldout = {path!r}: {error.strerror}; name a JSONL file or leave it empty"
        ) from error


def _parse(name: str, data: bytes) -> list[HeldOut]:
    found: list[HeldOut] = []
    seen: set[str] = set()
    try:
        text = gzip.decompress(data) if name.endswith(".gz") else data
    except (OSError, EOFError) as error:
        raise HeldOutError(f"judge.heldout: {name} is not gzip: {error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = msgspec.json.decode(line, type=HeldOut)
        except msgspec.MsgspecError as error:
            raise HeldOutError(f"judge.heldout: {name} line {number}: {error}") from error
        if entry.id in seen:
            raise HeldOutError(f"judge.heldout: {name} line {number}: id {entry.id!r} is there twice")
        seen.add(entry.id)
        found.append(entry)
    return found


def small_subset(environments: list[HeldOut], count: int) -> list[HeldOut]:
    """The same `count` environments every time, spread evenly over splits and families."""
    ordered = sorted(environments, key=lambda e: (e.split, e.family, e.id))
    if count >= len(ordered):
        return ordered
    return [ordered[i * len(ordered) // count] for i in range(count)]
