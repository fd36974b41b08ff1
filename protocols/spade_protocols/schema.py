"""JSON Schema of every message, from the message types: `python -m spade_protocols.schema [--check]` writes `protocols/schema/`.

Always holds (a test): the files in `schema/` are what the types say.
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from spade_protocols.catalog import MODULES, ROLES
from spade_protocols.codec import Header
from spade_protocols.registry import BY_NAME, Message

FOLDER = Path(__file__).resolve().parent.parent / "schema"


def item_bodies() -> dict[str, type[Message]]:
    """Bodies of queue items and their results, by the queue they belong to."""
    from spade_protocols import design, play, sample

    return {
        "designs.item": design.DesignItem,
        "designs.result": design.DesignResult,
        "proposals.item": design.ProposalItem,
        "proposals.result": design.Admission,
        "plays.item": play.PlayItem,
        "plays.result": play.PlayResult,
        "samples.item": sample.SampleItem,
    }


def documents() -> dict[str, str]:
    """File name -> text: one schema per conversation, `header.json`, `items.json` and `index.json`."""
    files: dict[str, Any] = {"header.json": msgspec.json.schema(Header)}
    index: dict[str, Any] = {"messages": {}, "roles": {}}
    for module in MODULES:
        conversation = module.__name__.rpartition(".")[2]
        specs = [spec for spec in BY_NAME.values() if spec.cls.__module__ == module.__name__]
        if not specs:
            continue
        refs, definitions = msgspec.json.schema_components([spec.cls for spec in specs])
        files[f"{conversation}.json"] = {
            "messages": {spec.name: ref for spec, ref in zip(specs, refs, strict=True)},
            "$defs": definitions,
        }
        for spec in specs:
            entry = {"kind": str(spec.kind), "schema": f"{conversation}.json"}
            if spec.reply is not None:
                entry["reply"] = next(name for name, other in BY_NAME.items() if other.cls is spec.reply)
            index["messages"][spec.name] = entry
    bodies = item_bodies()
    refs, definitions = msgspec.json.schema_components(list(bodies.values()))
    files["items.json"] = {"messages": dict(zip(bodies, refs, strict=True)), "$defs": definitions}
    index["roles"] = {role: contract._asdict() for role, contract in ROLES.items()}
    files["index.json"] = index
    return {name: json.dumps(value, indent=1, sort_keys=True) + "\n" for name, value in files.items()}


def main() -> int:
    """Writes the files, or with `--check` says which differ (exit 1)."""
    check = "--check" in sys.argv[1:]
    wrong = []
    for name, text in documents().items():
        path = FOLDER / name
        if check:
            if not path.exists() or path.read_text() != text:
                wrong.append(name)
        else:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(text)
    for name in wrong:
        sys.stderr.write(f"schema/{name} is not what the types say; run `python -m spade_protocols.schema`\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
