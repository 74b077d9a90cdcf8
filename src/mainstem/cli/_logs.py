"""What commands say to people and to log collectors, on standard error: as text, or one JSON object a line."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from mainstem._internal.printable import printable, printable_json
from mainstem.errors import ConfigurationError

VARIABLE = "MAINSTEM_LOG_FORMAT"
FORMATS = ("text", "json")
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# What people read in text without time and level: "listening on ...".
PLAIN = logging.getLogger("mainstem.cli")


class JsonFormatter(logging.Formatter):
    """One object: time (UTC), level, logger, message, thread, process, and exception where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        from datetime import UTC, datetime

        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "thread": record.threadName,
            "process": record.process,
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return printable_json(fields)


class TextFormatter(logging.Formatter):
    """Lines for people. What peers and files say in them cannot control the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n\t")


def _format() -> str:
    return os.environ.get(VARIABLE, "").strip().lower() or "text"


def is_json() -> bool:
    """Whether log lines are JSON."""
    return _format() == "json"


def begin() -> None:
    """Has what any command logs written in the format of the environment. Raises ConfigurationError for one that there is not."""
    if _format() not in FORMATS:
        raise ConfigurationError(f"{VARIABLE}: {_format()!r} is no format of logs; accepted: {', '.join(FORMATS)}")
    if is_json():
        configure(logging.WARNING)


def configure(level: int) -> None:
    """Sends what is logged to standard error, from that level on, unless the process has handlers of its own."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter() if is_json() else TextFormatter(TEXT))
        root.addHandler(handler)
        root.setLevel(level)
    elif isinstance(root.handlers[0].formatter, JsonFormatter):
        root.setLevel(level)


def say(text: str, level: int = logging.INFO) -> None:
    """Prints a line for people to standard error, not to the pipe."""
    if is_json():
        record = PLAIN.makeRecord(PLAIN.name, level, __file__, 0, text, (), None)
        text = JsonFormatter().format(record)
    print(printable(text, keep="\n"), file=sys.stderr, flush=True)
