"""A piece: the frames ``[start, end)`` of a recording in one immutable object, with the index entries that lie in it.

The object is the bytes of the segment file, and behind them the entries of the index, 32 bytes each, as they are in
``<recordingId>.mainstem-positions`` (docs/protocols/recordings.md, 8.2). One object, one checksum, one upload; its frames can
be mapped, and its index is one range at its end. A piece never crosses a segment.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from mainstem.errors import RecordingError
from mainstem.recording.catalog import MAX_POSITION
from mainstem.recording.positions import ENTRY_LENGTH
from mainstem.recording.shipping.layout import checked_name

if TYPE_CHECKING:
    from collections.abc import Sequence

UNKNOWN = -1
# What JSON of another layout ends in: too deep, infinite where a whole number is due, of other types, or without a key.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Piece:
    """One object of frames.

    ``before`` is the number of messages that end at or before ``start``, ``messages`` how many end in the piece,
    ``first_entry`` how many shipped index entries lie before ``start``, ``entries`` how many in the piece. What it holds was
    recorded at ``first_ns`` or later and at ``last_ns`` or earlier (epoch; ``UNKNOWN`` without an index).
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

    @property
    def length(self) -> int:
        """Bytes of frames."""
        return self.end - self.start

    @property
    def octets(self) -> int:
        """Bytes of the object: the frames and the index behind them."""
        return self.length + self.entries * ENTRY_LENGTH

    @property
    def count(self) -> int:
        """How many objects: one. A page has more."""
        return 1

    def row(self) -> list[Any]:
        """The values in the order of the fields, for JSON."""
        return [getattr(self, field.name) for field in fields(self)]

    @classmethod
    def of(cls, row: object) -> Piece:
        """The piece of a row. Raises RecordingError for what is none."""
        piece = cls(*checked_row(row, cls))
        if piece.end <= piece.start or not 0 <= piece.entries <= piece.length:
            raise RecordingError(
                f"a piece from {piece.start} to {piece.end} with {piece.entries} entries is not possible"
            )
        return piece


def checked_row(row: object, kind: type) -> Sequence[Any]:
    """The values of a row, where there are as many as the kind has fields: whole numbers, and a name where it has one.

    Raises RecordingError.
    """
    names = [field.name for field in fields(kind)]
    if not isinstance(row, list) or len(row) != len(names):
        raise RecordingError(f"a row of {len(names)} values is expected, not {str(row)[:100]!r}")
    for name, value in zip(names, row, strict=True):
        if name == "name":
            checked_name(value)
        elif not isinstance(value, int) or not UNKNOWN <= value < 1 << 63:
            raise RecordingError(f"{name} {str(value)[:100]!r} is not possible")
        elif name in ("start", "end") and not 0 <= value <= MAX_POSITION:
            raise RecordingError(f"{name} {value} is no position")
    return row
