"""A segment that is elsewhere, fetched by ranges into memory that has the file's offsets.

Theory of operation. An anonymous mapping as long as the segment takes no room until it is written. ``pieces`` fetches ranges ahead
of its caller, by a few threads, and copies each to its own offset, so that a frame across two ranges is whole as soon as both are
there; a piece ends at the last frame boundary of what is there. What the caller has left is given back to the kernel, so that
reading a segment of any length takes ``AHEAD + 2`` ranges of memory. Only the thread that iterates touches the mapping.
"""

from __future__ import annotations

from collections import deque
from mmap import MADV_DONTNEED, MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap
from typing import TYPE_CHECKING

from mainstem._core.layout import WALK_TORN
from mainstem._core.log.columns import FrameWalk
from mainstem.errors import RecordingError
from mainstem.store.threads import AHEAD, fetching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

# The latency of a request is paid once for so many bytes; a look-up of a few frames fetches no more than the first of them.
RANGE_BYTES = 8 << 20
FIRST_RANGE_BYTES = 256 << 10


class FetchedSegment:
    """One segment of ``length`` bytes, read by ``fetch(start, end)``, which returns less only where the file ends."""

    def __init__(self, name: str, length: int, fetch: Callable[[int, int], bytes], *, term_mask: int) -> None:
        self.name, self.length = name, length
        self.memory: mmap | bytes = mmap(-1, length, flags=MAP_PRIVATE | MAP_ANONYMOUS) if length else b""
        self._fetch = fetch
        self._term_mask = term_mask

    def _ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        size = FIRST_RANGE_BYTES
        while start < end:
            stop = min(start + size, end)
            yield start, stop
            start, size = stop, RANGE_BYTES

    def _fetch_range(self, start: int, end: int) -> bytes:
        try:
            data = self._fetch(start, end)
        except FileNotFoundError as error:
            raise RecordingError(f"segment {self.name} is missing") from error
        if len(data) != end - start:
            raise RecordingError(f"{self.name} ends at {start + len(data)} bytes, before {end}")
        return data

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """As ``ArchiveSegment.pieces``."""
        memory = self.memory
        if not isinstance(memory, mmap) or start >= end:
            return
        waiting: deque[tuple[int, int, Future[bytes]]] = deque()
        ranges = self._ranges(start, end)
        begin = previous = forgotten = start
        try:
            # The first range alone: many readers want no more than a few frames.
            first = next(ranges)
            memory[first[0] : first[1]] = self._fetch_range(*first)
            there = first[1]
            while True:
                limit = there if there >= end else self._boundary(memory, begin, there)
                if limit > begin:
                    # The caller may still hold what was yielded last.
                    forgotten, previous = _forget(memory, forgotten, previous), begin
                    yield begin, limit
                    begin = limit
                if there >= end:
                    return
                while len(waiting) < AHEAD and (following := next(ranges, None)) is not None:
                    waiting.append((*following, fetching(self._fetch_range, *following)))
                at, there, future = waiting.popleft()
                memory[at:there] = future.result()
        finally:
            for _, _, future in waiting:
                future.cancel()

    def _boundary(self, memory: mmap, begin: int, limit: int) -> int:
        """Where the last whole frame of ``[begin, limit)`` ends; ``limit`` where a fault lies before it, for its reader to meet."""
        walk = FrameWalk()
        walk.term_mask = self._term_mask
        stopped = walk.run(memory, begin, limit)
        return limit if stopped != WALK_TORN and walk.offset < limit else walk.offset

    def close(self) -> None:
        """Gives the memory back; may be called twice."""
        if isinstance(self.memory, mmap):
            self.memory.close()


def _forget(memory: mmap, start: int, end: int) -> int:
    """Gives the pages from that of ``start`` to the last whole one before ``end`` back to the kernel; returns where it stopped."""
    first, last = start // PAGESIZE * PAGESIZE, end // PAGESIZE * PAGESIZE
    if last > first:
        memory.madvise(MADV_DONTNEED, first, last - first)
    return last
