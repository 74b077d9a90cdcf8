"""Errors on their way to a response and to the distinct error log (docs/protocols/aeron.md, 6.1, 9.1)."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

from mainstem.aeron.channel import InvalidChannel
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.system_counter import SystemCounter
from mainstem.errors import (
    ChannelUriError,
    RegistrationError,
    RemoteProtocolError,
    StorageSpaceError,
)
from mainstem.log_limit import LogLimit, kind_of

if TYPE_CHECKING:
    from collections.abc import Container

    from mainstem.aeron.driver.event_log import EventLog
    from mainstem.aeron.error_log import DistinctErrorLog
    from mainstem.aeron.system_counter import SystemCounters
    from mainstem.clock import Clock

logger = logging.getLogger(__name__)


def error_code_of(error: BaseException) -> ErrorCode:
    """Returns the code of the ON_ERROR response to ``error``."""
    if isinstance(error, RegistrationError | RemoteProtocolError) and error.code is not None:
        return ErrorCode(error.code)
    if isinstance(error, ChannelUriError) and isinstance(error.__cause__, LookupError):
        return ErrorCode.UNKNOWN_HOST
    if isinstance(error, InvalidChannel):
        return ErrorCode.INVALID_CHANNEL
    if isinstance(error, StorageSpaceError) or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return ErrorCode.STORAGE_SPACE
    return ErrorCode.GENERIC_ERROR


def invalid_channel(message: str) -> RegistrationError:
    """The error for a session that is there already, and for a subscription that takes no destinations."""
    return RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)


def conflict(message: str) -> RegistrationError:
    """The error for a channel that contradicts what is there already."""
    return RegistrationError(message, code=ErrorCode.GENERIC_ERROR)


def check_unused(registration_id: int, registrations: Container[int]) -> None:
    """Raises RegistrationError if a command's correlation id is that of an existing registration."""
    if registration_id in registrations:
        raise conflict(f"registration id {registration_id} is already in use")


class ErrorRecorder:
    """Writes errors into the distinct error log, counts them and logs them."""

    def __init__(
        self, log: DistinctErrorLog, clock: Clock, system_counters: SystemCounters, events: EventLog | None = None
    ) -> None:
        self._log = log
        self._clock = clock
        self._system_counters = system_counters
        self._events = events
        self._limit = LogLimit(logger)

    def record(self, text: str, *, code: int = ErrorCode.GENERIC_ERROR, bug: BaseException | None = None) -> None:
        """One observation of an error; the same code and text again only raises its count.

        ``bug`` is an error that no part expects: its first line in the log has the traceback, and the same error raised at
        the same place again is a repeat of it, whatever its text says.
        """
        self._system_counters.increment(SystemCounter.ERRORS)
        self._log.record(f"{ErrorCode(code).name}: {text}", now_ms=self._clock.epoch_ms())
        now_ns = self._clock.monotonic_ns()
        level, kind = (logging.WARNING, (code, text)) if bug is None else (logging.ERROR, kind_of(bug))
        self._limit.log(level, kind, f"{ErrorCode(code).name}: {text}", now_ns, error=bug)
        if self._events is not None:
            self._events.note("GENERIC_MESSAGE", f"{ErrorCode(code).name}: {text}", now_ns)

    def warn(self, kind: str, text: str) -> None:
        """Logs what is no error but what an operator should know, ``kind`` at most once in an interval."""
        self._limit.log(logging.WARNING, kind, text, self._clock.monotonic_ns())

    def close(self) -> None:
        """Log the errors that were only counted since their last line."""
        self._limit.flush(self._clock.monotonic_ns())
