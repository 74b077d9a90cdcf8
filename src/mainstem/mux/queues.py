"""The queues of a multiplexer: bytes to be sent, bytes to be read, and streams that wait for their turn to send.

Streams with something to send take turns of one bounded packet each. That bound keeps a one-byte message from waiting
behind a gigabyte. A stream whose bytes are few has its turn before those with many, so that its message does not wait for a
packet of each of them either: it waits for what was handed to the transport before, for one packet at most, and for other
short messages. Those with many bytes get at least as many bytes as the short ones together.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from mainstem._internal.as_bytes import as_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

# A remainder shorter than this is copied rather than kept as a view of the larger chunk it came from.
COPY_BELOW = 4096
# A stream with at most this many bytes in its queue has its turn before those with more.
SHORT_BYTES = 1024
# Bytes that short turns may take between two of the others, as many as one packet has by default.
SHORT_SHARE = 16 * 1024


class OutQueue:
    """Bytes that wait for credit and for their turn; chunks are stored as they came and never joined here."""

    __slots__ = ("chunks", "size")

    def __init__(self) -> None:
        self.chunks: deque[bytes | memoryview] = deque()
        self.size = 0

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Add a chunk at the end. Mutable data is copied; empty chunks are dropped. Raises TypeError for what is not a buffer."""
        chunk = data if type(data) is bytes else as_bytes(data)
        if chunk:
            self.chunks.append(chunk)
            self.size += len(chunk)

    def take(self, count: int, into: list[bytes | memoryview]) -> None:
        """Move exactly ``count`` bytes (at most ``size``) to the end of ``into``."""
        assert count <= self.size, f"{count} bytes of {self.size}"
        self.size -= count
        chunks = self.chunks
        while count:
            chunk = chunks[0]
            length = len(chunk)
            if length <= count:
                into.append(chunk)
                chunks.popleft()
                count -= length
                continue
            view = memoryview(chunk)
            into.append(view[:count])
            rest = view[count:]
            chunks[0] = rest if len(rest) > COPY_BELOW else bytes(rest)
            return

    def truncate(self, keep: int) -> int:
        """Drop everything after the first ``keep`` bytes; return how many bytes were dropped."""
        dropped = self.size - keep
        if dropped <= 0:
            return 0
        retained: list[bytes | memoryview] = []
        self.take(keep, retained)
        self.chunks = deque(retained)
        self.size = keep
        return dropped


class InBuffer:
    """Bytes that arrived and wait for a reader. Chunks are handed out whole where the reader's limit allows it."""

    __slots__ = ("chunks", "head", "offset", "size")

    def __init__(self) -> None:
        self.chunks: deque[bytes] = deque()
        self.head = b""
        self.offset = 0
        self.size = 0

    def append(self, chunk: bytes) -> None:
        """Add a chunk without copying it."""
        self.chunks.append(chunk)
        self.size += len(chunk)

    def prepend(self, chunk: bytes) -> None:
        """Add a chunk before all others."""
        if self.offset < len(self.head):
            self.chunks.appendleft(self.head[self.offset :])
        self.head = chunk
        self.offset = 0
        self.size += len(chunk)

    def read_some(self, limit: int) -> bytes:
        """Between one and ``limit`` bytes, whichever costs no joining; ``b""`` only when nothing is buffered."""
        head = self.head
        offset = self.offset
        if offset == len(head):
            if not self.chunks:
                return b""
            head = self.head = self.chunks.popleft()
            offset = 0
        left = len(head) - offset
        if left <= limit:
            self.head = b""
            self.offset = 0
            self.size -= left
            return head[offset:] if offset else head
        self.offset = offset + limit
        self.size -= limit
        return head[offset : offset + limit]

    def read_exactly(self, count: int) -> bytes:
        """Exactly ``count`` bytes, which must be there (``size >= count``)."""
        assert count <= self.size, f"{count} bytes of {self.size}"
        offset = self.offset
        end = offset + count
        if end <= len(self.head):
            self.offset = end
            self.size -= count
            return self.head[offset:end]
        parts = []
        while count:
            part = self.read_some(count)
            parts.append(part)
            count -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_all(self) -> bytes:
        """Everything that is buffered."""
        return self.read_exactly(self.size)

    def clear(self) -> int:
        """Drop what is buffered; return how many bytes that was."""
        dropped = self.size
        self.chunks.clear()
        self.head = b""
        self.offset = self.size = 0
        return dropped


class Schedulable(Protocol):
    """A member that waits for at most one turn; ``scheduled`` is true while it does. ``queue`` is what it has to send."""

    scheduled: bool
    queue: OutQueue


T = TypeVar("T", bound=Schedulable)


class RoundRobin(Generic[T]):
    """Members that wait for a turn: those with few bytes first, else first come first served. Operations take constant time."""

    __slots__ = ("long", "short", "short_sent", "waiting")

    def __init__(self) -> None:
        self.long: deque[T] = deque()
        self.short: deque[T] = deque()
        self.short_sent = 0  # bytes of short turns since the last long one
        self.waiting = 0  # members in both

    def __bool__(self) -> bool:
        return bool(self.waiting)

    def add(self, member: T) -> None:
        """Add ``member`` at the end, unless it waits already."""
        if not member.scheduled:
            member.scheduled = True
            self.waiting += 1
            (self.short if member.queue.size <= SHORT_BYTES else self.long).append(member)

    def run(self, limit: int, out: list[bytes | memoryview], turn: Callable[[T, list[bytes | memoryview]], int]) -> int:
        """Give turns until ``limit`` bytes are in ``out`` or no member waits; return the number of bytes.

        ``turn(member, out)`` appends one packet at most, returns its length, and calls :meth:`add` when there is more.
        """
        size = 0
        short, long = self.short, self.long
        while self.waiting and size < limit:
            is_short = bool(short) and (not long or self.short_sent < SHORT_SHARE)
            member = short.popleft() if is_short else long.popleft()
            self.waiting -= 1
            member.scheduled = False
            length = turn(member, out)
            self.short_sent = self.short_sent + length if is_short else 0
            size += length
        return size
