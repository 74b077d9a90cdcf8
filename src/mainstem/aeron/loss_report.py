"""The loss report: how many bytes each image lost (docs/protocols/aeron.md, 9.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.frozen import frozen
from mainstem.aeron.logbuffer import align

if TYPE_CHECKING:
    from mainstem._core.memory.buffer import AtomicBuffer

OBSERVATION_COUNT_OFFSET = 0
TOTAL_BYTES_LOST_OFFSET = 8
FIRST_OBSERVATION_OFFSET = 16
LAST_OBSERVATION_OFFSET = 24
SESSION_ID_OFFSET = 32
STREAM_ID_OFFSET = 36
CHANNEL_OFFSET = 40
ENTRY_ALIGNMENT = 64
MAX_TEXT_LENGTH = 4095


@frozen
class LossEntry:
    """The losses of one image; times are epoch milliseconds."""

    observation_count: int
    total_bytes_lost: int
    first_observation_ms: int
    last_observation_ms: int
    session_id: int
    stream_id: int
    channel: str
    source: str


class LossEntryWriter:
    def __init__(self, buffer: AtomicBuffer, offset: int) -> None:
        self._buffer = buffer
        self._offset = offset

    def record(self, bytes_lost: int, *, now_ms: int) -> None:
        """Record ``bytes_lost`` that have not been counted yet, at the epoch time ``now_ms``."""
        buffer, offset = self._buffer, self._offset
        buffer.put_i64_release(offset + LAST_OBSERVATION_OFFSET, now_ms)
        total = buffer.get_i64(offset + TOTAL_BYTES_LOST_OFFSET) + bytes_lost
        buffer.put_i64(offset + TOTAL_BYTES_LOST_OFFSET, total)
        buffer.put_i64_release(offset + OBSERVATION_COUNT_OFFSET, buffer.get_i64(offset + OBSERVATION_COUNT_OFFSET) + 1)


class LossReport:
    """A writer of the report, for one thread of one process. It appends to existing entries."""

    def __init__(self, buffer: AtomicBuffer) -> None:
        self._buffer = buffer
        self._next = _scan(buffer)[1]

    def create_entry(
        self, bytes_lost: int, *, now_ms: int, session_id: int, stream_id: int, channel: str, source: str
    ) -> LossEntryWriter | None:
        """Create an image's entry when its first gap occurs. Return None if the report is full."""
        buffer, offset = self._buffer, self._next
        first, second = (text.encode("utf-8", "replace")[:MAX_TEXT_LENGTH] for text in (channel, source))
        source_offset = align(CHANNEL_OFFSET + 4 + len(first), 4)
        length = source_offset + 4 + len(second)
        if offset + length > buffer.capacity:
            return None
        buffer.put_i64(offset + TOTAL_BYTES_LOST_OFFSET, bytes_lost)
        buffer.put_i64(offset + FIRST_OBSERVATION_OFFSET, now_ms)
        buffer.put_i64(offset + LAST_OBSERVATION_OFFSET, now_ms)
        buffer.put_i32(offset + SESSION_ID_OFFSET, session_id)
        buffer.put_i32(offset + STREAM_ID_OFFSET, stream_id)
        for at, data in ((CHANNEL_OFFSET, first), (source_offset, second)):
            buffer.put_i32(offset + at, len(data))
            buffer.put_bytes(offset + at + 4, data)
        # Store the count last: while it reads zero, the report ends before this entry.
        buffer.put_i64_release(offset + OBSERVATION_COUNT_OFFSET, 1)
        self._next = align(offset + length, ENTRY_ALIGNMENT)
        return LossEntryWriter(buffer, offset)


def read_losses(buffer: AtomicBuffer) -> list[LossEntry]:
    """Return all entries of the report, oldest first. Any process may call this."""
    return _scan(buffer)[0]


def _scan(buffer: AtomicBuffer) -> tuple[list[LossEntry], int]:
    """Return the whole entries and the offset of the next one. An impossible length ends the report."""
    entries: list[LossEntry] = []
    offset = 0
    while offset + CHANNEL_OFFSET + 4 <= buffer.capacity:
        count = buffer.get_i64_acquire(offset + OBSERVATION_COUNT_OFFSET)
        if count <= 0:
            break
        channel = _read_text(buffer, offset + CHANNEL_OFFSET)
        if channel is None:
            break
        source_offset = align(CHANNEL_OFFSET + 4 + len(channel), 4)
        source = _read_text(buffer, offset + source_offset)
        if source is None:
            break
        entries.append(
            LossEntry(
                observation_count=count,
                total_bytes_lost=buffer.get_i64(offset + TOTAL_BYTES_LOST_OFFSET),
                first_observation_ms=buffer.get_i64(offset + FIRST_OBSERVATION_OFFSET),
                last_observation_ms=buffer.get_i64_acquire(offset + LAST_OBSERVATION_OFFSET),
                session_id=buffer.get_i32(offset + SESSION_ID_OFFSET),
                stream_id=buffer.get_i32(offset + STREAM_ID_OFFSET),
                channel=channel.decode("utf-8", "replace"),
                source=source.decode("utf-8", "replace"),
            )
        )
        offset = align(offset + source_offset + 4 + len(source), ENTRY_ALIGNMENT)
    return entries, offset


def _read_text(buffer: AtomicBuffer, offset: int) -> bytes | None:
    if offset + 4 > buffer.capacity:
        return None
    length = buffer.get_i32(offset)
    if not 0 <= length <= MAX_TEXT_LENGTH or offset + 4 + length > buffer.capacity:
        return None
    return buffer.get_bytes(offset + 4, length)
