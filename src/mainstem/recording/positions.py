"""``<recordingId>.mainstem-positions``: how far a recording is durable, and a sparse index of positions and times.

It is Mainstem's own, beside the files of Aeron Archive; a directory without it is read all the same, only by walking. Its
header of 64 bytes holds the *recorded position*, which is stored only after the frames up to it were written, in one aligned
store, so that a reader in another process may trust it at any moment. Entries of 32 bytes follow, about one for each 64 to 256 KiB:
a position between two messages, the time from which on what follows was recorded, how many messages lie before it, and the
CRC-32 of the bytes since the entry before (or since the recording's start).
Every entry is there before the recorded position moves past it, so each reading finds the same ones.
"""

from __future__ import annotations

import bisect
import os
import struct
from dataclasses import dataclass
from mmap import ACCESS_READ, MAP_SHARED, PROT_READ, PROT_WRITE, mmap
from typing import TYPE_CHECKING

from mainstem._core.buffer import AtomicBuffer
from mainstem.errors import RecordingError

if TYPE_CHECKING:
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
    """Where the positions of a recording are kept."""
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
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        kept = [e for e in _read_entries(self._fd) if e.position <= position]
        os.pwrite(self._fd, header, 0)
        os.ftruncate(self._fd, HEADER_LENGTH + len(kept) * ENTRY_LENGTH)
        self.last = kept[-1] if kept else None
        self._end = HEADER_LENGTH + len(kept) * ENTRY_LENGTH
        self._map = mmap(self._fd, HEADER_LENGTH, flags=MAP_SHARED, prot=PROT_READ | PROT_WRITE)
        self._header = AtomicBuffer(self._map)

    def publish(self, position: int, time_ns: int) -> None:
        """Says that everything before ``position`` is written. Call it after it is."""
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
    """A reader's side: the recorded position now, and the index as far as it was read; ``refresh`` reads on."""

    def __init__(self, directory: Path, recording_id: int) -> None:
        self._path = positions_file(directory, recording_id)
        self._file = self._path.open("rb", buffering=0)
        size = os.fstat(self._file.fileno()).st_size
        if size < HEADER_LENGTH:
            self._file.close()
            raise RecordingError(f"{self._path} has only {size} bytes")
        self._map = mmap(self._file.fileno(), HEADER_LENGTH, access=ACCESS_READ)
        # One aligned load of eight bytes: struct would put them together from parts.
        self._words = memoryview(self._map).cast("q")
        magic, found_id = self._map[:8], self._words[1]
        if magic != MAGIC or found_id != recording_id:
            self.close()
            raise RecordingError(f"{self._path} is not the positions of recording {recording_id}")
        self.entries: list[IndexEntry] = []
        self._positions: list[int] = []
        self.refresh()

    @property
    def recorded_position(self) -> int:
        """Everything before it is written. Never goes back while the recorder lives."""
        return self._words[RECORDED_POSITION_OFFSET // 8]

    def refresh(self) -> None:
        """Reads the entries that came since."""
        fresh = _read_entries(self._file.fileno(), len(self.entries))
        limit = self.recorded_position
        for entry in fresh:
            if entry.position > limit:
                break
            self.entries.append(entry)
            self._positions.append(entry.position)

    def at_or_before(self, position: int) -> IndexEntry | None:
        """The last entry whose position is not past ``position``."""
        at = bisect.bisect_right(self._positions, position)
        return self.entries[at - 1] if at else None

    def after(self, position: int) -> IndexEntry | None:
        """The first entry past ``position``."""
        at = bisect.bisect_right(self._positions, position)
        return self.entries[at] if at < len(self.entries) else None

    def at_time(self, time_ns: int) -> IndexEntry | None:
        """The first entry not earlier than ``time_ns``: what is stamped with that time or a later one lies after it."""
        at = bisect.bisect_left(self.entries, time_ns, key=lambda entry: entry.time_ns)
        return self.entries[at] if at < len(self.entries) else None

    def before_time(self, time_ns: int) -> IndexEntry | None:
        """The last entry earlier than ``time_ns``: reading on from it meets everything recorded since then."""
        at = bisect.bisect_left(self.entries, time_ns, key=lambda entry: entry.time_ns)
        return self.entries[at - 1] if at else None

    def close(self) -> None:
        """Closes the file; may be called twice."""
        self._words.release()
        self._map.close()
        self._file.close()


def _read_entries(fd: int, skip: int = 0) -> list[IndexEntry]:
    start = HEADER_LENGTH + skip * ENTRY_LENGTH
    size = max(os.fstat(fd).st_size - start, 0) // ENTRY_LENGTH * ENTRY_LENGTH
    data = os.pread(fd, size, start) if size else b""
    data = data[: len(data) // ENTRY_LENGTH * ENTRY_LENGTH]
    return [IndexEntry(*values[:4]) for values in _ENTRY.iter_unpack(data)]
