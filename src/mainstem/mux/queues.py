"""The queues of a multiplexer: bytes to be sent, bytes to be read, and streams that wait for their turn to send.

Streams with something to send take turns of one bounded packet each. That bound keeps a one-byte message from waiting
behind a gigabyte: it waits for at most one packet of every other stream that has something to send, and for what was
handed to the transport before.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from mainstem._internal.as_bytes import as_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

# A remainder shorter than this is copied rather than kept as a view of the larger chunk it came from.
COPY_BELOW = 4096


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
    """A member that is in the queue at most once; ``scheduled`` is true while it is."""

    scheduled: bool


T = TypeVar("T", bound=Schedulable)


class RoundRobin(Generic[T]):
    """Members that wait for a turn, first come first served; both operations take constant time."""

    __slots__ = ("queue",)

    def __init__(self) -> None:
        self.queue: deque[T] = deque()

    def __bool__(self) -> bool:
        return bool(self.queue)

    def add(self, member: T) -> None:
        """Add ``member`` at the end, unless it is in the queue already."""
        if not member.scheduled:
            member.scheduled = True
            self.queue.append(member)

    def run(self, limit: int, out: list[bytes | memoryview], turn: Callable[[T, list[bytes | memoryview]], int]) -> int:
        """Give turns until ``limit`` bytes are in ``out`` or no member waits; return the number of bytes.

        ``turn(member, out)`` appends one packet at most, returns its length, and calls :meth:`add` when there is more.
        """
        size = 0
        queue = self.queue
        while queue and size < limit:
            member = queue.popleft()
            member.scheduled = False
            size += turn(member, out)
        return size
