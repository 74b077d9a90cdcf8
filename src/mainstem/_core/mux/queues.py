"""The queues of a multiplexer: bytes to send, bytes to read, and streams that wait for their turn to send.

Streams with something to send take turns of one bounded packet each. That bound keeps a one-byte message from waiting
behind a gigabyte. Streams with few bytes take their turn before those with many, so that a short message does not wait for a
packet of each large stream either: it waits for the bytes already passed to the transport, for at most one packet, and for
other short messages. Large streams together send at least as many bytes as the short ones.

Limits count bytes, but a chunk of two bytes takes fifty. So each run of short chunks is joined: a queue takes little more memory
than its bytes, however small the pieces in which a peer sends or a handler writes.

One thread uses a connection's queues; any thread may read sizes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from mainstem._core.memory.plain import readonly

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# A remainder shorter than this is copied instead of kept as a view of the larger chunk it came from.
COPY_BELOW = cython.declare(cython.longlong, 4096)
# Chunks shorter than this are short, and this many short ones in a row are joined.
JOIN_BELOW = cython.declare(cython.longlong, 512)
JOINED = cython.declare(cython.longlong, 64)
# A stream with at most this many queued bytes takes its turn before those with more.
SHORT_BYTES = cython.declare(cython.longlong, 1024)
# Bytes that short turns may send between two long turns: the default size of one packet.
SHORT_SHARE = cython.declare(cython.longlong, 16 * 1024)
# The number of taken chunks at the front of a list after which their slots are deleted.
TAKEN = cython.declare(cython.longlong, 64)


@cython.cfunc
def join_last(chunks: list, first: cython.longlong, run: cython.longlong) -> cython.longlong:
    """Count one more short chunk at the end of a list; join the run if it is long. Return its length.

    The list's chunks begin at ``first``.
    """
    run = min(run + 1, len(chunks) - first)
    if run < JOINED:
        return run
    joined: bytes = b"".join(chunks[-run:])
    del chunks[-run:]
    chunks.append(joined)
    return 0


@cython.cclass
class OutQueue:
    """Bytes that wait for credit and for their turn; chunks are stored as they came, unless there are many short ones."""

    size: readonly[cython.longlong]
    chunks: list
    first: cython.longlong
    run: cython.longlong

    def __init__(self) -> None:
        self.chunks = []
        self.first = 0
        self.run = 0  # the short chunks at the end
        self.size = 0

    def append(self, data: object) -> None:
        """Add a chunk at the end. Mutable data is copied; empty chunks are dropped. Raises TypeError for non-buffers."""
        chunk: bytes = data if type(data) is bytes else bytes(memoryview(data))
        length: cython.longlong = len(chunk)
        if length > 0:
            self.chunks.append(chunk)
            self.size += length
            self.run = join_last(self.chunks, self.first, self.run) if length < JOIN_BELOW else 0

    @cython.ccall
    def take(self, count: cython.longlong, into: object) -> None:
        """Move exactly ``count`` bytes (at most ``size``) to the end of a list."""
        out: list = into
        if count > self.size:
            raise AssertionError(f"{count} bytes of {self.size}")
        length: cython.longlong
        chunks: list = self.chunks
        self.size -= count
        while count > 0:
            chunk = chunks[self.first]
            length = len(chunk)
            if length > count:
                view = memoryview(chunk)
                out.append(view[:count])
                rest = view[count:]
                chunks[self.first] = rest if length - count > COPY_BELOW else bytes(rest)
                break
            out.append(chunk)
            chunks[self.first] = None
            self.first += 1
            count -= length
        if self.size == 0:
            chunks.clear()
            self.first = 0
        elif self.first >= TAKEN:
            del chunks[: self.first]
            self.first = 0

    def truncate(self, keep: cython.longlong) -> int:
        """Drop everything after the first ``keep`` bytes; return how many bytes were dropped."""
        dropped: cython.longlong = self.size - keep
        if dropped <= 0:
            return 0
        retained: list = []
        self.take(keep, retained)
        self.chunks = retained
        self.first = self.run = 0
        self.size = keep
        return dropped


@cython.cclass
class InBuffer:
    """Received bytes that wait for a reader. Chunks are returned whole if the reader's limit allows it.

    ``received`` counts all bytes that arrived.
    """

    size: readonly[cython.longlong]
    received: readonly[cython.longlong]
    head: bytes
    offset: cython.longlong
    chunks: list
    first: cython.longlong
    run: cython.longlong

    def __init__(self) -> None:
        self.chunks = []
        self.first = 0
        self.run = 0  # the short chunks at the end
        self.head = b""
        self.offset = 0
        self.size = 0
        self.received = 0

    def append(self, chunk: bytes) -> None:
        """Add a chunk, without copying it unless there are many short ones."""
        length: cython.longlong = len(chunk)
        if self.size == 0:
            self.head = chunk
            self.offset = 0
        else:
            self.chunks.append(chunk)
            self.run = join_last(self.chunks, self.first, self.run) if length < JOIN_BELOW else 0
        self.size += length
        self.received += length

    def prepend(self, chunk: bytes) -> None:
        """Put bytes back in front of all others."""
        if self.offset < len(self.head):
            self.chunks.insert(self.first, self.head[self.offset :])
        self.head = chunk
        self.offset = 0
        self.size += len(chunk)

    @cython.ccall
    def read_some(self, limit: cython.longlong) -> bytes:
        """Return one to ``limit`` bytes, as many as need no joining; ``b""`` only if nothing is buffered."""
        left: cython.longlong = len(self.head) - self.offset
        if left == 0:
            if self.size == 0:
                return b""
            self.next_chunk()
            left = len(self.head)
        head: bytes = self.head
        start: cython.longlong = self.offset
        if left <= limit:
            self.head = b""
            self.offset = 0
            self.size -= left
            return head[start:] if start else head
        self.offset = start + limit
        self.size -= limit
        return head[start : start + limit]

    @cython.cfunc
    def next_chunk(self) -> object:
        chunks: list = self.chunks
        self.head = chunks[self.first]
        self.offset = 0
        chunks[self.first] = None
        self.first += 1
        if self.first == len(chunks):
            chunks.clear()
            self.first = 0
        elif self.first >= TAKEN:
            del chunks[: self.first]
            self.first = 0

    @cython.ccall
    def read_exactly(self, count: cython.longlong) -> bytes:
        """Return exactly ``count`` bytes, which must be buffered (``size >= count``)."""
        if count > self.size:
            raise AssertionError(f"{count} bytes of {self.size}")
        end: cython.longlong = self.offset + count
        if end <= len(self.head):
            start: cython.longlong = self.offset
            self.offset = end
            self.size -= count
            return self.head[start:end]
        parts: list = []
        while count > 0:
            part: bytes = self.read_some(count)
            parts.append(part)
            count -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_all(self) -> bytes:
        """Return everything that is buffered."""
        left: cython.longlong = len(self.head) - self.offset
        return self.read_some(left) if 0 < left == self.size else self.read_exactly(self.size)

    def clear(self) -> int:
        """Drop everything that is buffered; return how many bytes that was."""
        dropped: cython.longlong = self.size
        self.chunks.clear()
        self.first = 0
        self.head = b""
        self.offset = 0
        self.size = 0
        return dropped


@cython.cclass
class RoundRobin:
    """Members that wait for a turn: those with few bytes first, otherwise in order of arrival. Operations take constant time.

    A member has a ``queue``, and ``scheduled``, which is true while it waits for a turn.
    """

    long: object
    short: object
    short_sent: cython.longlong
    waiting: readonly[cython.longlong]

    def __init__(self) -> None:
        self.long = deque()
        self.short = deque()
        self.short_sent = 0  # bytes of short turns since the last long one
        self.waiting = 0  # members in both queues

    def __bool__(self) -> bool:
        return self.waiting > 0

    def add(self, member: object) -> None:
        """Add ``member`` at the end, unless it is already waiting."""
        if not member.scheduled:
            queue: OutQueue = member.queue
            member.scheduled = True
            self.waiting += 1
            (self.short if queue.size <= SHORT_BYTES else self.long).append(member)

    def take_only(self, member: object) -> bool:
        """Cancel the turn of ``member``, if no other member is waiting; return whether that was the case."""
        if self.waiting != 1 or not member.scheduled:
            return False
        self.short.clear()
        self.long.clear()
        self.waiting = 0
        member.scheduled = False
        return True

    def run(self, limit: cython.longlong, out: object, turn: Callable[[Any, Any], int]) -> int:
        """Give turns until ``limit`` bytes are in ``out`` or no member is waiting; return the number of bytes.

        ``turn(member, out)`` appends at most one packet, returns its length, and calls :meth:`add` if there is more.
        """
        size: cython.longlong = 0
        length: cython.longlong
        is_short: cython.bint
        while self.waiting > 0 and size < limit:
            is_short = bool(self.short) and (not self.long or self.short_sent < SHORT_SHARE)
            member = self.short.popleft() if is_short else self.long.popleft()
            self.waiting -= 1
            member.scheduled = False
            length = turn(member, out)
            self.short_sent = self.short_sent + length if is_short else 0
            size += length
        return size
