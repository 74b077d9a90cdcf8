"""Chunks: the frames ``[start, end)`` of a recording in one immutable object, with their index entries; how objects are put.

The object is the bytes of the segment file, then index entries of 32 bytes, then the checksums of both by block
(docs/protocols/recordings.md, 8.2). A chunk never crosses a segment.
"""

from __future__ import annotations

import struct
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any
from zlib import crc32

from mainstem._core.layout import FRAME_ALIGNMENT
from mainstem.errors import RecordingError, StoreError
from mainstem.recording.catalog import MAX_POSITION
from mainstem.recording.index import ENTRY_LENGTH
from mainstem.recording.shipping.layout import checked_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mainstem.store import Store

# -- checksums by block ------------------------------------------------------------------------------------------------
#
# The table, at the end of the object, has the CRC-32 of each 64 KiB, little-endian. The manifest or a page has the CRC-32 of the
# table. An object of one block has no table: the manifest has its CRC-32.


# As fine as the index of a recording. A corrupt block costs readers this much; a table takes 1/16,000 of its object.
BLOCK = 64 << 10
SUM_LENGTH = 4

_SUM = struct.Struct("<I")


def table_length(nbytes: int) -> int:
    """The size of the checksum table for an object of this many bytes."""
    return -(-nbytes // BLOCK) * SUM_LENGTH if nbytes > BLOCK else 0


def sums_of(table: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(table) // SUM_LENGTH}I", table)


class BlockSums:
    """Makes the table of an object from its bytes, in parts of any length."""

    def __init__(self) -> None:
        self._table = bytearray()
        self._length = self._sum = 0

    def add(self, data: bytes) -> None:
        at = 0
        with memoryview(data) as view:
            while at < len(data):
                taken = min(BLOCK - self._length % BLOCK, len(data) - at)
                self._sum = crc32(view[at : at + taken], self._sum)
                self._length += taken
                at += taken
                if self._length % BLOCK == 0:
                    self._table += _SUM.pack(self._sum)
                    self._sum = 0

    def table(self) -> bytes:
        if self._length <= BLOCK:
            return b""
        return bytes(self._table) + (_SUM.pack(self._sum) if self._length % BLOCK else b"")


# -- chunks ------------------------------------------------------------------------------------------------------------

UNKNOWN = -1
MAX_CHUNK_SIZE = 1 << 31  # a chunk lies in one segment, whose length is an int32
MAX_TEXT_LENGTH = 64 << 10  # of a host, a directory, an id: a path has 4 KiB
# Errors of JSON with another layout: too deep, an infinite integer, other types, or a missing key.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One object of frames.

    ``before`` is the number of messages that end at or before ``start``, ``messages`` how many end in the chunk,
    ``first_entry`` how many shipped index entries are before ``start``, ``entries`` how many in the chunk. Its contents were
    recorded between ``first_ns`` and ``last_ns`` (epoch; ``UNKNOWN`` without an index). ``crc32`` is that of frames and index,
    ``checksums`` that of the table of checksums, or ``UNKNOWN``.
    """

    start: int
    end: int
    name: str
    crc32: int
    first_entry: int
    entries: int
    before: int
    messages: int
    first_ns: int
    last_ns: int
    checksums: int = UNKNOWN

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def nbytes(self) -> int:
        return self.length + self.entries * ENTRY_LENGTH

    @property
    def size(self) -> int:
        """The size of the object, with its table."""
        return self.nbytes + (0 if self.checksums == UNKNOWN else table_length(self.nbytes))

    @property
    def count(self) -> int:
        """The number of objects: one. A page has more."""
        return 1

    def row(self) -> list[Any]:
        return [getattr(self, field.name) for field in fields(self)]

    @classmethod
    def of(cls, row: object) -> Chunk:
        chunk = cls(*checked_row(row, cls))
        if not 0 < chunk.length <= MAX_CHUNK_SIZE or not 0 <= chunk.entries <= chunk.length // FRAME_ALIGNMENT:
            raise RecordingError(f"a chunk from {chunk.start} to {chunk.end} with {chunk.entries} entries is invalid")
        return chunk


def checked_int(value: object, name: str, *, minimum: int = 0, maximum: int = (1 << 63) - 1) -> int:
    """Return an integer in that range. Raises RecordingError."""
    if type(value) is not int or not minimum <= value <= maximum:
        raise RecordingError(f"{name} {str(value)[:100]!r} is not an integer from {minimum} to {maximum}")
    return value


def checked_text(value: object, name: str) -> str:
    """Return a text of acceptable length. Raises RecordingError."""
    if not isinstance(value, str) or len(value) > MAX_TEXT_LENGTH:
        raise RecordingError(f"{name} {str(value)[:100]!r} is not a text of at most {MAX_TEXT_LENGTH} characters")
    return value


def check_position(value: object, name: str) -> int:
    position = checked_int(value, name, maximum=MAX_POSITION)
    if position % FRAME_ALIGNMENT:
        raise RecordingError(f"{name} {position} is not between two frames")
    return position


def checked_row(row: object, kind: type) -> Sequence[Any]:
    """Return the values of a row that match the fields of its kind: integers, and a name. Raises RecordingError."""
    names = [field.name for field in fields(kind)]
    # Fields with a default were added: rows of earlier releases end before them.
    least = sum(field.default is MISSING for field in fields(kind))
    if not isinstance(row, list) or not least <= len(row) <= len(names):
        raise RecordingError(f"a row of {len(names)} values is expected, not {str(row)[:100]!r}")
    for name, value in zip(names, row, strict=False):
        if name == "name":
            checked_name(value)
        elif name in ("start", "end"):
            check_position(value, name)
        else:
            checked_int(value, name, minimum=UNKNOWN if name.endswith(("_ns", "checksums")) else 0)
    return row


# -- putting objects ---------------------------------------------------------------------------------------------------
#
# Each service has other checksums, and a local directory has none. Reading back works everywhere, and is mostly free within a
# region. It can be disabled for chunks (``--no-verify``), never for pages.


# A store that returns other bytes than it was given this many times in a row is broken.
ATTEMPTS = 10
# Read back at a time.
RANGE_LENGTH = 8 << 20


def put_verified(store: Store, name: str, data: bytes | Path, checksum: int | None = None) -> int:
    """Put an object until it reads back correctly; ``checksum`` is that of a file. Raises StoreError."""
    length = len(data) if isinstance(data, bytes) else data.stat().st_size
    nbytes = 0
    for _ in range(ATTEMPTS):
        store.put(name, data)
        value = position = 0
        is_same = True
        while position < length:
            try:
                back = store.read(name, position, min(position + RANGE_LENGTH, length))
            except FileNotFoundError:
                break
            # To compare bytes costs a tenth of a checksum.
            if isinstance(data, bytes):
                is_same = is_same and back == data[position : position + len(back)]
            else:
                value = crc32(back, value)
            position += len(back)
            if not back:
                break
        nbytes += position
        if position == length and (is_same if isinstance(data, bytes) else value == checksum):
            return nbytes
    raise StoreError(store.url, f"{name} read back differently {ATTEMPTS} times")
