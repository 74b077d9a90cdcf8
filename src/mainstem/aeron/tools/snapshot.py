"""A driver's directory at one moment, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mainstem.aeron.counters import STREAM_COUNTER_TYPES, ArchiveCounterType, CounterType, parse_stream_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem._core.system_counter import SystemCounter
    from mainstem.aeron.counters import CounterSnapshot
    from mainstem.aeron.tools.log_state import LogState

ARCHIVE_ID = " - archiveId="  # part of the labels of an archive's counters
STREAM_TYPES = STREAM_COUNTER_TYPES | {CounterType.PER_IMAGE}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamKey:
    """The key of a stream's counter. ``channel`` is the longer of the channel texts in the key and the label."""

    registration_id: int
    session_id: int
    stream_id: int
    channel: str
    join_position: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Snapshot:
    """The contents of a driver's directory, read at one time.

    ``epoch_ms`` is the wall-clock time of the snapshot, ``now_ns`` the monotonic time. ``heartbeat_ms`` is the driver's last
    heartbeat: 0 if there was none yet, -1 after a shutdown. ``logs`` contains the log buffers by registration id, if requested.
    ``free_space`` is the free space of the directory's file system.
    """

    directory: str
    epoch_ms: int
    now_ns: int
    version: int
    pid: int
    start_ms: int
    heartbeat_ms: int
    client_liveness_timeout_ns: int
    counters: tuple[CounterSnapshot, ...]
    logs: Mapping[int, LogState] = field(default_factory=dict)
    free_space: int | None = None

    @property
    def heartbeat_age_ms(self) -> int | None:
        return self.epoch_ms - self.heartbeat_ms if self.heartbeat_ms > 0 else None

    @property
    def version_text(self) -> str:
        return ".".join(str(self.version >> shift & 0xFF) for shift in (16, 8, 0))

    def is_driver_alive(self, timeout_ms: int) -> bool:
        age = self.heartbeat_age_ms
        return age is not None and age <= timeout_ms

    def system(self, counter: SystemCounter) -> int:
        return next((c.value for c in self.counters if c.counter_id == counter and c.type_id == counter.type_id), 0)


def stream_key(counter: CounterSnapshot) -> StreamKey | None:
    """Return the key of a stream's counter, or None for other counters.

    For a recording position, the registration id is the recording's id.
    """
    if counter.type_id == ArchiveCounterType.RECORDING_POSITION:
        return _recording_key(counter.label)
    if counter.type_id not in STREAM_TYPES:
        return None
    key = parse_stream_key(counter.key)
    full, join = _channel_of_label(counter.label)
    return StreamKey(
        registration_id=key.registration_id,
        session_id=key.session_id,
        stream_id=key.stream_id,
        channel=full if len(full) > len(key.channel) and full.startswith(key.channel) else key.channel,
        join_position=join,
    )


def _recording_key(label: str) -> StreamKey | None:
    """Parse a label, ``rec-pos: recording session stream channel - archiveId=id``. The key itself does not contain the stream."""
    ids = label.partition(": ")[2].split(" ")[:3]
    try:
        recording_id, session_id, stream_id = map(int, ids)
    except ValueError:
        return None
    channel, _ = _channel_of_label(label.partition(ARCHIVE_ID)[0])
    return StreamKey(registration_id=recording_id, session_id=session_id, stream_id=stream_id, channel=channel)


def _channel_of_label(label: str) -> tuple[str, int | None]:
    """Return channel and join position from ``name: registration session stream channel[ @join]``.

    The key is not enough, because it truncates long channels.
    """
    parts = label.partition(": ")[2].split(" ")
    if len(parts) < 4:
        return "", None
    joined = parts[-1][1:] if len(parts) > 4 and parts[-1].startswith("@") else ""
    join = int(joined) if joined.lstrip("-").isdigit() else None
    return " ".join(parts[3 : -1 if join is not None else None]), join
