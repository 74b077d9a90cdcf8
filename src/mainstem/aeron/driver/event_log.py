"""The event log: a line for each command, answer and state change that the settings name (behaviour, 24 and 25)."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, TextIO

from mainstem.aeron.command import commands, responses
from mainstem.clock import NS_PER_SECOND
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from mainstem.aeron.driver.settings import DriverSettings

# (what it is about, the state that it came to, or none for any): what the reference calls that.
STATE_EVENTS = {
    ("untethered subscription", ""): "UNTETHERED_SUBSCRIPTION_STATE_CHANGE",
    ("resolver neighbor", "ADDED"): "NAME_RESOLUTION_NEIGHBOR_ADDED",
    ("resolver neighbor", "REMOVED"): "NAME_RESOLUTION_NEIGHBOR_REMOVED",
    ("send channel", "CREATED"): "SEND_CHANNEL_CREATION",
    ("send channel", "CLOSED"): "SEND_CHANNEL_CLOSE",
    ("receive channel", "CREATED"): "RECEIVE_CHANNEL_CREATION",
    ("receive channel", "CLOSED"): "RECEIVE_CHANNEL_CLOSE",
    ("publication", "REMOVED"): "REMOVE_PUBLICATION_CLEANUP",
    ("publication", "REVOKED"): "PUBLICATION_REVOKE",
    ("image", "REMOVED"): "REMOVE_IMAGE_CLEANUP",
    ("image", "REVOKED"): "PUBLICATION_IMAGE_REVOKE",
    ("subscription", "REMOVED"): "REMOVE_SUBSCRIPTION_CLEANUP",
}
# Names for all of them; nothing here is so frequent that "admin" leaves it out.
GROUPS = ("all", "admin")
MAX_DETAIL = 1024  # of a line, so that a long channel does not fill the log


def _upper_snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()


def event_name(name: str) -> str:
    """What the event log calls a command or an answer: ``CMD_IN_ADD_PUBLICATION``, ``CMD_OUT_AVAILABLE_IMAGE``."""
    if name.startswith("On"):
        return f"CMD_OUT_{_upper_snake(name[2:])}"
    return f"CMD_IN_{_upper_snake(name)}"


def known_events() -> set[str]:
    """Every event that can be logged."""
    kinds = [*_kinds(commands, commands.Command), *_kinds(responses, responses.Response)]
    return {event_name(kind) for kind in kinds} | set(STATE_EVENTS.values())


def _kinds(module: object, base: object) -> list[str]:
    found = [value for value in vars(module).values() if isinstance(value, type) and hasattr(value, "TYPE")]
    return [kind.__name__ for kind in found if kind is not base]


def chosen_events(text: str, *, setting: str) -> set[str]:
    """The events of ``all``, ``admin`` or names separated by commas. Raises ConfigurationError for others."""
    known = known_events()
    chosen: set[str] = set()
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name.lower() in GROUPS:
            chosen |= known
        elif name.upper() in known:
            chosen.add(name.upper())
        else:
            raise ConfigurationError(
                f"{setting}: {name!r} is not an event that this driver logs ({', '.join(sorted(known))}, all or admin); "
                "frames are seen in a capture of the network"
            )
    return chosen


class EventLog:
    """An Instrument that writes lines to a file, begun anew when it would exceed ``max_length`` (0 for never)."""

    def __init__(self, events: set[str], file: TextIO, *, max_length: int = 0) -> None:
        self._events = events
        self._file = file
        self._max_length = max_length
        self._length = 0

    def frame_in(self, source: str, frame: bytes, now_ns: int) -> None:
        """Frames are not logged."""

    def frame_out(self, destination: str, frame: bytes, now_ns: int) -> None:
        """Frames are not logged."""

    def command(self, name: str, detail: str, now_ns: int) -> None:
        """A command, or an answer."""
        self._write(event_name(name), detail, now_ns)

    def state_change(self, subject: str, old: str, new: str, now_ns: int) -> None:
        """What came, went or changed."""
        for (start, state), event in STATE_EVENTS.items():
            if subject.startswith(start + " ") and state in ("", new):
                self._write(event, f"{subject}: {old} -> {new}", now_ns)

    def close(self) -> None:
        """Closes the file, unless it is the standard error."""
        if self._file is not sys.stderr:
            self._file.close()

    def _write(self, event: str, detail: str, now_ns: int) -> None:
        if event not in self._events:
            return
        shown = detail[:MAX_DETAIL]
        seconds, nanos = divmod(now_ns, NS_PER_SECOND)
        line = f"[{seconds}.{nanos:09}] DRIVER: {event} [{len(shown)}/{len(detail)}]: {shown}\n"
        if self._max_length and self._length + len(line) > self._max_length and self._file.seekable():
            self._file.seek(0)
            self._file.truncate()
            self._length = 0
        self._length += len(line)
        self._file.write(line)
        self._file.flush()


def event_log(settings: DriverSettings) -> EventLog | None:
    """The event log that the settings ask for, if they do. Raises ConfigurationError."""
    events = chosen_events(settings.event_log, setting="AERON_EVENT_LOG")
    events -= chosen_events(settings.event_log_disable, setting="AERON_EVENT_LOG_DISABLE")
    if not events:
        return None
    if not settings.event_log_filename:
        return EventLog(events, sys.stderr)
    try:
        file = open(settings.event_log_filename, "w", encoding="utf-8")  # noqa: SIM115 - open as long as the driver
    except OSError as error:
        raise ConfigurationError(f"AERON_EVENT_LOG_FILENAME {settings.event_log_filename}: {error}") from error
    return EventLog(events, file, max_length=settings.event_log_file_max_length)
