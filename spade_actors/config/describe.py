"""What a field expects, in words, from its type alone: error messages, `spade-actors config` and the README say the same."""

from typing import Any

import msgspec
from msgspec import inspect

from spade_actors.config.schema import Section


def _bounds(info: inspect.IntType | inspect.FloatType) -> str:
    parts = [
        f"{sign} {bound:g}"
        for sign, bound in ((">=", info.ge), (">", info.gt), ("<=", info.le), ("<", info.lt))
        if bound is not None
    ]
    return " and ".join(parts)


def expected(info: inspect.Type) -> str:
    """A type in words, e.g. `an integer >= 1` or `"embedded", "sglang" or "sglang-url"`."""
    if isinstance(info, inspect.Metadata):
        return expected(info.type)
    if isinstance(info, inspect.IntType):
        return f"an integer {_bounds(info)}".rstrip()
    if isinstance(info, inspect.FloatType):
        return f"a number {_bounds(info)}".rstrip()
    if isinstance(info, inspect.BoolType):
        return "true or false"
    if isinstance(info, inspect.StrType):
        return "a text"
    if isinstance(info, inspect.LiteralType):
        quoted = [f'"{value}"' for value in sorted(map(str, info.values))]
        return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    if isinstance(info, inspect.ListType):
        return f"a list, each {expected(info.item_type)}"
    if isinstance(info, inspect.TupleType):
        return f"a list of {len(info.item_types)}: {', '.join(expected(item) for item in info.item_types)}"
    if isinstance(info, inspect.DictType):
        return f"a table, each value {expected(info.value_type)}"
    raise TypeError(f"the schema uses {type(info).__name__}, which describe.py has no words for")


def help_of(field_type: Any) -> str:
    """The description in a field's `Meta`, or an empty string."""
    info = inspect.type_info(field_type)
    if isinstance(info, inspect.Metadata):
        schema = info.extra_json_schema or {}
        return str(schema.get("description", ""))
    return ""


def sections(cls: type[Section]) -> dict[str, type[Section]]:
    """The tables of the file: name -> section class, in file order."""
    return {
        field.name: field.type
        for field in msgspec.structs.fields(cls)
        if isinstance(field.type, type) and issubclass(field.type, Section)
    }
