"""The line a user reads when a process dies."""

import json
import traceback
from pathlib import Path

from spade_actors.supervisor.last_words import last_words


def trace(error: BaseException) -> str:
    try:
        raise error
    except BaseException as raised:
        return "".join(traceback.format_exception(raised))


def write_log(logs: Path, *entries: dict[str, str]) -> None:
    (logs / "agent-1.log").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


START, END = {"event": "start", "level": "info"}, {"event": "end", "level": "info"}


def test_a_logged_exception_group_names_the_innermost_error(tmp_path: Path) -> None:
    error = ExceptionGroup("exceptions in nursery", [ValueError("run.model: no such folder")])
    write_log(tmp_path, START, {"event": "failed", "level": "error", "exception": trace(error)}, END)
    (tmp_path / "agent-1.out").write_text("some warning\n")
    assert last_words("agent-1", tmp_path) == ("ValueError: run.model: no such folder", tmp_path / "agent-1.log")


def test_an_error_of_an_earlier_life_is_not_blamed(tmp_path: Path) -> None:
    write_log(tmp_path, START, {"event": "failed", "level": "error", "exception": trace(KeyError("x"))}, END, START)
    (tmp_path / "agent-1.out").write_text("Traceback ...\nMemoryError\n\n")
    assert last_words("agent-1", tmp_path) == ("MemoryError", tmp_path / "agent-1.out")


def test_silence(tmp_path: Path) -> None:
    assert last_words("agent-1", tmp_path) == ("", tmp_path / "agent-1.out")
    write_log(tmp_path, START)
    assert last_words("agent-1", tmp_path) == ("", tmp_path / "agent-1.log")
    (tmp_path / "agent-1.log").write_text("not json\n[1]\n")
    assert last_words("agent-1", tmp_path).text == ""
