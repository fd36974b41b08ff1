"""The evaluation set: environments with held-out rules of the warm-up families, and of families never warmed up with.

What always holds: none of its rules occurs in the warm-up; every line is an environment that its family's expert can
win; no two lines are the same; the file is the same whenever it is built.
"""

import gzip
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from spade_actors.micro.documents import draw_variant
from spade_actors.micro.families import DIFFICULTIES, UNSEEN, WARM, Variant

HELD_OUT_FILE = Path(__file__).with_name("assets") / "heldout.jsonl.gz"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One evaluation environment. `split` is "heldout" (known family, new rule) or "unseen" (new family)."""

    id: str
    family: str
    split: str
    skill: str
    source: str
    hint: str


def variants(per_warm: int = 24, per_unseen: int = 16, seed: int = 2026) -> list[tuple[str, Variant]]:
    """(split, variant) pairs: 8 x `per_warm` of held-out rules, no two with equal params, then 3 x `per_unseen` of unseen families."""
    out: list[tuple[str, Variant]] = []
    for split, families, count in (("heldout", WARM, per_warm), ("unseen", UNSEEN, per_unseen)):
        for family in families:
            rng, seen = Random(f"{seed} {family.name}"), set[str]()
            for attempt in range(100 * count):
                variant = draw_variant(family, rng, DIFFICULTIES[attempt % 3], held_out=family in WARM)
                made = json.dumps(variant.params)
                if made not in seen:
                    seen.add(made)
                    out.append((split, variant))
                if len(seen) == count:
                    break
            else:
                raise ValueError(f"{family.name} has only {len(seen)} held-out variants; expected {count}")
    return out


def build() -> list[HeldOut]:
    """The default set: 192 + 48 environments."""
    numbered: dict[str, int] = {}
    out = []
    for split, variant in variants():
        name = variant.family.name
        numbered[name] = numbered.get(name, 0) + 1
        number = f"{split}-{name}-{numbered[name]:02d}"
        out.append(HeldOut(number, name, split, variant.family.skill, variant.source, variant.hint))
    return out


def write(path: Path = HELD_OUT_FILE) -> None:
    """Writes the default set, byte for byte the same each time."""
    lines = "".join(json.dumps(asdict(item)) + "\n" for item in build())
    path.write_bytes(gzip.compress(lines.encode(), mtime=0))


def read(path: Path = HELD_OUT_FILE) -> list[HeldOut]:
    """The shipped set, or another file of the same form (gzipped when it ends in .gz)."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    return [HeldOut(**json.loads(line)) for line in text.splitlines() if line.strip()]
