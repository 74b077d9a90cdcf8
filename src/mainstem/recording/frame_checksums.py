"""Verifies frames of Aeron Archive by the checksums in their session id fields.

Nothing says whether a recording has checksums, or from which position on: an archive that extends a recording can be configured
differently, and the stream then has another session. So each run of frames must show it. Either its session ids are the catalog's
session, or they are the CRC-32C or CRC-32 of each frame, or they are one other session in at least two consecutive frames. A frame
to which none of these applies is corrupt if a frame next to it has a checksum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.layout import DATA_HEADER_LENGTH, FRAME_ALIGNMENT, FRAME_SESSION_ID_OFFSET
from mainstem._core.log.checksums import CRC32, CRC32C, FrameChecksum, end_of_same

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap

_ALGORITHMS = (FrameChecksum(CRC32C), FrameChecksum(CRC32))


def algorithm_of(memory: mmap | bytes | bytearray, offset: int, end: int, checksum: int) -> FrameChecksum | None:
    """Return the algorithm by which ``[offset, end)`` has this checksum, a signed integer, or None if there is none."""
    return next((each for each in _ALGORITHMS if each.compute(memory, offset, end) == checksum), None)


def with_session(frames: bytes | memoryview, session_id: int) -> bytearray:
    """Return frames in which the session id is restored where a checksum has replaced it.

    Restoring stops at the first frame that has neither the session id nor a valid checksum; it and all later frames stay unchanged.
    """
    restored, offset, session = bytearray(frames), 0, session_id.to_bytes(4, "little", signed=True)
    while (offset := end_of_session(restored, offset, len(restored), session_id)) < len(restored):
        length = int.from_bytes(restored[offset : offset + 4], "little")
        end = offset + (length + FRAME_ALIGNMENT - 1) // FRAME_ALIGNMENT * FRAME_ALIGNMENT
        at = offset + FRAME_SESSION_ID_OFFSET
        checksum = int.from_bytes(restored[at : at + 4], "little", signed=True)
        if end > len(restored) or algorithm_of(restored, offset + DATA_HEADER_LENGTH, end, checksum) is None:
            break
        restored[at : at + 4] = session
        offset = end
    return restored


def has_checksums(frames: memoryview) -> bool:
    """Return whether each of some whole frames has a valid checksum in place of its session id, all by one algorithm."""
    return any(each.check(frames, 0, frames.nbytes) and each.offset == frames.nbytes for each in _ALGORITHMS)


def end_of_session(memory: mmap | bytes | bytearray | memoryview, offset: int, limit: int, session_id: int) -> int:
    """Return where the first of the whole frames in ``[offset, limit)`` starts that has another session id, else ``limit``."""
    ids = session_id.to_bytes(4, "little", signed=True)
    return end_of_same(memory, offset, limit, FRAME_SESSION_ID_OFFSET, ids, False)


class FrameChecksums:
    """Checks the frames of one recording in order, and yields ranges of positions whose frames do not match their checksums."""

    def __init__(self, session_id: int) -> None:
        self._session_id = session_id
        # What the session ids are: one session, or checksums.
        self._kind: int | FrameChecksum = session_id
        self._is_known = False
        # The last frame if its session id is neither: its start, its end, and that id.
        self._doubtful: tuple[int, int, int] | None = None
        self._wrong: tuple[int, int] | None = None

    def check(self, memory: mmap | bytes, offset: int, limit: int, position: int) -> Iterator[tuple[int, int]]:
        """Check the whole frames of ``[offset, limit)``. The first one is at ``position``."""
        base = position - offset
        while offset < limit:
            if (right := self._end_of_right(memory, offset, limit)) > offset:
                yield from self._settle()
                self._is_known, offset = True, right
                continue
            length = int.from_bytes(memory[offset : offset + 4], "little")
            end = offset + (length + FRAME_ALIGNMENT - 1) // FRAME_ALIGNMENT * FRAME_ALIGNMENT
            at = offset + FRAME_SESSION_ID_OFFSET
            session_id = int.from_bytes(memory[at : at + 4], "little", signed=True)
            kind = self._kind_of(memory, offset, end, session_id)
            if kind is not None:
                has_checksum, self._kind = isinstance(self._kind, FrameChecksum), kind
                yield from self._settle(has_checksum)
                continue
            yield from self._settle()
            self._doubtful = (base + offset, base + end, session_id)
            offset = end

    def finish(self) -> Iterator[tuple[int, int]]:
        yield from self._settle(not self._is_known)
        if self._wrong is not None:
            yield self._wrong

    def _end_of_right(self, memory: mmap | bytes, offset: int, limit: int) -> int:
        if isinstance(self._kind, FrameChecksum):
            return limit if self._kind.check(memory, offset, limit) else self._kind.offset
        return end_of_session(memory, offset, limit, self._kind)

    def _kind_of(self, memory: mmap | bytes, offset: int, end: int, session_id: int) -> int | FrameChecksum | None:
        if session_id == self._session_id:
            return session_id
        if self._doubtful is not None and session_id == self._doubtful[2]:
            self._doubtful = None
            return session_id
        return algorithm_of(memory, offset + DATA_HEADER_LENGTH, end, session_id)

    def _settle(self, has_checksum: bool = False) -> Iterator[tuple[int, int]]:
        """Decide about a doubtful frame once the next one is known."""
        doubtful, self._doubtful = self._doubtful, None
        if doubtful is None or not (has_checksum or isinstance(self._kind, FrameChecksum)):
            return
        start, end, _ = doubtful
        if self._wrong is not None and self._wrong[1] == start:
            start = self._wrong[0]
        elif self._wrong is not None:
            yield self._wrong
        self._wrong = start, end
