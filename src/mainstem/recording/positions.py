"""``<recordingId>.mainstem-positions``: how far a recording is durable, and a sparse index of positions and times.

It is Mainstem's own, beside the files of Aeron Archive; a directory without it is read all the same, only by walking. Its
header of 64 bytes holds the *recorded position*, which is stored only after the frames up to it were written, in one aligned
store, so that a reader in another process may trust it at any moment. Entries of 32 bytes follow, about one for each 64 to 256 KiB:
a position between two messages, the time from which on what follows was recorded, how many messages lie before it, and the
CRC-32 of the bytes since the entry before (or since the recording's start).
Every entry is there before the recorded position moves past it, so each reading finds the same ones.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from dataclasses import dataclass
from mmap import ACCESS_READ, MAP_SHARED, PROT_READ, PROT_WRITE, mmap
from typing import TYPE_CHECKING

from mainstem._core.layout import FRAME_ALIGNMENT
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.errors import RecordingError
from mainstem.recording.catalog import MAX_POSITION, open_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAGIC = b"MSPOSN02"
HEADER_LENGTH = 64
ENTRY_LENGTH = 32
RECORDED_POSITION_OFFSET = 16
RECORDED_TIME_OFFSET = 24
# A split or a time filter is exact to about so much; it costs one part in two thousand of the recording's size.
INDEX_INTERVAL = 64 << 10
# On a slow stream times are exact to this.
INDEX_INTERVAL_NS = 100_000_000

_HEADER = struct.Struct("<8sqqq")
_ENTRY = struct.Struct("<3qIi")


def positions_file(directory: Path, recording_id: int) -> Path:
    """The path of the positions of a recording."""
    return directory / f"{recording_id}.mainstem-positions"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """``messages`` messages end at or before ``position``; what follows it was recorded at epoch ``time_ns`` or later.

    ``checksum`` is the CRC-32 of the file's bytes from the entry before, or the recording's start, to ``position``.
    """

    position: int
    time_ns: int
    messages: int
    checksum: int = 0


class PositionsWriter:
    """The recorder's side. Opening cuts entries past ``position``, and creates the file where it is missing."""

    def __init__(self, directory: Path, recording_id: int, position: int) -> None:
        path = positions_file(directory, recording_id)
        header = _HEADER.pack(MAGIC, recording_id, position, 0).ljust(HEADER_LENGTH, b"\0")
        if not path.exists() or path.stat().st_size < HEADER_LENGTH:
            # Whole from its first moment: a reader may come at any time.
            fresh = path.with_name(f"{path.name}.new")
            fresh.write_bytes(header)
            fresh.replace(path)
        self._fd = open_file(path)
        retained = _entries_until(self._fd, position)
        os.pwrite(self._fd, header, 0)
        self._end = HEADER_LENGTH + retained * ENTRY_LENGTH
        os.ftruncate(self._fd, self._end)
        self.last = _entry(self._fd, retained - 1) if retained else None
        self._map = mmap(self._fd, HEADER_LENGTH, flags=MAP_SHARED, prot=PROT_READ | PROT_WRITE)
        self._header = AtomicBuffer(self._map)

    def publish(self, position: int, time_ns: int) -> None:
        """Publishes that everything before ``position`` is written; called after it is."""
        self._header.put_i64(RECORDED_TIME_OFFSET, time_ns)
        self._header.put_i64_release(RECORDED_POSITION_OFFSET, position)

    def append(self, entry: IndexEntry) -> None:
        """Adds an entry to the index, before anything past its position is written."""
        os.pwrite(self._fd, _ENTRY.pack(entry.position, entry.time_ns, entry.messages, entry.checksum, 0), self._end)
        self._end += ENTRY_LENGTH
        self.last = entry

    def sync(self) -> None:
        """Waits until the file is on the device."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Closes the file; may be called twice."""
        if self._fd >= 0:
            self._header.close()
            self._map.close()
            os.close(self._fd)
            self._fd = -1


