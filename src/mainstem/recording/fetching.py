"""A remote segment, fetched by ranges into memory. There, a frame has the same offset within a term as in the file.

Theory of operation. The memory is a ring whose length is a whole number of terms. The byte at offset o of the file is at o modulo
the length of the ring (``place``). Frames do not cross terms, so no frame crosses the end of the ring, and term offsets are checked
as in a mapped file. ``chunks`` uses a few threads to fetch ranges ahead of the caller, and copies each range to its place. So a
frame that spans two ranges is complete once both have arrived. A chunk ends at the end of a term or of the ring, since frames end
there too. The first chunk, and chunks of long terms, end at the last whole frame. A range is fetched once its place has no unread
bytes. So one ring is enough for a segment of any length, and its pages are reused, because fresh pages would cost as much as
copying the bytes. A ring is kept for the next segment.

A ring of more than ``KEPT_BYTES``, for long terms, is mapped and uses no memory until it is written. Pages that the caller has read
are returned to the kernel, so the ring uses the memory of ``AHEAD + 1`` ranges.

If a store can read directly into memory (``fetch_into``), the fetching threads write each range to its place. Otherwise, only the
iterating thread accesses the memory.
"""

from __future__ import annotations

import mmap as maps
from bisect import bisect_right
from collections import deque
from contextlib import suppress
from mmap import MADV_DONTNEED, MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap
from typing import TYPE_CHECKING

from mainstem._core.layout import WALK_TORN
from mainstem._core.log.columns import FrameWalk
from mainstem.errors import RecordingError
from mainstem.store.threads import AHEAD, fetching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

# Bytes per request, and bytes of the first request. Finding a few frames needs only the first request.
RANGE_BYTES = 8 << 20
FIRST_RANGE_BYTES = 256 << 10
# Frames of terms up to this length are yielded in whole terms, which are two ranges.
MAX_TERM_WAITED_FOR = 16 << 20
# The size of a ring for terms of 16 MiB, and the number of rings that are kept for the next segment. A reader uses one at a time,
# and a process has few readers.
KEPT_BYTES = 64 << 20
MAX_KEPT_RINGS = 2

# The most recently used rings are at the end. Threads take different rings.
_kept: list[mmap] = []


