"""Verifies a shipped archive: objects exist, checksums match, and frames are whole."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING
from zlib import crc32

from mainstem.errors import RecordingError
from mainstem.recording.reader import RecordingReader
from mainstem.recording.shipping.chunks import BLOCK, BlockSums, stored_ranges, sums_of
from mainstem.recording.shipping.page_tree import between
from mainstem.recording.verify_recordings import Problem, find_problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.recording.shipping.chunks import Chunk
    from mainstem.recording.shipping.shipped_archive import ShippedArchive


def find_archive_problems(
    archive: ShippedArchive, *, recording_id: int | None = None, frames: bool = False
) -> Iterator[Problem]:
    """Yield the problems of a shipped archive. Reads every object once, or twice with ``frames``."""
    for descriptor in archive.recordings():
        key = descriptor.recording_id
        if recording_id not in (None, key):
            continue
        entry, at = archive.entry(key), archive.entry(key).start
        try:
            for chunk in between(entry.tree, entry.start, entry.end, archive.pages):
                if chunk.start != at:
                    text = f"positions {at} to {chunk.start} of {archive.url} were deleted before they were shipped"
                    yield Problem(key, at, "missing", text)
                at = chunk.end
                yield from _problems_of(archive, key, chunk)
        except RecordingError as error:
            yield Problem(key, at, "missing", str(error))
            continue
        if at != entry.end and entry.tree.count:
            yield Problem(key, at, "missing", f"the chunks of {archive.url} end at {at}, not at {entry.end}")
        if frames:
            with RecordingReader(archive, descriptor) as reader:
                yield from find_problems(reader, reader.start_position, reader.end_position())


def _problems_of(archive: ShippedArchive, recording_id: int, chunk: Chunk) -> Iterator[Problem]:
    """Yield the problems of one object. They are located to the block if the object has a table of checksums."""
    name = f"{archive.archive_id}/{chunk.name}"
    checksum = end = 0
    found, table = BlockSums(), bytearray()
    try:
        for start, data in stored_ranges(archive.store, name, chunk.size):
            content = data[: max(chunk.nbytes - start, 0)]
            checksum = crc32(content, checksum)
            found.add(content)
            table += data[len(content) :]
            end = start + len(data)
    except FileNotFoundError:
        yield Problem(recording_id, chunk.start, "missing", f"{name} is missing")
        return
    if end < chunk.size:
        yield Problem(recording_id, chunk.start, "missing", f"{name} ends at {end} of {chunk.size} bytes")
        return
    if table and crc32(table) != chunk.checksums:
        text = f"{name} cannot be checked in parts: the checksum of its table of checksums differs"
        yield Problem(recording_id, chunk.start, "checksum", text)
        table.clear()
    if checksum == chunk.crc32:
        return
    if not table:
        text = f"{name} is not what was shipped: its checksum differs"
        yield Problem(recording_id, chunk.start, "checksum", text)
    for start, end in _changed(sums_of(bytes(table)), sums_of(found.table())):
        damage = archive.chunk_reader.damage(chunk, start, min(end, chunk.nbytes))
        yield Problem(
            recording_id, chunk.start + start if start < chunk.length else chunk.start, "checksum", str(damage)
        )


def _changed(expected: tuple[int, ...], found: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    numbers = [number for number, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b]
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in group]
        yield members[0] * BLOCK, (members[-1] + 1) * BLOCK
