"""What a process said before it died: one line for the user, and the file to look into. Reads files, changes nothing."""

import json
import re
from pathlib import Path
from typing import NamedTuple

_TAIL = 65536
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:: .+|(?:Error|Exception|Interrupt|Exit))$")


class LastWords(NamedTuple):
    """Where it was found and what it says."""

    text: str
    """empty when it said nothing"""
    log: Path


def last_words(name: str, logs: Path) -> LastWords:
    """The last error a process printed or logged."""
    printed, logged = logs / f"{name}.out", logs / f"{name}.log"
    from_log = _logged_error(_tail(logged))
    if from_log:
        return LastWords(from_log, logged)
    lines = [line.strip() for line in _tail(printed) if line.strip()]
    if lines:
        return LastWords(lines[-1][:300], printed)
    return LastWords("", logged if logged.exists() else printed)


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def _logged_error(lines: list[str]) -> str:
    """The newest error of the process's last life: entries before its last start do not count."""
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if not isinstance(entry, dict) or entry.get("event") == "start":
            return ""
        if entry.get("level") in ("error", "critical"):
            return _raised(str(entry.get("exception", ""))) or str(entry.get("event", ""))[:300]
    return ""


def _raised(trace: str) -> str:
    """The last exception named in a traceback, also of a group's innermost one."""
    found = [text for line in trace.splitlines() if _RAISED.match(text := line.strip(" |+-"))]
    return found[-1][:300] if found else ""
