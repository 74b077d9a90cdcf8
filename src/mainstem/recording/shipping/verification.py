"""Whether a shipped archive is what was shipped: its objects are there, their checksums hold, their frames are whole."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING
from zlib import crc32

from mainstem.errors import RecordingError
from mainstem.recording.reader import RecordingReader
from mainstem.recording.shipping.block_sums import BLOCK, BlockSums, sums_of
from mainstem.recording.shipping.page_tree import between
from mainstem.recording.shipping.verified_put import RANGE_LENGTH
from mainstem.recording.verify import Fault, faults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.recording.shipping.pieces import Piece
    from mainstem.recording.shipping.shipped_archive import ShippedArchive


def archive_faults(
    archive: ShippedArchive, *, recording_id: int | None = None, frames: bool = False
) -> Iterator[Fault]:
    """The faults of what was shipped. Reads every object once, and with ``frames`` twice.

    Args:
        archive: The archive, as of its last refresh.
        recording_id: Only this recording; None for all.
        frames: Whether frames and the checksums of the index are walked too.

    Yields:
        Objects that are missing, short or changed, positions that were lost before they could be shipped; then faulty frames.

    Raises:
        RecordingError: There is no manifest, or it cannot be read.
        StoreError: The store cannot be read.
    """
    for descriptor in archive.recordings():
        key = descriptor.recording_id
        if recording_id not in (None, key):
            continue
        entry, at = archive.entry(key), archive.entry(key).start
        try:
            for piece in between(entry.tree, entry.start, entry.end, archive.pages):
                if piece.start != at:
                    text = f"positions {at} to {piece.start} of {archive.url} were deleted before they were shipped"
                    yield Fault(key, at, "missing", text)
                at = piece.end
                yield from _faults_of(archive, key, piece)
        except RecordingError as error:
            yield Fault(key, at, "missing", str(error))
            continue
        if at != entry.end and entry.tree.count:
            yield Fault(key, at, "missing", f"the pieces of {archive.url} end at {at}, not at {entry.end}")
        if frames:
            with RecordingReader(archive, descriptor) as reader:
                yield from faults(reader, reader.start_position, reader.end_position())


def _faults_of(archive: ShippedArchive, recording_id: int, piece: Piece) -> Iterator[Fault]:
    """The faults of one object; of one with a table of checksums exact to a block."""
    name = f"{archive.archive_id}/{piece.name}"
    checksum = position = 0
    found, table = BlockSums(), bytearray()
    try:
        while position < piece.size:
            data = archive.store.read(name, position, min(position + RANGE_LENGTH, piece.size))
            if not data:
                text = f"{name} ends at {position} of {piece.size} bytes"
                yield Fault(recording_id, piece.start, "missing", text)
                return
            content = data[: max(piece.octets - position, 0)]
            checksum = crc32(content, checksum)
            found.add(content)
            table += data[len(content) :]
            position += len(data)
    except FileNotFoundError:
        yield Fault(recording_id, piece.start, "missing", f"{name} is missing")
        return
    if table and crc32(table) != piece.checksums:
        text = f"{name} cannot be checked in parts: the checksum of its table of checksums differs"
        yield Fault(recording_id, piece.start, "checksum", text)
        table.clear()
    if checksum == piece.crc32:
        return
    if not table:
        text = f"{name} is not what was shipped: its checksum differs"
        yield Fault(recording_id, piece.start, "checksum", text)
    for start, end in _changed(sums_of(bytes(table)), sums_of(found.table())):
        damage = archive.piece_reader.damage(piece, start, min(end, piece.octets))
        yield Fault(recording_id, piece.start + start if start < piece.length else piece.start, "checksum", str(damage))


def _changed(expected: tuple[int, ...], found: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """The ranges of blocks that differ."""
    numbers = [number for number, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b]
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in group]
        yield members[0] * BLOCK, (members[-1] + 1) * BLOCK
