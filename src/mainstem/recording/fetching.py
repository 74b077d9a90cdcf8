"""A segment that is elsewhere, fetched by ranges into memory that has the file's offsets.

Theory of operation. An anonymous mapping as long as the segment takes no room until it is written. ``pieces`` fetches ranges ahead
of its caller, by a few threads, and copies each to its own offset, so that a frame across two ranges is whole as soon as both are
there; a piece ends at the last frame boundary of what is there. What the caller has left is given back to the kernel, so that
reading a segment of any length takes ``AHEAD + 2`` ranges of memory. A store that reads to a place (``fetch_into``) writes each
range where it belongs, from the fetching thread; else only the thread that iterates touches the mapping.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from mmap import MADV_DONTNEED, MADV_HUGEPAGE, MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap
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

    def __init__(
        self,
        name: str,
        length: int,
        fetch: Callable[[int, int], bytes],
        *,
        term_mask: int,
        fetch_into: Callable[[int, memoryview], int] | None = None,
    ) -> None:
        self.name, self.length = name, length
        self.memory: mmap | bytes = mmap(-1, length, flags=MAP_PRIVATE | MAP_ANONYMOUS) if length else b""
        if isinstance(self.memory, mmap):
            # Each page is written once and then dropped: small ones would cost a fault for each 4 KiB.
            self.memory.madvise(MADV_HUGEPAGE)
        self._fetch = fetch
        self._fetch_into = fetch_into
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

    def _load(self, memory: mmap, start: int, end: int) -> bytes:
        """Fetches a range to its place, and returns nothing; or returns what is yet to be copied there."""
        if self._fetch_into is None:
            return self._fetch_range(start, end)
        with memoryview(memory) as whole, whole[start:end] as place:
            try:
                length = self._fetch_into(start, place)
            except FileNotFoundError as error:
                raise RecordingError(f"segment {self.name} is missing") from error
        if length != end - start:
            raise RecordingError(f"{self.name} ends at {start + length} bytes, before {end}")
        return b""

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
            if data := self._load(memory, *first):
                memory[first[0] : first[1]] = data
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
                    waiting.append(
                        (*following, fetching(lambda start, end: self._load(memory, start, end), *following))
                    )
                at, there, future = waiting.popleft()
                if data := future.result():
                    memory[at:there] = data
        finally:
            for _, _, future in waiting:
                future.cancel()

    def _boundary(self, memory: mmap, begin: int, limit: int) -> int:
        """Where the last whole frame of ``[begin, limit)`` ends; ``limit`` where a fault lies before it, for its reader to meet."""
        walk = FrameWalk()
        walk.term_mask = self._term_mask
        stopped = walk.run(memory, begin, limit)
        return limit if stopped != WALK_TORN and walk.offset < limit else walk.offset

    def read(self, start: int, end: int) -> bytes:
        """As ``ArchiveSegment.read``."""
        return self._fetch_range(start, end)

    def close(self) -> None:
        """Gives the memory back; may be called twice."""
        if isinstance(self.memory, mmap):
            # A range that is still being fetched to its place holds the mapping, which ends with it then.
            with suppress(BufferError):
                self.memory.close()


def _forget(memory: mmap, start: int, end: int) -> int:
    """Gives the pages from that of ``start`` to the last whole one before ``end`` back to the kernel; returns where it stopped."""
    first, last = start // PAGESIZE * PAGESIZE, end // PAGESIZE * PAGESIZE
    if last > first:
        memory.madvise(MADV_DONTNEED, first, last - first)
    return last
