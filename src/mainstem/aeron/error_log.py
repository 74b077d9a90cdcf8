"""The distinct error log of the CnC file: each error once, with its count and times (docs/protocols/aeron.md, 9.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.frozen import frozen
from mainstem.aeron.logbuffer import align

if TYPE_CHECKING:
    from mainstem._core.memory.buffer import AtomicBuffer

LENGTH_OFFSET = 0
COUNT_OFFSET = 4
LAST_OBSERVATION_OFFSET = 8
FIRST_OBSERVATION_OFFSET = 16
TEXT_OFFSET = 24
MAX_COUNT = (1 << 31) - 1
ENTRY_ALIGNMENT = 8


@frozen
class ErrorObservation:
    """One distinct error; times are epoch milliseconds."""

    observation_count: int
    first_observation_ms: int
    last_observation_ms: int
    text: str


class DistinctErrorLog:
    """A writer of the log, for one thread of one process. Errors with the same text count as the same error."""

    def __init__(self, buffer: AtomicBuffer) -> None:
        self.capacity = buffer.capacity
        self._buffer = buffer
        self._offsets: dict[str, int] = {}
        self._next = 0
        for offset, length in _entries(buffer):
            self._offsets[_text(buffer, offset, length)] = offset
            self._next = align(offset + length, ENTRY_ALIGNMENT)

    def record(self, text: str, *, now_ms: int, reserve: int = 0) -> bool:
        """Record an error at the epoch time ``now_ms``. Return False if a new one would leave less than ``reserve`` bytes."""
        buffer = self._buffer
        offset = self._offsets.get(text)
        if offset is not None:
            buffer.put_i64_release(offset + LAST_OBSERVATION_OFFSET, now_ms)
            buffer.put_i32_release(offset + COUNT_OFFSET, min(buffer.get_i32(offset + COUNT_OFFSET) + 1, MAX_COUNT))
            return True
        data = text.encode("utf-8", "replace")
        offset, length = self._next, TEXT_OFFSET + len(data)
        if offset + length > buffer.capacity - reserve:
            return False
        buffer.put_bytes(offset + TEXT_OFFSET, data)
        buffer.put_i64(offset + FIRST_OBSERVATION_OFFSET, now_ms)
        buffer.put_i64(offset + LAST_OBSERVATION_OFFSET, now_ms)
        buffer.put_i32(offset + COUNT_OFFSET, 1)
        # Store the length last, so that a reader that sees it sees the whole entry.
        buffer.put_i32_release(offset + LENGTH_OFFSET, length)
        self._offsets[text] = offset
        self._next = align(offset + length, ENTRY_ALIGNMENT)
        return True


def read_errors(buffer: AtomicBuffer, *, since_ms: int = 0) -> list[ErrorObservation]:
    """Return the errors last observed at ``since_ms`` or later, oldest entry first. Any process may call this."""
    errors = []
    for offset, length in _entries(buffer):
        last = buffer.get_i64_acquire(offset + LAST_OBSERVATION_OFFSET)
        if last >= since_ms:
            errors.append(
                ErrorObservation(
                    observation_count=buffer.get_i32_acquire(offset + COUNT_OFFSET),
                    first_observation_ms=buffer.get_i64(offset + FIRST_OBSERVATION_OFFSET),
                    last_observation_ms=last,
                    text=_text(buffer, offset, length),
                )
            )
    return errors


def _entries(buffer: AtomicBuffer) -> list[tuple[int, int]]:
    """Return the offset and length of every whole entry, up to a length that is zero or impossible."""
    entries = []
    offset = 0
    while offset + TEXT_OFFSET <= buffer.capacity:
        length = buffer.get_i32_acquire(offset + LENGTH_OFFSET)
        if length < TEXT_OFFSET or offset + length > buffer.capacity:
            break
        entries.append((offset, length))
        offset = align(offset + length, ENTRY_ALIGNMENT)
    return entries


def _text(buffer: AtomicBuffer, offset: int, length: int) -> str:
    return buffer.get_bytes(offset + TEXT_OFFSET, length - TEXT_OFFSET).decode("utf-8", "replace")
