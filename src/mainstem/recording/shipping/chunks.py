"""A chunk: the frames ``[start, end)`` of a recording in one immutable object, with their index entries.

The object is the bytes of the segment file, then index entries of 32 bytes, then the checksums of both by block
(docs/protocols/recordings.md, 8.2). A chunk never crosses a segment.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any

from mainstem._core.layout import FRAME_ALIGNMENT
from mainstem.errors import RecordingError
from mainstem.recording.catalog import MAX_POSITION
from mainstem.recording.index import ENTRY_LENGTH
from mainstem.recording.shipping.block_sums import table_length
from mainstem.recording.shipping.layout import checked_name

if TYPE_CHECKING:
    from collections.abc import Sequence

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
