"""Error codes for responses, and the recorder that writes the distinct error log (docs/protocols/aeron.md, 6.1, 9.1)."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

from mainstem._core.system_counter import SystemCounter
from mainstem._internal.address_prefixes import AddressPrefixes
from mainstem._internal.log_throttle import LogThrottle, kind_of
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.driver.event_log.events import Event
from mainstem.errors import (
    ChannelUriError,
    RegistrationError,
    RemoteProtocolError,
    StorageSpaceError,
)

if TYPE_CHECKING:
    from collections.abc import Container

    from mainstem._internal.clock import Clock
    from mainstem.aeron.driver.counters import SystemCounters
    from mainstem.aeron.driver.event_log.log import EventLog
    from mainstem.aeron.error_log import DistinctErrorLog

logger = logging.getLogger("mainstem.aeron.driver")

# Limit on the sources that have their own entry in the error log, per kind of error. In a small log the limit is lower, so that
# entries of LONG_ENTRY bytes, such as those of refusals, take at most an eighth of the log.
MAX_SOURCES = 128
LONG_ENTRY = 1_536
FURTHER_ERRORS = (
    f"{ErrorCode.GENERIC_ERROR.heading}: further errors do not fit in this log; "
    "a driver started with --verbose logs them"
)


def error_code_of(error: BaseException) -> ErrorCode:
    if isinstance(error, RegistrationError | RemoteProtocolError) and error.code is not None:
        return ErrorCode(error.code)
    if isinstance(error, ChannelUriError):
        return ErrorCode.UNKNOWN_HOST if isinstance(error.__cause__, LookupError) else ErrorCode.INVALID_CHANNEL
    if isinstance(error, StorageSpaceError) or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return ErrorCode.STORAGE_SPACE
    return ErrorCode.GENERIC_ERROR


def invalid_channel(message: str) -> RegistrationError:
    """Return the error for a channel that conflicts with existing streams or doesn't allow the command."""
    return RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)


def check_unused(registration_id: int, registrations: Container[int]) -> None:
    """Raise RegistrationError if a registration already has this id."""
    if registration_id in registrations:
        raise RegistrationError(f"registration id {registration_id} is already in use", code=ErrorCode.GENERIC_ERROR)


class ErrorRecorder:
    """A recorder that writes errors to the distinct error log, counts them, and logs them.

    Errors of clients and peers are logged at INFO, which standard error does not show by default: the client has its exception, and
    the operator the error log and the event log. Bugs are logged at ERROR.

    The distinct error log is never emptied, so neither peers nor clients may control its number of entries. Errors of peers share
    one entry per kind and source, whatever ids, ports and texts the peers send (``record_peer``). Unexpected errors share one entry
    per location in the code (``bug``). A quarter of the log is reserved for these. All other texts contain names that clients
    choose; when they have filled the rest of the log, a single entry counts further ones.
    """

    def __init__(
        self, log: DistinctErrorLog, clock: Clock, system_counters: SystemCounters, events: EventLog | None = None
    ) -> None:
        self._log = log
        self._clock = clock
        self._system_counters = system_counters
        self._events = events
        self._throttle = LogThrottle(logger)
        self._reserve = log.capacity // 4
        self._max_sources = max(1, min(MAX_SOURCES, log.capacity // 8 // LONG_ENTRY))
        self._prefixes = AddressPrefixes()
        # The text of the entry per location in the code that raised a bug, and per kind and source of a peer's error.
        self._bugs: dict[tuple[type, str, int], str] = {}
        self._of_peers: dict[str, dict[str, str]] = {}

    def record(self, text: str, *, code: int = ErrorCode.GENERIC_ERROR, bug: BaseException | None = None) -> None:
        """Record an error. A repeat of the same code and text only increases the count of its entry.

        ``bug`` is an unexpected exception. All exceptions raised at the same location in the code count as repeats, and the logger
        gets the traceback of the first.
        """
        text = f"{ErrorCode(code).heading}: {text}"
        now_ms = self._clock.epoch_ms()
        if bug is not None:
            self._log.record(self._bugs.setdefault(kind_of(bug), text), now_ms=now_ms)
            self._tell(logging.ERROR, kind_of(bug), text, bug)
            return
        if not self._log.record(text, now_ms=now_ms, reserve=self._reserve):
            self._log.record(FURTHER_ERRORS, now_ms=now_ms)
        self._tell(logging.INFO, text, text)

    def record_peer(self, kind: str, address: str, text: str, *, code: int = ErrorCode.GENERIC_ERROR) -> None:
        """Record an error whose text a peer can influence.

        Each ``kind`` and source (an IPv4 address or an IPv6 /64) has one entry, which keeps the first text. Further sources, beyond
        the limit of MAX_SOURCES per kind, share one entry.
        """
        text = f"{ErrorCode(code).heading}: {text}"
        entries, source = self._of_peers.setdefault(kind, {}), self._prefixes.prefix_of(address)
        if source not in entries and len(entries) >= self._max_sources:
            source = "any other source"
        entry = entries.setdefault(source, f"{text} (the first of {source})")
        self._log.record(entry, now_ms=self._clock.epoch_ms())
        self._tell(logging.INFO, (kind, source), text)

    def _tell(self, level: int, kind: object, text: str, bug: BaseException | None = None) -> None:
        self._system_counters.increment(SystemCounter.ERRORS)
        now_ns = self._clock.monotonic_ns()
        self._throttle.log(level, kind, text, now_ns, error=bug)
        if self._events is not None:
            self._events.note(Event.GENERIC_MESSAGE, now_ns, text=text)

    def warn(self, kind: str, text: str) -> None:
        """Log a warning for operators, at most once per interval for each ``kind``."""
        self._throttle.log(logging.WARNING, kind, text, self._clock.monotonic_ns())

    def note(self, kind: str, text: str) -> None:
        """Log an event that is an error of another process, which learns of it, at most once per interval for each ``kind``."""
        self._throttle.log(logging.INFO, kind, text, self._clock.monotonic_ns())

    def close(self) -> None:
        self._throttle.flush(self._clock.monotonic_ns())
