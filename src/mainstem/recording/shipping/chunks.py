"""A chunk: the frames ``[start, end)`` of a recording in one immutable object, with the index entries that lie in it.

The object is the bytes of the segment file, and behind them the entries of the index, 32 bytes each, as they are in
``<recordingId>.mainstem-positions``, and the checksums of both by blocks (docs/protocols/recordings.md, 8.2). One object, one
upload; its index is one range at its end. A chunk never crosses a segment.
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
# What JSON of another layout ends in: too deep, infinite where a whole number is due, of other types, or without a key.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One object of frames.

    ``before`` is the number of messages that end at or before ``start``, ``messages`` how many end in the chunk,
    ``first_entry`` how many shipped index entries lie before ``start``, ``entries`` how many in the chunk. What it holds was
    recorded at ``first_ns`` or later and at ``last_ns`` or earlier (epoch; ``UNKNOWN`` without an index). ``crc32`` is that of
    frames and index, ``checksums`` that of the table of checksums; ``UNKNOWN`` if there is none.
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
        """Bytes of the frames and of the index behind them."""
        return self.length + self.entries * ENTRY_LENGTH

    @property
    def size(self) -> int:
        """Bytes of the object: the table of checksums is behind the index."""
        return self.nbytes + (0 if self.checksums == UNKNOWN else table_length(self.nbytes))

    @property
    def count(self) -> int:
        """How many objects: one. A page has more."""
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
    """The value if it is an integer in that range. Raises RecordingError."""
    if type(value) is not int or not minimum <= value <= maximum:
        raise RecordingError(f"{name} {str(value)[:100]!r} is not an integer from {minimum} to {maximum}")
    return value


def checked_text(value: object, name: str) -> str:
    """The value if it is a text that is not too long. Raises RecordingError."""
    if not isinstance(value, str) or len(value) > MAX_TEXT_LENGTH:
        raise RecordingError(f"{name} {str(value)[:100]!r} is not a text of at most {MAX_TEXT_LENGTH} characters")
    return value


def check_position(value: object, name: str) -> int:
    """The value if it is a position between two frames. Raises RecordingError."""
    position = checked_int(value, name, maximum=MAX_POSITION)
    if position % FRAME_ALIGNMENT:
        raise RecordingError(f"{name} {position} is not between two frames")
    return position


def checked_row(row: object, kind: type) -> Sequence[Any]:
    """The values of a row, where there are as many as the kind has fields: whole numbers, and a name where it has one.

    Raises RecordingError.
    """
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