class PositionsReader:
    """A reader's side: the recorded position and the index, as they are now.

    Entries are read when they are asked for: of a recording of a terabyte there are sixteen million. Each look-up that would
    need one raises RecordingError when a recorder that starts again has cut it off meanwhile.
    """

    def __init__(self, directory: Path, recording_id: int) -> None:
        self._path = positions_file(directory, recording_id)
        try:
            self._file = self._path.open("rb", buffering=0)
        except OSError as error:
            raise RecordingError(f"{self._path}: {error.strerror}") from error
        self._fd = self._file.fileno()
        size = os.fstat(self._fd).st_size
        if size < HEADER_LENGTH:
            self._file.close()
            raise RecordingError(f"{self._path} has only {size} bytes")
        self._map = mmap(self._fd, HEADER_LENGTH, access=ACCESS_READ)
        # One aligned load of eight bytes: struct would put them together from parts.
        self._words = memoryview(self._map).cast("q")
        magic, found_id = self._map[:8], self._words[1]
        if magic != MAGIC or found_id != recording_id:
            self.close()
            raise RecordingError(f"{self._path} is not the positions of recording {recording_id}")

    @property
    def recorded_position(self) -> int:
        """Everything before it is written. Never goes back while the recorder lives.

        Raises RecordingError where the file has no frame boundary there.
        """
        position = self._words[RECORDED_POSITION_OFFSET // 8]
        if not 0 <= position <= MAX_POSITION or position % FRAME_ALIGNMENT:
            raise RecordingError(f"{self._path}: the recorded position {position} is no frame boundary")
        return position

    @property
    def count(self) -> int:
        """How many entries there are: of what was recorded, not of what is being written."""
        return _entries_until(self._fd, self.recorded_position)

    def at_or_before(self, position: int) -> IndexEntry | None:
        """The last entry whose position is not past ``position``."""
        return self._before(self._past(position))

    def after(self, position: int) -> IndexEntry | None:
        """The first entry past ``position``."""
        return self._from(self._past(position))

    def at_time(self, time_ns: int) -> IndexEntry | None:
        """The first entry not earlier than ``time_ns``: what is stamped with that time or a later one lies after it."""
        return self._from(self._first(lambda entry: entry.time_ns >= time_ns))

    def before_time(self, time_ns: int) -> IndexEntry | None:
        """The last entry earlier than ``time_ns``: reading on from it meets everything recorded since then."""
        return self._before(self._first(lambda entry: entry.time_ns >= time_ns))

    def within(self, messages: int, position: int) -> IndexEntry | None:
        """The last entry with at most so many messages before it, and not past ``position``."""
        return self._before(self._first(lambda entry: entry.messages > messages or entry.position > position))

    def around(self, start: int, end: int) -> list[IndexEntry]:
        """The entries from the last one not past ``start`` to the first one not before ``end``."""
        return [IndexEntry(*values[:4]) for values in _ENTRY.iter_unpack(self._packed(start, end))]

    def times_around(self, start: int, end: int) -> tuple[memoryview, memoryview]:
        """The positions of the same entries, and their times in ns, as columns of 64 bits: for readers of all entries."""
        words = memoryview(self._packed(start, end)).cast("q")
        return words[0 :: ENTRY_LENGTH // 8], words[1 :: ENTRY_LENGTH // 8]

    def _packed(self, start: int, end: int) -> bytes:
        first = max(self._past(start) - 1, 0)
        last = min(self._first(lambda entry: entry.position >= end) + 1, self.count)
        if last < first:
            raise RecordingError(f"{self._path}: its entries {last} to {first} are not in order")
        return os.pread(self._fd, (last - first) * ENTRY_LENGTH, HEADER_LENGTH + first * ENTRY_LENGTH)

    def _past(self, position: int) -> int:
        return self._first(lambda entry: entry.position > position)

    def _first(self, holds: Callable[[IndexEntry], bool]) -> int:
        """The number of the first entry for which ``holds``, as it does for all that follow; ``count`` for none."""
        return bisect_left(range(self.count), True, key=lambda index: holds(self._at(index)))

    def _from(self, index: int) -> IndexEntry | None:
        return self._at(index) if index < self.count else None

    def _before(self, index: int) -> IndexEntry | None:
        return self._at(index - 1) if index else None

    def _at(self, index: int) -> IndexEntry:
        entry = _entry(self._fd, index)
        if entry is None:
            raise RecordingError(f"{self._path} ends before its entry {index}")
        if entry.position < 0 or entry.position % FRAME_ALIGNMENT or entry.messages < 0:
            raise RecordingError(f"{self._path}: its entry {index} has an impossible position, {entry.position}")
        return entry

    def close(self) -> None:
        """Closes the file; may be called twice."""
        self._words.release()
        self._map.close()
        self._file.close()


def _entry(fd: int, index: int) -> IndexEntry | None:
    """An entry by its number; None where the file ends before it does."""
    data = os.pread(fd, ENTRY_LENGTH, HEADER_LENGTH + index * ENTRY_LENGTH)
    return IndexEntry(*_ENTRY.unpack(data)[:4]) if len(data) == ENTRY_LENGTH else None


def _entries_until(fd: int, position: int) -> int:
    """How many entries of a file are not past ``position``."""
    count = max(os.fstat(fd).st_size - HEADER_LENGTH, 0) // ENTRY_LENGTH

    def is_past(index: int) -> bool:
        # What is cut off meanwhile, by a recorder that starts again, was past it.
        entry = _entry(fd, index)
        return entry is None or entry.position > position

    return bisect_left(range(count), True, key=is_past)
