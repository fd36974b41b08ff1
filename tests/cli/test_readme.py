"""The README and the changelog name only what exists."""

import re
from pathlib import Path

import msgspec

from spade_actors.cli.app import app
from spade_actors.config import Config
from spade_actors.config.describe import sections

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_commands_and_options_exist() -> None:
    named = set(re.findall(r"(?:`|^ {4})spade-actors ([a-z][a-z-]+)", README, re.MULTILINE))
    assert named <= set(app.commands), named - set(app.commands)
    for command in app.commands:
        assert re.search(rf"\b{command}\b", README), f"README does not mention {command}"
    options = {option for command in app.commands.values() for parameter in command.params for option in parameter.opts}
    used = set(re.findall(r"--[a-z][a-z-]+", README))
    assert used <= options, used - options


def test_settings_exist() -> None:
    keys = {f"{table}.{field.name}" for table, cls in sections(Config).items() for field in msgspec.structs.fields(cls)}
    tables = "|".join(sections(Config))
    used = set(re.findall(rf"[`\s]((?:{tables})\.[a-z_]+)\s?=", README)) | set(
        re.findall(rf"`((?:{tables})\.[a-z_]+)`", README)
    )
    assert used, "the README names no setting"
    named_files = {name for name in used if name.split(".")[1] in ("py", "toml", "jsonl", "sqlite", "json", "md")}
    assert used - named_files <= keys, used - keys


def test_paths_exist() -> None:
    named = set(re.findall(r"`((?:spade_actors|protocols|sandbox|bench|docs)/[\w/.]*)`", README)) | set(
        re.findall(r"\]\(([\w/.]+)\)", README)
    )
    assert len(named) > 10
    for path in named:
        assert (ROOT / path).exists(), path
