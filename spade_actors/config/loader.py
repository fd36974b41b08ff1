"""TOML file + `--set section.key=value` -> a checked `Config`.

What always holds: a key that the schema lacks or a value it refuses raises `ConfigError` with one line; nothing is taken from the
environment; later sources win (defaults, then the base, then the file, then `--set` in order).
"""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from spade_actors.config.check import check
from spade_actors.config.describe import expected, help_of, sections
from spade_actors.config.errors import ConfigError
from spade_actors.config.schema import Config, Section

Tables = dict[str, dict[str, Any]]


def load(path: Path | None = None, overrides: Sequence[str] = (), base: Config | None = None) -> Config:
    """The configuration from `base` (default: the schema's defaults), a TOML file and `key=value` overrides.

    Raises:
        ConfigError: unreadable file, unknown key, wrong value, or settings that contradict each other.
    """
    tables: Tables = {} if base is None else msgspec.to_builtins(base)
    if path is not None:
        _merge(tables, _read(path), where=str(path))
    for override in overrides:
        _merge(tables, _parse_override(override), where="--set")
    return build(tables)


def build(tables: Mapping[str, Any]) -> Config:
    """Nested plain values as a checked `Config`; raises `ConfigError` as `load` does."""
    known = sections(Config)
    built: dict[str, Section] = {}
    for table, values in tables.items():
        cls = known.get(table)
        if cls is None:
            raise ConfigError(_unknown_table(table, values))
        if not isinstance(values, Mapping):
            raise ConfigError(f"{table} = {_short(values)}: {table} is a table; write its keys under [{table}]")
        built[table] = _section(table, cls, values)
    config = Config(**built)  # type: ignore[arg-type]
    check(config)
    return config


def _section(table: str, cls: type[Section], values: Mapping[str, Any]) -> Section:
    fields = {field.name: field for field in msgspec.structs.fields(cls)}
    converted: dict[str, Any] = {}
    for key, value in values.items():
        if key not in fields:
            raise ConfigError(_unknown_key(table, key))
        try:
            converted[key] = msgspec.convert(value, fields[key].type, strict=True)
        except msgspec.ValidationError:
            wanted, meaning = expected(inspect.type_info(fields[key].type)), help_of(fields[key].type)
            raise ConfigError(f"{table}.{key} = {_short(value)}: expected {wanted} ({meaning})") from None
    return cls(**converted)


def _read(path: Path) -> Tables:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError(f"configuration file {path}: {reason}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"configuration file {path} is not TOML: {error}") from None


def _parse_override(override: str) -> Tables:
    key, equals, text = override.partition("=")
    table, dot, name = key.strip().partition(".")
    if not (equals and dot and table and name) or "." in name:
        raise ConfigError(f"--set {override}: expected section.key=value, e.g. --set learner.lr=0.001")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    return {table: {name: value}}


def _merge(into: Tables, tables: Mapping[str, Any], where: str) -> None:
    for table, values in tables.items():
        if isinstance(values, Mapping):
            into.setdefault(table, {}).update(values)
        elif table in sections(Config):
            raise ConfigError(
                f"{where}: {table} = {_short(values)}: {table} is a table; write its keys under [{table}]"
            )
        else:
            raise ConfigError(f"{where}: {_unknown_table(table, values)}")


def _keys() -> dict[str, str]:
    """Every dotted key by its last part and by itself."""
    return {
        f"{table}.{field.name}": field.name
        for table, cls in sections(Config).items()
        for field in msgspec.structs.fields(cls)
    }


def _unknown_key(table: str, key: str) -> str:
    keys = _keys()
    same_table = [name for full, name in keys.items() if full.startswith(f"{table}.")]
    near = difflib.get_close_matches(key, same_table, n=1, cutoff=0.6)
    elsewhere = [full for full, name in keys.items() if name == key]
    if near and near[0] != key:
        return f"unknown key {table}.{key}: did you mean {table}.{near[0]}?"
    if elsewhere:
        return f"unknown key {table}.{key}: did you mean {elsewhere[0]}?"
    near = difflib.get_close_matches(f"{table}.{key}", keys, n=1, cutoff=0.8)
    if near:
        return f"unknown key {table}.{key}: did you mean {near[0]}?"
    return f"unknown key {table}.{key}: [{table}] has {', '.join(same_table)}"


def _unknown_table(table: str, values: Any) -> str:
    names = list(sections(Config))
    if not isinstance(values, Mapping):
        elsewhere = [full for full, name in _keys().items() if name == table]
        if elsewhere:
            return f"unknown key {table}: did you mean {elsewhere[0]}?"
    near = difflib.get_close_matches(table, names, n=1, cutoff=0.5)
    hint = f"did you mean [{near[0]}]?" if near else f"there are {', '.join(f'[{name}]' for name in names)}"
    return f"unknown table [{table}]: {hint}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
