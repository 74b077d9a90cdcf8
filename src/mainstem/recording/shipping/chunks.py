"""Chunks: the frames ``[start, end)`` of a recording in one immutable object, with their index entries; and how to put objects.

An object has the bytes of the segment file, then index entries of 32 bytes, then the checksums of both by block
(docs/protocols/recordings.md, 8.2). A chunk never crosses the border between two segments.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any
from zlib import crc32

from mainstem._core.layout import FRAME_ALIGNMENT
from mainstem.errors import RecordingError, StoreError
from mainstem.recording.catalog import MAX_POSITION
from mainstem.recording.index import ENTRY_LENGTH
from mainstem.recording.shipping.layout import checked_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mainstem.store import Store

# -- checksums by block ------------------------------------------------------------------------------------------------
#
# The table at the end of an object has the CRC-32 of each 64 KiB, little-endian. The manifest or a page has the CRC-32 of the
# table. An object of one block has no table, because the manifest or a page has the CRC-32 of the object.


# The same granularity as the index of a recording. One corrupt block costs readers this many bytes. A table takes 1/16,000 of its
# object.
BLOCK = 64 << 10
SUM_LENGTH = 4

_SUM = struct.Struct("<I")


def table_length(nbytes: int) -> int:
    """Return the size of the checksum table of an object with ``nbytes`` bytes."""
    return -(-nbytes // BLOCK) * SUM_LENGTH if nbytes > BLOCK else 0


def sums_of(table: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(table) // SUM_LENGTH}I", table)


class BlockSums:
    """Computes the checksum table of an object from its bytes, which can be added in parts of any length."""

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
MAX_TEXT_LENGTH = 64 << 10  # of a host, a directory or an id: a path has up to 4 KiB
# The errors that unexpected JSON causes: nesting that is too deep, an infinite integer, wrong types, or a missing key.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One object with frames.

    ``before`` is the number of messages that end at or before ``start``, and ``messages`` the number that end in the chunk.
    ``first_entry`` is the number of shipped index entries before ``start``, and ``entries`` the number in the chunk. The contents
    were recorded between ``first_ns`` and ``last_ns`` (epoch; ``UNKNOWN`` if there is no index). ``crc32`` is the checksum of
    frames and index, and ``checksums`` that of the checksum table, or ``UNKNOWN``.
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
        """The size of the object, including its checksum table."""
        return self.nbytes + (0 if self.checksums == UNKNOWN else table_length(self.nbytes))

    @property
    def count(self) -> int:
        """The number of objects, which is one. A page has more."""
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
    """Return ``value``. Raises RecordingError if it is not an integer within the range."""
    if type(value) is not int or not minimum <= value <= maximum:
        raise RecordingError(f"{name} {str(value)[:100]!r} is not an integer from {minimum} to {maximum}")
    return value


def checked_text(value: object, name: str) -> str:
    """Return ``value``. Raises RecordingError if it is not a string, or too long."""
    if not isinstance(value, str) or len(value) > MAX_TEXT_LENGTH:
        raise RecordingError(f"{name} {str(value)[:100]!r} is not a text of at most {MAX_TEXT_LENGTH} characters")
    return value


def check_position(value: object, name: str) -> int:
    position = checked_int(value, name, maximum=MAX_POSITION)
    if position % FRAME_ALIGNMENT:
        raise RecordingError(f"{name} {position} is not between two frames")
    return position


def checked_row(row: object, kind: type) -> Sequence[Any]:
    """Return the values of a row. Raises RecordingError unless they match the fields of ``kind``: integers, and a name."""
    names = [field.name for field in fields(kind)]
    # Fields with a default were added in later releases, and rows of earlier releases do not have them.
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
# Each service uses different checksums, and a local directory has none. Reading back works everywhere, and is mostly free within a
# region. It can be disabled for chunks (``--no-verify``), but not for pages.


# A store that returns different bytes than it was given this many times in a row is broken.
ATTEMPTS = 10
# How many bytes to read back at a time.
RANGE_LENGTH = 8 << 20


def stored_ranges(store: Store, name: str, length: int) -> Iterator[tuple[int, bytes]]:
    """Yield the start and the bytes of each range of an object, up to ``length`` bytes. Raises FileNotFoundError if it is missing.

    It ends early if the object does.
    """
    start = 0
    while start < length and (data := store.read(name, start, min(start + RANGE_LENGTH, length))):
        yield start, data
        start += len(data)


def put_verified(store: Store, name: str, data: bytes | Path, checksum: int | None = None) -> int:
    """Put an object, and repeat that until it reads back correctly. Return how many bytes were read back.

    ``checksum`` is the CRC-32 of ``data`` if that is a file. Raises StoreError after ``ATTEMPTS`` attempts.
    """
    length = len(data) if isinstance(data, bytes) else data.stat().st_size
    nbytes = 0
    for _ in range(ATTEMPTS):
        store.put(name, data)
        value = position = 0
        is_same = True
        with suppress(FileNotFoundError):
            for start, back in stored_ranges(store, name, length):
                position = start + len(back)
                # Comparing bytes costs a tenth of a checksum.
                if isinstance(data, bytes):
                    is_same = is_same and back == data[start:position]
                else:
                    value = crc32(back, value)
        nbytes += position
        if position == length and (is_same if isinstance(data, bytes) else value == checksum):
            return nbytes
    raise StoreError(store.url, f"{name} read back differently {ATTEMPTS} times")
