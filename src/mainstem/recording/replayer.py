"""Replays a recording onto a channel: at its original pace, at a multiple of it, or at full speed.

The index has a time for each 64 to 256 KiB, or for each 100 ms of a slow stream. Messages between two of these times are spread
evenly by position, so a burst within 100 ms is replayed as a steady flow.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mainstem._core.layout import COLUMN_PAYLOAD, COLUMN_POSITION, COLUMN_RESERVED_VALUE
from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import ConfigurationError
from mainstem.recording.rows.batches import batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstem._internal.clock import Clock
    from mainstem.recording.reader import RecordingReader

# The maximum time after which a replay that waits for the next message notices that it should stop.
MAX_SLEEP_S = 0.05
# Shorter sleeps take longer than requested, so messages that are due sooner are sent immediately.
MIN_SLEEP_NS = 200_000


class SupportsSend(Protocol):
    """The part of a publication that a replay uses."""

    def send(self, payload: memoryview, *, timeout: float | None, reserved_value: int) -> int:
        """Send a message like `Publication.send`. Return the position after it."""
        ...


@dataclass(frozen=True, slots=True)
class Replayed:
    """The number of messages and of payload bytes that a replay sent."""

    messages: int
    nbytes: int


class _RecordedTimes:
    """The times at which messages were recorded, in ns since 1970."""

    def __init__(self, reader: RecordingReader, start: int, end: int) -> None:
        if reader.index is None:
            raise ConfigurationError(
                f"recording {reader.descriptor.recording_id} has no index, so its pace is not known; replay it at full speed"
            )
        entries = reader.index.times_around(start, end)
        first_ns = reader.descriptor.start_timestamp * NS_PER_MS
        self._positions = [reader.descriptor.start_position, *entries[0]]
        self._times_ns = [min(first_ns, *entries[1][:1]) if len(entries[1]) else first_ns, *entries[1]]

    def at(self, position: int) -> int:
        """Return the time of the message that ends at a position. Times do not decrease."""
        index = bisect_right(self._positions, position) - 1
        before, time_ns = self._positions[index], self._times_ns[index]
        if index + 1 == len(self._positions):
            return time_ns
        after, following_ns = self._positions[index + 1], self._times_ns[index + 1]
        return time_ns + (following_ns - time_ns) * (position - before) // max(after - before, 1)


def replay(
    reader: RecordingReader,
    publication: SupportsSend,
    start: int,
    end: int,
    *,
    speed: float = 1.0,
    timeout: float | None = 5.0,
    should_stop: Callable[[], bool] = lambda: False,
    clock: Clock = SYSTEM_CLOCK,
    sleep: Callable[[float], None] = time.sleep,
) -> Replayed:
    """Send the messages of ``[start, end)`` to a publication, each with its reserved value.

    If subscribers cannot keep up, the replay falls behind its pace and sends as fast as they read.

    Args:
        reader: The recording.
        publication: An Aeron publication, or any object with the same ``send``.
        start: Where a message starts.
        end: The position to stop at.
        speed: 1 for the original pace, 2 for twice that; 0 for full speed.
        timeout: How many seconds a message waits for back pressure to end. None waits forever.
        should_stop: Called before each message; the replay ends when it returns true.
        clock: The clock that paces the replay.
        sleep: The function that waits for a number of seconds.

    Returns:
        The number of messages and payload bytes that were sent.

    Raises:
        ConfigurationError: The recording has no times, and ``speed`` is not 0.
        RecordingError: A frame or a segment of the range cannot be read.
        OfferError: The publication refused a message.
        Timeout: Back pressure lasted longer than ``timeout``.

    Example:
        ``replay(reader, publication, reader.start_position, reader.end_position(), speed=0)``
    """
    times = _RecordedTimes(reader, start, end) if speed else None
    start_ns, first_ns, messages, nbytes = clock.monotonic_ns(), -1, 0, 0
    for position, reserved_value, payload in _messages(reader, start, end):
        if times is not None:
            at_ns = times.at(position)
            first_ns = at_ns if first_ns < 0 else first_ns
            due_ns = start_ns + round((at_ns - first_ns) / speed)
            while (left_ns := due_ns - clock.monotonic_ns()) > MIN_SLEEP_NS and not should_stop():
                sleep(min(left_ns / NS_PER_SECOND, MAX_SLEEP_S))
        if should_stop():
            break
        publication.send(payload, timeout=timeout, reserved_value=reserved_value)
        messages += 1
        nbytes += len(payload)
    return Replayed(messages, nbytes)


def _messages(reader: RecordingReader, start: int, end: int) -> Iterator[tuple[int, int, memoryview]]:
    mask = COLUMN_POSITION | COLUMN_PAYLOAD | COLUMN_RESERVED_VALUE
    for columns, rows in batches(reader, start, end, column_mask=mask):
        positions = memoryview(columns["position"]).cast("q")
        reserved = memoryview(columns["reserved_value"]).cast("q")
        offsets = memoryview(columns["payload_offsets"]).cast("i")
        payloads = memoryview(columns["payload"])
        for i in range(rows):
            yield positions[i], reserved[i], payloads[offsets[i] : offsets[i + 1]]