def _ring_of(length: int) -> mmap:
    with suppress(IndexError):
        while True:
            ring = _kept.pop()
            if len(ring) == length:
                return ring
            _close(ring)
    ring = mmap(-1, length, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    if (huge := getattr(maps, "MADV_HUGEPAGE", None)) is not None:  # only on Linux
        ring.madvise(huge)
    return ring


def _keep(ring: mmap) -> bool:
    """Keep a ring for reuse, possibly instead of the least recently used one. Return whether it was kept."""
    if len(ring) > KEPT_BYTES:
        return False
    _kept.append(ring)
    with suppress(IndexError):
        while len(_kept) > MAX_KEPT_RINGS:
            _close(_kept.pop(0))
    return True


def _close(ring: mmap) -> None:
    # A view of it can live on in the traceback of an error. The mapping is closed together with the last view.
    with suppress(BufferError):
        ring.close()


class CorruptRangeError(RecordingError):
    """Bytes of a range differ from those written. ``before`` has the correct bytes before them."""

    def __init__(self, message: str, *, before: bytes = b"") -> None:
        super().__init__(message)
        self.before = before


class FetchedSegment:
    """One segment of ``length`` bytes, read by ``fetch(start, end)``, which returns fewer bytes only at the end of the file.

    No fetched range crosses one of ``cuts``, which are ascending. The part before a corrupt range can be read. ``begin`` is called
    before the first range of each ``chunks``.
    """

    is_mapped = False

    def __init__(
        self,
        name: str,
        length: int,
        fetch: Callable[[int, int], bytes | memoryview],
        *,
        term_mask: int,
        cuts: Sequence[int] = (),
        fetch_into: Callable[[int, memoryview], int] | None = None,
        begin: Callable[[], None] | None = None,
    ) -> None:
        self.name, self.length = name, length
        term = term_mask + 1
        # A padding frame can be as long as a term, and stays in the ring until all of it has arrived.
        self._ring = -(-(term + (AHEAD + 1) * RANGE_BYTES) // term) * term
        self.memory: mmap | bytes = _ring_of(min(self._ring, length)) if length else b""
        self._fetch = fetch
        self._fetch_into = fetch_into
        self._begin = begin
        self._term_mask = term_mask
        self._cuts = cuts
        self._running: set[Future[bytes | memoryview]] = set()

    def _ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        size = FIRST_RANGE_BYTES
        while start < end:
            stop = min(start + size, end, (start // self._ring + 1) * self._ring)
            cut = bisect_right(self._cuts, start)
            if cut < len(self._cuts):
                stop = min(stop, self._cuts[cut])
            yield start, stop
            start, size = stop, RANGE_BYTES

    def place(self, offset: int) -> int:
        return offset % self._ring

    def _fetch_range(self, start: int, end: int) -> bytes | memoryview:
        try:
            data = self._fetch(start, end)
        except FileNotFoundError as error:
            raise RecordingError(f"segment {self.name} is missing") from error
        if len(data) != end - start:
            raise RecordingError(f"{self.name} ends at {start + len(data)} bytes, before {end}")
        return data

    def _load(self, memory: mmap, start: int, end: int) -> bytes | memoryview:
        """Fetch a range into place and return empty bytes, or return the bytes to be copied there."""
        if self._fetch_into is None:
            return self._fetch_range(start, end)
        at = self.place(start)
        with memoryview(memory) as whole, whole[at : at + end - start] as place:
            try:
                length = self._fetch_into(start, place)
            except FileNotFoundError as error:
                raise RecordingError(f"segment {self.name} is missing") from error
        if length != end - start:
            raise RecordingError(f"{self.name} ends at {start + length} bytes, before {end}")
        return b""

    def chunks(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        memory = self.memory
        if not isinstance(memory, mmap) or start >= end:
            return
        if self._begin is not None:
            self._begin()
        waiting: deque[tuple[int, int, Future[bytes | memoryview]]] = deque()
        ranges = self._ranges(start, end)
        begin = forgotten = start
        try:
            # Fetch the first range alone, because many readers need only a few frames.
            first = next(ranges)
            there, damage = self._take(memory, *first, lambda: self._load(memory, *first))
            following = next(ranges, None)
            while True:
                is_cut = damage is None and (there >= end or there % self._ring == 0)
                limit = (
                    there if is_cut else self._whole(memory, begin, there, may_wait=damage is None and begin > start)
                )
                if limit > begin:
                    forgotten = self._forget(memory, forgotten, begin)
                    yield begin, limit
                    begin = limit
                if damage is not None:
                    raise damage
                if there >= end:
                    return
                while following is not None and len(waiting) < AHEAD and following[1] <= begin + self._ring:
                    future = fetching(lambda start, end: self._load(memory, start, end), *following)
                    self._running.add(future)
                    waiting.append((*following, future))
                    following = next(ranges, None)
                at, stop, future = waiting.popleft()
                there, damage = self._take(memory, at, stop, future.result)
                self._running.discard(future)
        finally:
            for _, _, future in waiting:
                future.cancel()

    def _take(
        self, memory: mmap, start: int, end: int, result: Callable[[], bytes | memoryview]
    ) -> tuple[int, CorruptRangeError | None]:
        """Copy a range into place. Return where it is complete up to, and the error if that is not its end."""
        try:
            self._copy(memory, start, result())
        except CorruptRangeError as error:
            self._copy(memory, start, error.before)
            return start + len(error.before), error
        return end, None

    def _copy(self, memory: mmap, start: int, data: bytes | memoryview) -> None:
        """Copy bytes into place, unless the store has already written them there."""
        if data:
            at = self.place(start)
            memory[at : at + len(data)] = data

    def _whole(self, memory: mmap, begin: int, there: int, *, may_wait: bool) -> int:
        """Return the end of the whole frames to yield from ``[begin, there)``; ``begin`` means to wait for the end of a term."""
        term = self._term_mask + 1
        # Frames end at the end of a term. Finding a later boundary means reading all frame headers, which the reader then does
        # again.
        if may_wait and term <= MAX_TERM_WAITED_FOR:
            return max(begin, there // term * term)
        return self._boundary(memory, begin, there)

    def _boundary(self, memory: mmap, begin: int, limit: int) -> int:
        """Return the end of the last whole frame in ``[begin, limit)``.

        If there is a problem before it, return ``limit``, so that the reader finds the problem.
        """
        walk = FrameWalk()
        walk.term_mask = self._term_mask
        at = self.place(begin)
        stopped = walk.run(memory, at, at + limit - begin)
        reached = begin + walk.offset - at
        return limit if stopped != WALK_TORN and reached < limit else reached

    def read(self, start: int, end: int) -> bytes:
        return bytes(self._fetch_range(start, end))

    def _forget(self, memory: mmap, start: int, end: int) -> int:
        """Return the whole pages from ``start`` to ``end`` to the kernel. Return the position up to which that was done."""
        if len(memory) <= KEPT_BYTES:
            return end
        first, last = start // PAGESIZE * PAGESIZE, end // PAGESIZE * PAGESIZE
        if last > first:
            # Ranges end at the end of the ring, so the pages are contiguous.
            memory.madvise(MADV_DONTNEED, self.place(first), last - first)
        return last

    def close(self) -> None:
        memory, self.memory = self.memory, b""
        if isinstance(memory, mmap):
            # A range that is still being fetched into place keeps the mapping open until it is complete.
            if all(future.cancel() or future.done() for future in self._running) and _keep(memory):
                return
            _close(memory)
