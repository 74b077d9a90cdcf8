"""The event log and its file."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_SECOND
from mainstem._internal.printable import printable
from mainstem.aeron.driver.event_log.events import FRAMES, Event
from mainstem.aeron.driver.event_log.frame_text import frame_text
from mainstem.aeron.driver.event_log.record_text import record_text
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from typing import Any, BinaryIO

    from mainstem.aeron.command.wire import Message
    from mainstem.aeron.driver.settings import DriverSettings

logger = logging.getLogger("mainstem.aeron.driver")

STANDARD_OUTPUT = 1
MAX_DETAIL = 4096  # maximum characters of detail in a line, so that a long channel doesn't fill the log
# The reference counts the header of its log entries in their lengths.
ENTRY_HEADER = 16
EVERY_EVENT_FROM = 0xFFFF  # an old-style mask of at least this value means all events

_BY_NAME = {event.name: event for event in Event} | {str(event.number): event for event in Event if event.number}
_BY_RECORD = {event.record: event for event in Event if event.record}


class EventLog:
    """A log of events in an unbuffered file. At ``max_length`` bytes (0 for no limit), the file is truncated to zero.

    ``with_data`` includes payloads. Any thread can write, because each line is a single write. If writing fails, the log stops, but
    the driver continues.
    """

    def __init__(self, events: set[Event], file: BinaryIO, *, max_length: int = 0, with_data: bool = False) -> None:
        self._events = frozenset(events)
        self._file = file
        self._max_length = max_length
        self._with_data = with_data
        self._length = 0

    def includes(self, *events: Event) -> bool:
        return not self._events.isdisjoint(events)

    def note(self, event: Event, now_ns: int, **fields: Any) -> None:
        """Log an event, with the fields of its line."""
        if event in self._events:
            detail = printable(event.line.format(**fields))
            shown = detail[:MAX_DETAIL]
            self._write(event, len(shown), len(detail), shown, now_ns)

    def record(self, record: Message, now_ns: int) -> None:
        """Log a command or a response."""
        event = _BY_RECORD[type(record)]
        if event in self._events:
            length = ENTRY_HEADER + len(record.encode())
            self._write(event, length, length, record_text(event, record)[:MAX_DETAIL], now_ns)

    def frame(self, event: Event, address: str, datagram: bytes, now_ns: int, *, address_length: int) -> None:
        if event in self._events:
            captured = ENTRY_HEADER + address_length + len(datagram)
            text = frame_text(datagram, with_data=self._with_data)
            self._write(event, captured, len(datagram), f"address={address} {text}", now_ns)

    def close(self) -> None:
        self._events = frozenset()
        self._file.close()

    def _write(self, event: Event, captured: int, length: int, detail: str, now_ns: int) -> None:
        seconds, nanos = divmod(now_ns, NS_PER_SECOND)
        line = f"[{seconds}.{nanos:09}] DRIVER: {event.name} [{captured}/{length}]: {detail}\n".encode()
        try:
            if self._max_length and self._length + len(line) > self._max_length and self._file.seekable():
                self._file.truncate(0)
                self._length = 0
            self._length += len(line)
            self._file.write(line)
        except (OSError, ValueError) as error:
            if self._events:
                logger.warning("stopped writing the event log: %s", error)
            self._events = frozenset()


def event_log(settings: DriverSettings) -> EventLog | None:
    """Return the event log that the settings configure, or None if they select no event. Raises ConfigurationError."""
    events = chosen_events(settings.event_log, setting="AERON_EVENT_LOG")
    events -= chosen_events(settings.event_log_disable, setting="AERON_EVENT_LOG_DISABLE")
    if not events:
        return None
    name = settings.event_log_filename
    if not name:
        return EventLog(
            events, open(STANDARD_OUTPUT, "ab", buffering=0, closefd=False), with_data=settings.event_log_render_data
        )
    try:
        open(name, "wb").close()
        # Append, so that a line that one thread writes while another truncates the file leaves no hole.
        file = open(name, "ab", buffering=0)  # noqa: SIM115 - the driver keeps it open
    except OSError as error:
        raise ConfigurationError(f"AERON_EVENT_LOG_FILENAME {name}: {error}") from error
    return EventLog(
        events, file, max_length=settings.event_log_file_max_length, with_data=settings.event_log_render_data
    )


def chosen_events(text: str, *, setting: str) -> set[Event]:
    """Return the events that a setting selects. Raises ConfigurationError.

    The setting is a comma-separated list of names, numbers, ``all``, and ``admin`` (all but frames).
    """
    chosen: set[Event] = set()
    for name in filter(None, (part.strip().upper() for part in text.split(","))):
        if name == "ALL" or _is_full_mask(name):
            chosen |= set(Event)
        elif name == "ADMIN":
            chosen |= set(Event) - FRAMES
        elif name in _BY_NAME:
            chosen.add(_BY_NAME[name])
        else:
            known = ", ".join(sorted(Event.__members__))
            raise ConfigurationError(
                f"{setting}: {name!r} is not a known event ({known}, an event number, all or admin)"
            )
    return chosen


def _is_full_mask(text: str) -> bool:
    try:
        return text.startswith("0X") and int(text, 16) >= EVERY_EVENT_FROM
    except ValueError:
        return False
