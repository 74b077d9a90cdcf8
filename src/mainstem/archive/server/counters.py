"""The archive's own counters."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import NS_PER_MS
from mainstem.aeron.counters import ArchiveCounterType as Kind
from mainstem.errors import ConfigurationError, MainstemError

if TYPE_CHECKING:
    from mainstem._core.memory.counters import CountersReader
    from mainstem._internal.clock import Clock
    from mainstem.aeron.client import Aeron
    from mainstem.aeron.client.operation import Operation

MAX_LABEL_LENGTH = 380
CYCLE_THRESHOLD_NS = 100 * NS_PER_MS  # duty cycles that take longer are counted
# The labels match the reference's. {} is the threading mode; in each mode the conductor is the only agent.
_LABELS = {
    Kind.ERRORS: "Archive Errors",
    Kind.CONTROL_SESSIONS: "Archive Control Sessions",
    Kind.MAX_CYCLE_TIME: "archive-conductor max cycle time in ns: {}",
    Kind.CYCLE_TIME_EXCEEDED: "archive-conductor work cycle time exceeded count: threshold=100ms {}",
    Kind.RECORDER_MAX_WRITE_TIME: "archive-recorder max write time in ns",
    Kind.RECORDER_WRITE_BYTES: "archive-recorder total write bytes",
    Kind.RECORDER_WRITE_TIME: "archive-recorder total write time in ns",
    Kind.REPLAYER_MAX_READ_TIME: "archive-replayer max read time in ns",
    Kind.REPLAYER_READ_BYTES: "archive-replayer total read bytes",
    Kind.REPLAYER_READ_TIME: "archive-replayer total read time in ns",
    Kind.RECORDING_SESSIONS: "Archive Recording Sessions",
    Kind.REPLAY_SESSIONS: "Archive Replay Sessions",
}
_SESSION_KEY = struct.Struct("<qq")


def session_counter(archive_id: int, session_id: int, client_info: str, image: Any) -> tuple[bytes, str]:
    """Return the key and the label of a control session's counter."""
    end = f" sourceIdentity={image.source_identity} sessionId={image.session_id} - archiveId={archive_id}"
    label = f"control-session: {client_info}"
    return _SESSION_KEY.pack(archive_id, session_id), label[: MAX_LABEL_LENGTH - len(end)] + end


def check_unused(counters: CountersReader, archive_id: int) -> None:
    """Raise ConfigurationError if the driver already has an archive with this id: clients could not tell the two apart."""
    key = struct.pack("<q", archive_id)
    for counter_id in counters:
        if counters.type_id(counter_id) == Kind.ERRORS and counters.key(counter_id).startswith(key):
            raise ConfigurationError(f"id={archive_id}: another archive of this driver has that id; choose another one")


class DiskTimes:
    """Totals of disk operations and the time they took. Each operation lasts from ``begin`` to ``end``."""

    def __init__(self, clock: Clock) -> None:
        self.longest_ns = self.nbytes = self.total_ns = 0
        self._clock = clock
        self._begun_ns = 0

    def begin(self) -> None:
        self._begun_ns = self._clock.monotonic_ns()

    def end(self, nbytes: int) -> None:
        duration_ns = self._clock.monotonic_ns() - self._begun_ns
        self.nbytes += nbytes
        self.total_ns += duration_ns
        if duration_ns > self.longest_ns:
            self.longest_ns = duration_ns


class ArchiveCounters:
    """The archive's counters: refused requests, open sessions, recordings and replays, and durations of its work."""

    def __init__(self, aeron: Aeron, archive_id: int, threading_mode: str, clock: Clock) -> None:
        key = struct.pack("<q", archive_id)
        self.writes, self.reads = DiskTimes(clock), DiskTimes(clock)
        self._cycle_ns: int | None = None  # when the current duty cycle began
        self._max_cycle_ns = self._exceeded = 0
        self._adding: dict[int, Operation[Any]] = {
            kind: aeron.async_add_counter(kind, f"{label.format(threading_mode)} - archiveId={archive_id}", key=key)
            for kind, label in _LABELS.items()
        }
        self._counters: dict[int, Any] = {}
        self._shown: tuple[int, ...] = ()

    def begin_cycle(self, now_ns: int) -> None:
        """Begin a duty cycle. As in the reference, a cycle lasts until the next one begins."""
        if self._cycle_ns is not None:
            duration_ns = now_ns - self._cycle_ns
            self._max_cycle_ns = max(self._max_cycle_ns, duration_ns)
            self._exceeded += duration_ns > CYCLE_THRESHOLD_NS
        self._cycle_ns = now_ns

    def update(self, errors: int, sessions: int, recordings: int, replays: int) -> None:
        for type_id, operation in list(self._adding.items()):
            counter = operation.poll()
            if counter is not None:
                self._counters[type_id] = counter
                del self._adding[type_id]
                self._shown = ()
        writes, reads = self.writes, self.reads
        # In the same order as _LABELS.
        shown = (
            *(errors, sessions, self._max_cycle_ns, self._exceeded),
            *(writes.longest_ns, writes.nbytes, writes.total_ns),
            *(reads.longest_ns, reads.nbytes, reads.total_ns),
            *(recordings, replays),
        )
        if shown != self._shown:
            self._shown = shown
            for type_id, value in zip(_LABELS, shown, strict=True):
                if type_id in self._counters:
                    self._counters[type_id].set_release(value)

    def close(self) -> None:
        with suppress(MainstemError):
            for operation in self._adding.values():
                operation.cancel()
            for counter in self._counters.values():
                counter.close()
