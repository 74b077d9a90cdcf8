"""Whether a shipped archive is what was shipped: its objects are there, their checksums hold, their frames are whole."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from mainstem.errors import RecordingError
from mainstem.recording.reader import RecordingReader
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

    Example:
        ``list(archive_faults(shipped_archives(store)[0]))``
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
                if (fault := _fault_of(archive, key, piece)) is not None:
                    yield fault
        except RecordingError as error:
            yield Fault(key, at, "missing", str(error))
            continue
        if at != entry.end and entry.tree.count:
            yield Fault(key, at, "missing", f"the pieces of {archive.url} end at {at}, not at {entry.end}")
        if frames:
            with RecordingReader(archive, descriptor) as reader:
                yield from faults(reader, reader.start_position, reader.end_position())


def _fault_of(archive: ShippedArchive, recording_id: int, piece: Piece) -> Fault | None:
    name = f"{archive.archive_id}/{piece.name}"
    checksum = position = 0
    try:
        while position < piece.octets:
            data = archive.store.read(name, position, min(position + RANGE_LENGTH, piece.octets))
            if not data:
                return Fault(recording_id, piece.start, "missing", f"{name} ends at {position} of {piece.octets} bytes")
            checksum = crc32(data, checksum)
            position += len(data)
    except FileNotFoundError:
        return Fault(recording_id, piece.start, "missing", f"{name} is missing")
    if checksum != piece.crc32:
        return Fault(recording_id, piece.start, "checksum", f"{name} is not what was shipped: its checksum differs")
    return None
