"""Reads ranges of pieces, and hands out no byte that is not what was shipped.

A range is read as whole blocks, each of which is compared with its checksum (``block_sums``): a few kilobytes more at both of its
ends. The table is read once for each piece, with a range that reaches near it in one request, else by itself, and kept. A piece of
one block, and a piece of an earlier release of which all frames are read, is compared with its own checksum. Of such a piece a part
cannot be checked, and is read as it is.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING
from zlib import crc32

from mainstem._core.log.columns import FrameWalk
from mainstem.errors import RecordingError
from mainstem.recording.fetching import DamagedRangeError
from mainstem.recording.segments import SegmentMemory
from mainstem.recording.shipping.block_sums import BLOCK, sums_of
from mainstem.recording.shipping.pieces import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainstem.recording.shipping.pieces import Piece
    from mainstem.store import Store

# Less than a request's own cost: so much more is read to have the table with it.
NEAR_BYTES = 256 << 10
# Tables that are kept: 8 kB for a piece of 128 MiB, 128 kB for the longest that there are.
MAX_TABLES = 64


class PieceReader:
    """Reads the pieces of one archive. Threads may use it at once."""

    def __init__(self, store: Store, archive_id: str) -> None:
        self._store, self._archive_id = store, archive_id
        self._lock = Lock()
        self._tables: OrderedDict[str, tuple[int, ...]] = OrderedDict()

    def read(self, piece: Piece, start: int, end: int) -> memoryview:
        """The bytes ``[start, end)`` of a piece's frames and index.

        Raises DamagedRangeError where they are not what was shipped, RecordingError where the object is short, FileNotFoundError.
        """
        if _has_one_sum(piece) or _is_whole(piece, start, end):
            data = self._bytes(piece, 0, piece.octets)
            if crc32(data) != piece.crc32:
                raise self.damage(piece, 0, piece.octets, data[:0])
            return data[start:end]
        if piece.checksums == UNKNOWN:
            return self._bytes(piece, start, end)
        first, last = _blocks_around(piece, start, end)
        sums = self._known(piece)
        if sums is None and piece.size - last <= NEAR_BYTES:
            data = self._bytes(piece, first, piece.size)
            sums = self._checked(piece, data[piece.octets - first :])
            data = data[: last - first]
        else:
            sums = sums or self._checked(piece, self._bytes(piece, piece.octets, piece.size))
            data = self._bytes(piece, first, last)
        for at in range(first, last, BLOCK):
            stop = min(at + BLOCK, last)
            if crc32(data[at - first : stop - first]) != sums[at // BLOCK]:
                raise self.damage(piece, at, stop, data[start - first : max(at, start) - first])
        return data[start - first : end - first]

    def sums(self, piece: Piece) -> tuple[int, ...]:
        """The checksums of a piece's blocks. Raises as ``read``."""
        return self._known(piece) or self._checked(piece, self._bytes(piece, piece.octets, piece.size))

    def damage(self, piece: Piece, start: int, end: int, before: memoryview | bytes = b"") -> DamagedRangeError:
        """The error of a range of a piece that is not what was shipped."""
        name = f"{self._store.url}: {self._archive_id}/{piece.name}"
        if start >= piece.length:
            what = "its index"
        else:
            what = f"positions {piece.start + start} to {min(piece.start + end, piece.end)}"
        return DamagedRangeError(f"{name} is damaged: the checksum of {what} differs", before=bytes(before))

    def _bytes(self, piece: Piece, start: int, end: int) -> memoryview:
        name = f"{self._archive_id}/{piece.name}"
        data = self._store.read(name, start, end)
        if len(data) != end - start:
            raise RecordingError(f"{self._store.url}: {name} ends {end - start - len(data)} bytes too early")
        return memoryview(data)

    def _known(self, piece: Piece) -> tuple[int, ...] | None:
        with self._lock:
            sums = self._tables.get(piece.name)
            if sums is not None:
                self._tables.move_to_end(piece.name)
            return sums

    def _checked(self, piece: Piece, table: memoryview) -> tuple[int, ...]:
        if crc32(table) != piece.checksums:
            name = f"{self._store.url}: {self._archive_id}/{piece.name}"
            raise DamagedRangeError(f"{name} is damaged: the checksum of its table of checksums differs")
        sums = sums_of(bytes(table))
        with self._lock:
            self._tables[piece.name] = sums
            if len(self._tables) > MAX_TABLES:
                self._tables.popitem(last=False)
        return sums


class MappedPiece(SegmentMemory):
    """A piece that is a whole segment, in a file of this machine. What is asked for is checked before it is handed out, once."""

    def __init__(self, path: Path, piece: Piece, reader: PieceReader, *, term_mask: int) -> None:
        super().__init__(path, piece.start)
        if self.length < piece.size:
            raise RecordingError(f"{path} ends {piece.size - self.length} bytes too early")
        self.length = piece.length
        self._piece, self._reader, self._term_mask = piece, reader, term_mask
        self._sound = bytearray(-(-piece.octets // BLOCK))

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """As ``ArchiveSegment.pieces``: up to the last frame before what is damaged."""
        try:
            self._check(start, end)
        except DamagedRangeError as error:
            walk = FrameWalk()
            walk.term_mask = self._term_mask
            walk.run(self.memory, start, start + len(error.before))
            if walk.offset > start:
                yield start, walk.offset
            raise
        yield from super().pieces(start, end)

    def read(self, start: int, end: int) -> bytes:
        """As ``ArchiveSegment.read``."""
        self._check(start, end)
        return super().read(start, end)

    def _check(self, start: int, end: int) -> None:
        piece = self._piece
        with memoryview(self.memory) as memory:
            if _has_one_sum(piece) or _is_whole(piece, start, end):
                if not all(self._sound) and crc32(memory[: piece.octets]) != piece.crc32:
                    raise self._reader.damage(piece, 0, piece.octets)
                self._sound[:] = b"\1" * len(self._sound)
            elif piece.checksums != UNKNOWN:
                sums = self._reader.sums(piece)
                first, last = _blocks_around(piece, start, end)
                for at in range(first, last, BLOCK):
                    if self._sound[at // BLOCK]:
                        continue
                    stop = min(at + BLOCK, last)
                    if crc32(memory[at:stop]) != sums[at // BLOCK]:
                        raise self._reader.damage(piece, at, stop, memory[start : max(at, start)])
                    self._sound[at // BLOCK] = 1


def _has_one_sum(piece: Piece) -> bool:
    return piece.octets <= BLOCK


def _is_whole(piece: Piece, start: int, end: int) -> bool:
    """Whether a range has all frames of a piece that has no table."""
    return piece.checksums == UNKNOWN and start == 0 and end >= piece.length


def _blocks_around(piece: Piece, start: int, end: int) -> tuple[int, int]:
    return start // BLOCK * BLOCK, min(-(-end // BLOCK) * BLOCK, piece.octets)
