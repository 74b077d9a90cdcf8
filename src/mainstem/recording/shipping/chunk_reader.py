"""Reads ranges of chunks and verifies every byte.

A range is read in whole blocks, and each block is compared with its checksum. The table of checksums is read once per chunk and
cached; if possible, one request reads it together with a range near it. A chunk of one block is compared with its own checksum, and
so is a chunk that an earlier release has shipped, if it is read as a whole. Parts of such a chunk cannot be verified.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING
from zlib import crc32

from mainstem._core.log.columns import FrameWalk
from mainstem.errors import RecordingError
from mainstem.recording.fetching import CorruptRangeError
from mainstem.recording.segments import SegmentMemory
from mainstem.recording.shipping.chunks import BLOCK, UNKNOWN, sums_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainstem.recording.shipping.chunks import Chunk
    from mainstem.store import Store

# The maximum number of extra bytes to read so that the same request returns the table. This is cheaper than a separate request.
NEAR_BYTES = 256 << 10
# The number of cached tables: 8 kB each for chunks of 128 MiB, and 128 kB for the longest possible chunk.
MAX_TABLES = 64


class ChunkReader:
    """Reads the chunks of one archive. Several threads may use it at once."""

    def __init__(self, store: Store, archive_id: str) -> None:
        self._store, self._archive_id = store, archive_id
        self._lock = Lock()
        self._tables: OrderedDict[str, tuple[int, ...]] = OrderedDict()

    def read(self, chunk: Chunk, start: int, end: int) -> memoryview:
        """Return the bytes ``[start, end)`` of a chunk's frames and index.

        Raises CorruptRangeError if they differ from what was shipped, RecordingError if the object is too short, and
        FileNotFoundError if it is missing.
        """
        if _has_one_sum(chunk) or _is_whole(chunk, start, end):
            data = self._bytes(chunk, 0, chunk.nbytes)
            if crc32(data) != chunk.crc32:
                raise self.damage(chunk, 0, chunk.nbytes, data[:0])
            return data[start:end]
        if chunk.checksums == UNKNOWN:
            return self._bytes(chunk, start, end)
        first, last = _blocks_around(chunk, start, end)
        sums = self._known(chunk)
        if sums is None and chunk.size - last <= NEAR_BYTES:
            data = self._bytes(chunk, first, chunk.size)
            sums = self._checked(chunk, data[chunk.nbytes - first :])
            data = data[: last - first]
        else:
            sums = sums or self._checked(chunk, self._bytes(chunk, chunk.nbytes, chunk.size))
            data = self._bytes(chunk, first, last)
        for at in range(first, last, BLOCK):
            stop = min(at + BLOCK, last)
            if crc32(data[at - first : stop - first]) != sums[at // BLOCK]:
                raise self.damage(chunk, at, stop, data[start - first : max(at, start) - first])
        return data[start - first : end - first]

    def sums(self, chunk: Chunk) -> tuple[int, ...]:
        return self._known(chunk) or self._checked(chunk, self._bytes(chunk, chunk.nbytes, chunk.size))

    def damage(self, chunk: Chunk, start: int, end: int, before: memoryview | bytes = b"") -> CorruptRangeError:
        """Return the error for a range of a chunk that differs from what was shipped."""
        name = f"{self._store.url}: {self._archive_id}/{chunk.name}"
        if start >= chunk.length:
            what = "its index"
        else:
            what = f"positions {chunk.start + start} to {min(chunk.start + end, chunk.end)}"
        return CorruptRangeError(f"{name} is corrupt: the checksum of {what} differs", before=bytes(before))

    def _bytes(self, chunk: Chunk, start: int, end: int) -> memoryview:
        name = f"{self._archive_id}/{chunk.name}"
        data = self._store.read(name, start, end)
        if len(data) != end - start:
            raise RecordingError(f"{self._store.url}: {name} ends {end - start - len(data)} bytes too early")
        return memoryview(data)

    def _known(self, chunk: Chunk) -> tuple[int, ...] | None:
        with self._lock:
            sums = self._tables.get(chunk.name)
            if sums is not None:
                self._tables.move_to_end(chunk.name)
            return sums

    def _checked(self, chunk: Chunk, table: memoryview) -> tuple[int, ...]:
        if crc32(table) != chunk.checksums:
            name = f"{self._store.url}: {self._archive_id}/{chunk.name}"
            raise CorruptRangeError(f"{name} is corrupt: the checksum of its table of checksums differs")
        sums = sums_of(bytes(table))
        with self._lock:
            self._tables[chunk.name] = sums
            if len(self._tables) > MAX_TABLES:
                self._tables.popitem(last=False)
        return sums


class MappedChunk(SegmentMemory):
    """A chunk that is a whole segment, in a local file. Each block is verified once, before it is used."""

    def __init__(self, path: Path, chunk: Chunk, reader: ChunkReader, *, term_mask: int) -> None:
        super().__init__(path, chunk.start)
        if self.length < chunk.size:
            raise RecordingError(f"{path} ends {chunk.size - self.length} bytes too early")
        self.length = chunk.length
        self._chunk, self._reader, self._term_mask = chunk, reader, term_mask
        self._sound = bytearray(-(-chunk.nbytes // BLOCK))

    def chunks(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Like ``ArchiveSegment.chunks``, but stop after the last whole frame before corrupt bytes."""
        try:
            self._check(start, end)
        except CorruptRangeError as error:
            walk = FrameWalk()
            walk.term_mask = self._term_mask
            walk.run(self.memory, start, start + len(error.before))
            if walk.offset > start:
                yield start, walk.offset
            raise
        yield from super().chunks(start, end)

    def read(self, start: int, end: int) -> bytes:
        self._check(start, end)
        return super().read(start, end)

    def _check(self, start: int, end: int) -> None:
        chunk = self._chunk
        with memoryview(self.memory) as memory:
            if _has_one_sum(chunk) or _is_whole(chunk, start, end):
                if not all(self._sound) and crc32(memory[: chunk.nbytes]) != chunk.crc32:
                    raise self._reader.damage(chunk, 0, chunk.nbytes)
                self._sound[:] = b"\1" * len(self._sound)
            elif chunk.checksums != UNKNOWN:
                sums = self._reader.sums(chunk)
                first, last = _blocks_around(chunk, start, end)
                for at in range(first, last, BLOCK):
                    if self._sound[at // BLOCK]:
                        continue
                    stop = min(at + BLOCK, last)
                    if crc32(memory[at:stop]) != sums[at // BLOCK]:
                        raise self._reader.damage(chunk, at, stop, memory[start : max(at, start)])
                    self._sound[at // BLOCK] = 1


def _has_one_sum(chunk: Chunk) -> bool:
    return chunk.nbytes <= BLOCK


def _is_whole(chunk: Chunk, start: int, end: int) -> bool:
    """Return whether a range has all frames of a chunk that has no table."""
    return chunk.checksums == UNKNOWN and start == 0 and end >= chunk.length


def _blocks_around(chunk: Chunk, start: int, end: int) -> tuple[int, int]:
    return start // BLOCK * BLOCK, min(-(-end // BLOCK) * BLOCK, chunk.nbytes)
