"""Process-wide behavior of every command: it logs to standard error, as text or JSON lines, and stops on a signal.

`mainstem driver` loads this module at every start, so it imports little.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mainstem._internal.printable import printable, printable_json
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from mainstem.recording.crash_recovery import Recovery

VARIABLE = "MAINSTEM_LOG_FORMAT"
FORMATS = ("text", "json")
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# Messages for people, which in text format have no time and level, such as "listening on ...".
PLAIN = logging.getLogger("mainstem.cli")


class JsonFormatter(logging.Formatter):
    """Formats a record as one object: time (UTC), level, logger, message, thread, process, and exception if there is one."""

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
    """Formats records for people. Text from peers and files is escaped, so that it cannot control the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n\t")


def _format() -> str:
    return os.environ.get(VARIABLE, "").strip().lower() or "text"


def is_json() -> bool:
    """Return whether log lines are JSON."""
    return _format() == "json"


def begin() -> None:
    """Set up logging in the format that the environment selects. Raises ConfigurationError if the format is unknown."""
    if _format() not in FORMATS:
        raise ConfigurationError(f"{VARIABLE}: unknown log format {_format()!r}; choose one of {', '.join(FORMATS)}")
    if is_json():
        configure(logging.WARNING)


def configure(level: int) -> None:
    """Log to standard error from ``level`` on, unless the process has its own handlers."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter() if is_json() else TextFormatter(TEXT))
        root.addHandler(handler)
        root.setLevel(level)
    elif isinstance(root.handlers[0].formatter, JsonFormatter):
        root.setLevel(level)


def say(text: str, level: int = logging.INFO) -> None:
    """Print a line for people to standard error, so that it does not end up in a pipe."""
    if is_json():
        record = PLAIN.makeRecord(PLAIN.name, level, __file__, 0, text, (), None)
        text = JsonFormatter().format(record)
    print(printable(text, keep="\n"), file=sys.stderr, flush=True)


def say_recovery(progress: Recovery) -> None:
    """Say how far the recovery of recordings is."""
    say(
        f"recovering recording {progress.recording_id}: checked {progress.checked / 1e6:,.0f} of {progress.total / 1e6:,.0f} MB"
    )


class Stop:
    """Records whether a signal asked the process to stop."""

    requested = False


@contextmanager
def stopping() -> Iterator[Stop]:
    """Let Ctrl-C and SIGTERM end the loop that checks ``requested``, so that the results so far are still reported."""
    stop = Stop()

    def request(*_: object) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True

    before = [(number, signal.signal(number, request)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield stop
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def stop_event() -> asyncio.Event:
    """Return an event of the running event loop that SIGINT and SIGTERM set from now on.

    Call this before the command announces that it serves, because a supervisor may stop it immediately afterward.
    """
    import asyncio

    event = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, event.set)
    return event
