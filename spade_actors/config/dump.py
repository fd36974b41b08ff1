"""`Config` -> TOML text that `load` reads back to the same `Config`."""

import json
import math
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import inspect

from spade_actors.config.describe import expected, help_of, sections
from spade_actors.config.schema import Config


def to_toml(config: Config, *, only: Sequence[str] | None = None, comments: bool = False) -> str:
    """The configuration as TOML; `only` names the tables to print, `comments` writes each field's help above it."""
    lines: list[str] = []
    for table, cls in sections(Config).items():
        if only is not None and table not in only:
            continue
        lines.append(f"[{table}]")
        values = getattr(config, table)
        for field in msgspec.structs.fields(cls):
            if comments:
                lines.append(f"# {help_of(field.type)}; {expected(inspect.type_info(field.type))}")
            lines.append(f"{field.name} = {_value(getattr(values, field.name))}")
        lines.append("")
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float):
        if not math.isfinite(value):
            return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        return repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_value(key)} = {_value(item)}" for key, item in value.items()) + "}"
    raise TypeError(f"a setting of type {type(value).__name__} has no TOML form here")
