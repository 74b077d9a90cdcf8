"""The index of a capture: where its chunks begin, what each holds, and the problems of the file.

It is built in one pass, stored beside the file, and used until the file's size or modification time changes. If the file has
grown, the pass continues where the index ended.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import replace
from typing import IO, TYPE_CHECKING

from mainstem._core.capture import layout as layout
from mainstem._core.capture.packet_index import PacketIndex
from mainstem.capture.chunks import CHUNK_BYTES, Chunk, FrameIndex, Problem
from mainstem.capture.files import capture_errors, open_file, status_of
from mainstem.capture.formats import HEAD_LENGTH, recognize, section_of
from mainstem.capture.traces import add_chunks
from mainstem.capture.unpacking import open_capture, packing_of, unpacked_size
from mainstem.errors import CaptureError

if TYPE_CHECKING:
    from mainstem.capture.formats import Section

RESYNC_PACKETS = 8  # consecutive valid records required before a reader accepts an offset as the next record
RESYNC_WINDOW = 16 << 20  # bytes searched for them at a time
RESYNC_STEP = 1 << 18  # offsets tried per call, between which Ctrl-C is noticed
PRINT_BYTES = 4096  # bytes at the beginning and at the end of the indexed part, by which a grown file is recognized


def build(path: str, before: FrameIndex | None = None) -> FrameIndex:
    """Index a file, continuing ``before`` if that still matches its beginning. Never raises because of the file's contents.

    Raises CaptureError if the file cannot be opened.
    """
    with capture_errors(path):
        file_size, mtime_ns = status_of(path)
        with open_file(path) as file:
            packed = packing_of(file.read(4))
        size, fault = unpacked_size(path, packed) if packed else (file_size, "")
        with open_capture(path, packed) as file:
            if before is not None and not packed and _grown(file, before, size):
                index = replace(before, size=file_size, mtime_ns=mtime_ns, tail=None)
                _reopen_last(index)
            else:
                index = FrameIndex(file_size, mtime_ns, None)
                _open(file, index, packed, fault)
            if index.format is not None and index.format.name == "aqueduct":
                index.chunks = list(index.chunks)
                add_chunks(file, index, size)
            elif index.format is not None:
                _Builder(file, index, size).run()
            if fault and index.format is not None:
                index.tail = Problem(layout.PROBLEM_TRUNCATED_FILE, index.packets, index.end, fault)
            if index.format is not None:
                index.prints = (_print(file, 0, min(index.end, PRINT_BYTES)), _last_print(file, index.end))
            return index


def identity(path: str, index: FrameIndex, before: str = "") -> str:
    """Return an id that stays the same while a capture grows: a hash of its first bytes, as many as in ``before``.

    Raises CaptureError if the file cannot be opened.
    """
    length = int(before.partition(":")[0]) if before else min(index.end, PRINT_BYTES)
    packed = index.format.packed if index.format is not None else ""
    with capture_errors(path), open_capture(path, packed) as file:
        data = file.read(length)
    return f"{length}:{hashlib.sha256(data).hexdigest()[:16]}"


def _open(file: IO[bytes], index: FrameIndex, packed: str, fault: str) -> None:
    # The position may have moved, because fingerprints of earlier content were compared.
    file.seek(0)
    try:
        index.format = replace(recognize(file.read(HEAD_LENGTH)), packed=packed)
    except CaptureError as error:
        index.tail = Problem(layout.PROBLEM_UNREADABLE_FILE, 0, 0, f"{fault}; {error}" if fault else str(error))
        return
    index.sections.append(index.format.section)
    index.end = index.format.start


def _reopen_last(index: FrameIndex) -> None:
    """Remove the last chunk if the file simply ended there, so that chunks do not depend on when they were indexed."""
    index.chunks = list(index.chunks)
    if index.chunks and index.chunks[-1].end == index.end:
        last = index.chunks.pop()
        index.end, index.packets = last.offset, last.packet
        index.sections = index.sections[: last.section + 1]


def _print(file: IO[bytes], offset: int, length: int) -> int:
    file.seek(offset)
    return zlib.crc32(file.read(length))


def _last_print(file: IO[bytes], end: int) -> int:
    start = max(end - PRINT_BYTES, 0)
    return _print(file, start, end - start)


def _grown(file: IO[bytes], before: FrameIndex, size: int) -> bool:
    if before.format is None or before.format.packed or size < before.end or before.end == 0:
        return False
    first, last = before.prints
    return _print(file, 0, min(before.end, PRINT_BYTES)) == first and _last_print(file, before.end) == last


class _Builder:
    def __init__(self, file: IO[bytes], index: FrameIndex, size: int) -> None:
        assert index.format is not None
        self._file, self._index, self._size = file, index, size
        self._start, self._data = 0, b""  # offset and bytes of the last read
        # Add chunks to copies, because an index that was returned must not change.
        index.sections, index.chunks = list(index.sections), list(index.chunks)
        index.problems, index.links = list(index.problems), list(index.links)
        self._walk = index.format.walk(index.sections[-1])
        self._pass = PacketIndex(self._walk)

    def run(self) -> None:
        index, size = self._index, CHUNK_BYTES
        while index.end < self._size:
            begin, end = self._read(index.end, size)
            before = section_of(self._walk)
            stopped = self._pass.run(self._data, begin, end)
            self._add(self._pass.offset - begin, before)
            if stopped == layout.RECORD_CORRUPT:
                if not self._resync():
                    return
            elif self._pass.offset == begin:
                if end - begin < size:
                    self._truncated(end - begin)
                    return
                # A record longer than a chunk: read as much as its own length says.
                size = max(self._walk.needed, size + 1)
                continue
            size = CHUNK_BYTES

    def _read(self, offset: int, size: int, *, at_least: int = 0) -> tuple[int, int]:
        """Return where in ``self._data`` up to ``size`` bytes at ``offset`` of the file are; return early with ``at_least``.

        Bytes of the last read are reused, because a compressed file would have to be decompressed from its beginning.
        """
        buffered = self._start + len(self._data)
        if not self._start <= offset <= min(offset + (at_least or size), self._size) <= buffered:
            kept = self._data[offset - self._start :] if self._start <= offset <= buffered else b""
            self._file.seek(offset + len(kept))
            kept += self._file.read(min(size, self._size - offset) - len(kept))
            self._start, self._data = offset, kept
        begin = offset - self._start
        return begin, min(begin + size, len(self._data))

    def _add(self, length: int, before: Section) -> None:
        stretch, index = self._pass, self._index
        if length == 0:
            return
        if before != index.sections[-1]:
            index.sections.append(before)
        start, end = index.end, index.end + length
        index.chunks.append(
            Chunk(
                start, end, index.packets, stretch.packets, stretch.first_ns, stretch.last_ns, stretch.tcp,
                stretch.fragments,
                len(index.sections) - 1,
            )
        )  # fmt: skip
        after = section_of(self._walk)
        if after != index.sections[-1]:
            index.sections.append(after)
        index.packets += stretch.packets
        index.end = end
        if stretch.unknown_link >= 0 and stretch.unknown_link not in index.links:
            index.links.append(stretch.unknown_link)
            text = f"link type {stretch.unknown_link} is not known; its packets are passed over"
            index.problems.append(Problem(layout.PROBLEM_UNSUPPORTED_LINK, index.packets, end, text))

    def _truncated(self, left: int) -> None:
        index = self._index
        text = f"the file ends within a record: {left} of at least {self._walk.needed} bytes at {index.end}"
        index.tail = Problem(layout.PROBLEM_TRUNCATED_FILE, index.packets, index.end, text)

    def _resync(self) -> bool:
        """Find the next records after a corrupt one. Return False if there are none."""
        index, start = self._index, self._index.end
        offset = start + 1
        while offset < self._size:
            begin, end = self._read(offset, RESYNC_WINDOW, at_least=RESYNC_WINDOW // 2)
            place = self._search(begin, end)
            if place >= 0:
                place += self._start
                text = f"bytes {start} to {place} are not records; reading continues after them"
                index.problems.append(Problem(layout.PROBLEM_CORRUPT_FILE, index.packets, start, text))
                index.end = place
                return True
            if end == begin:
                break
            # Search half of the window again, because the records may begin near its end.
            offset += max((end - begin) // 2, 1) if offset + end - begin < self._size else end - begin
        text = f"bytes {start} to {self._size} are not records, and none follow"
        index.tail = Problem(layout.PROBLEM_CORRUPT_FILE, index.packets, start, text)
        return False

    def _search(self, begin: int, end: int) -> int:
        """Return the first offset in ``self._data`` where records begin, or -1."""
        for at in range(begin, end, RESYNC_STEP):
            place = self._walk.resync(self._data, at, min(at + RESYNC_STEP, end), end, RESYNC_PACKETS)
            if place >= 0:
                return place
        return -1
