"""Structured logs: one JSON object per line, one file per process."""

import sys
from pathlib import Path
from typing import TextIO, cast

import structlog


def open_log(path: Path | None, **bound: str) -> structlog.stdlib.BoundLogger:
    """A logger that appends to `path` (its folder is made), or writes to stderr; `bound` is in every line."""
    stream: TextIO = sys.stderr
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("a", encoding="utf-8")
    logger = structlog.wrap_logger(
        structlog.WriteLogger(stream),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ],
    )
    return cast(structlog.stdlib.BoundLogger, logger.bind(**bound))
