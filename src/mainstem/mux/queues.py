"""The two byte queues of a multiplexed stream: what waits to be sent, and what waits to be read."""

from __future__ import annotations

from collections import deque

# A remainder shorter than this is copied rather than kept as a view of the larger chunk it came from.
COPY_BELOW = 4096


class OutQueue:
    """Bytes that wait for credit and for their turn; chunks are kept as they came and never joined here."""

    __slots__ = ("chunks", "size")

    def __init__(self) -> None:
        self.chunks: deque[bytes | memoryview] = deque()
        self.size = 0

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Adds a chunk at the end. What is mutable is copied; empty chunks are dropped."""
        chunk = data if isinstance(data, bytes) else bytes(data)
        if chunk:
            self.chunks.append(chunk)
            self.size += len(chunk)

    def take(self, count: int, into: list[bytes | memoryview]) -> None:
        """Moves exactly ``count`` bytes (at most ``size``) to the end of ``into``."""
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
        """Drops everything after the first ``keep`` bytes; returns how many bytes were dropped."""
        dropped = self.size - keep
        if dropped <= 0:
            return 0
        kept: list[bytes | memoryview] = []
        self.take(keep, kept)
        self.chunks = deque(kept)
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
        """Adds a chunk; it is kept, not copied."""
        self.chunks.append(chunk)
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
        """Drops what is buffered; returns how many bytes that was."""
        dropped = self.size
        self.chunks.clear()
        self.head = b""
        self.offset = self.size = 0
        return dropped
