"""Playing recordings onto a stream again, at the pace at which they were recorded, a multiple of it, or as fast as can be.

A recorder keeps times with its index: one for each 64 to 256 KiB, or 100 ms of a slow stream. Between two of them messages are
spread by their positions, so a burst within 100 ms is played as a steady flow, and everything else when it came.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mainstem._core.layout import COLUMN_PAYLOAD, COLUMN_POSITION, COLUMN_RESERVED_VALUE
from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.errors import ConfigurationError
from mainstem.recording.replay import batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstem._internal.clock import Clock
    from mainstem.recording.reader import RecordingReader

# Where a message is not due yet, the player sleeps so long at most: then it sees that it is to end.
LONGEST_SLEEP_S = 0.05
# What is due sooner is sent now: a shorter sleep takes longer than it says.
SHORTEST_SLEEP_NS = 200_000


class Taker(Protocol):
    """What playing needs of a publication."""

    def send(self, payload: memoryview, *, timeout: float | None, reserved_value: int) -> int:
        """Offers until it is taken; raises OfferError or Timeout."""
        ...


@dataclass(frozen=True, slots=True)
class Played:
    """How much was played: messages, and bytes of payload."""

    messages: int
    octets: int


class RecordedTimes:
    """When each message of a range was recorded, in ns since 1970."""

    def __init__(self, reader: RecordingReader, start: int, end: int) -> None:
        if reader.positions is None:
            raise ConfigurationError(
                f"recording {reader.descriptor.recording_id} keeps no times, as it has no index: play it at full speed"
            )
        entries = reader.positions.times_around(start, end)
        first_ns = reader.descriptor.start_timestamp * NS_PER_MS
        self._positions = [reader.descriptor.start_position, *entries[0]]
        self._times_ns = [min(first_ns, *entries[1][:1]) if len(entries[1]) else first_ns, *entries[1]]

    def at(self, position: int) -> int:
        """The time of the message that ends at a position; never before that of an earlier message."""
        index = bisect_right(self._positions, position) - 1
        before, time_ns = self._positions[index], self._times_ns[index]
        if index + 1 == len(self._positions):
            return time_ns
        after, following_ns = self._positions[index + 1], self._times_ns[index + 1]
        return time_ns + (following_ns - time_ns) * (position - before) // max(after - before, 1)


def play(
    reader: RecordingReader,
    publication: Taker,
    start: int,
    end: int,
    *,
    clock: Clock,
    sleep: Callable[[float], None],
    speed: float = 1.0,
    timeout: float | None = 5.0,
    asked: Callable[[], bool] = lambda: False,
) -> Played:
    """Sends the messages of ``[start, end)``, each with its reserved value.

    ``speed`` is 1 for the pace of the recording, 2 for twice that, and 0 for as fast as can be. Where the subscribers are slower,
    playing falls behind and goes on as fast as they take it. ``timeout`` is what one message may wait, in seconds; playing ends
    early where ``asked`` is true. Raises ConfigurationError where there are no times for a pace, and what ``send`` raises.
    """
    times = RecordedTimes(reader, start, end) if speed else None
    start_ns, first_ns, messages, octets = clock.monotonic_ns(), -1, 0, 0
    for position, reserved_value, payload in _messages(reader, start, end):
        if times is not None:
            at_ns = times.at(position)
            first_ns = at_ns if first_ns < 0 else first_ns
            due_ns = start_ns + round((at_ns - first_ns) / speed)
            while (left_ns := due_ns - clock.monotonic_ns()) > SHORTEST_SLEEP_NS and not asked():
                sleep(min(left_ns / NS_PER_SECOND, LONGEST_SLEEP_S))
        if asked():
            break
        publication.send(payload, timeout=timeout, reserved_value=reserved_value)
        messages += 1
        octets += len(payload)
    return Played(messages, octets)


def _messages(reader: RecordingReader, start: int, end: int) -> Iterator[tuple[int, int, memoryview]]:
    """Position, reserved value and payload of each message."""
    mask = COLUMN_POSITION | COLUMN_PAYLOAD | COLUMN_RESERVED_VALUE
    for columns, rows in batches(reader, start, end, column_mask=mask):
        positions = memoryview(columns["position"]).cast("q")
        reserved = memoryview(columns["reserved_value"]).cast("q")
        offsets = memoryview(columns["payload_offsets"]).cast("i")
        payloads = memoryview(columns["payload"])
        for i in range(rows):
            yield positions[i], reserved[i], payloads[offsets[i] : offsets[i + 1]]
