"""``<recordingId>.mainstem-positions``: the recorded position, and a sparse index of positions and times.

This file is specific to Mainstem and exists beside those of Aeron Archive. If it is missing, readers walk the frames. Its header of
64 bytes has the *recorded position*. It is stored in one aligned store after the frames before it were written, so readers in other
processes can always trust it. The header is followed by entries of 32 bytes, about one for each 64 to 256 KiB. An entry has a
position between two messages, the time since which later bytes were recorded, the number of messages before it, and the checksum of
the bytes since the previous entry (or the start). Every entry is written before the recorded position passes it, so all readers
find the same entries.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from bisect import bisect_left
from collections import OrderedDict
from contextlib import closing
from dataclasses import dataclass
from mmap import PROT_READ, PROT_WRITE
from typing import TYPE_CHECKING

from mainstem._core.layout import FRAME_ALIGNMENT
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._internal.guarded_map import GuardedMap
from mainstem._internal.log_throttle import warn_once
from mainstem._internal.regular_files import open_regular
from mainstem.errors import RecordingError
from mainstem.recording.catalog import MAX_POSITION
from mainstem.recording.frame_checksums import has_checksums, with_session
from mainstem.recording.life import ENDED, NO_LIFE, StreamLife
from mainstem.recording.segments import segment_base
from mainstem.store.disk import DISK, Disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from mainstem.recording.catalog import RecordingDescriptor

log = logging.getLogger("mainstem.recording")

MAGIC = b"MSPOSN02"
HEADER_LENGTH = 64
ENTRY_LENGTH = 32
RECORDED_POSITION_OFFSET = 16
RECORDED_TIME_OFFSET = 24
LIFE_OFFSETS = (48, 56)
# The precision of splits and time filters, in bytes. The index takes about 1/2,000 of the size of the recording.
INDEX_INTERVAL = 64 << 10
# The first entry is at most an interval and a message of 16 MiB after the start of what was recorded.
MAX_FIRST_RANGE = 32 << 20
# The precision of times on a slow stream.
INDEX_INTERVAL_NS = 100_000_000

# Bytes per request to a remote file: the whole index of a recording of 128 MiB.
BLOCK_LENGTH = 64 << 10
# A search in the index of a terabyte reads fourteen blocks, and a range needs two searches.
MAX_BLOCKS = 32

# Magic, recording id, recorded position and its time; the origin of the recording, and the life that is currently recorded.
_HEADER = struct.Struct("<8sqqq2q2q")
_ENTRY = struct.Struct("<3qIi")


class CorruptIndexError(RecordingError):
    """An index file has an invalid header, possibly because of a power failure. The recording is then read without the index."""


def index_name(recording_id: int) -> str:
    return f"{recording_id}.mainstem-positions"


def index_file(directory: Path, recording_id: int) -> Path:
    return directory / index_name(recording_id)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """``messages`` messages end at or before ``position``. Later bytes were recorded at epoch ``time_ns`` or later.

    ``checksum`` is the CRC-32 of the bytes from the previous entry, or from the start, to ``position``, and ``session_id`` is the
    session of their frames. Both are 0 in older files.
    """

    position: int
    time_ns: int
    messages: int
    checksum: int = 0
    session_id: int = 0


def possible_starts(descriptor: RecordingDescriptor, start: int, entry: IndexEntry, *, is_first: bool) -> Iterator[int]:
    """Return where the bytes of an entry's checksum can begin, the likely position first.

    That is ``start``, the position of the entry before or of the recording. But an archive can attach or migrate segments to the
    beginning of an active recording. Then the first entry is where the recording began, or its bytes begin at a later segment.
    """
    is_near = entry.position - start <= MAX_FIRST_RANGE
    if is_near or not is_first:
        yield start
    if is_first:
        yield entry.position
        last = segment_base(descriptor, entry.position - 1)
        yield from range(last, max(start, last - MAX_FIRST_RANGE), -descriptor.segment_file_length)
        if not is_near:
            yield start


def is_as_recorded(
    runs: Callable[[], Iterable[memoryview]],
    descriptor: RecordingDescriptor,
    entry: IndexEntry,
    before: IndexEntry | None,
) -> bool:
    """Return whether the runs of whole frames between two index entries are those that were recorded.

    They are if the checksum of ``entry`` is that of the frames as they are, or with a session id restored where a tool has stored
    checksums. If another session extended the recording there, so that the frames can have two sessions, it is enough that each
    frame has a valid checksum.
    """
    if _checksum(runs()) == entry.checksum:
        return True
    sessions, may_mix = {entry.session_id, descriptor.session_id}, False
    if before is not None and before.session_id != entry.session_id:
        sessions, may_mix = {*sessions, before.session_id}, True
    if any(_checksum(runs(), session_id) == entry.checksum for session_id in sessions):
        return True
    return may_mix and all(has_checksums(run) for run in runs())


def _checksum(runs: Iterable[memoryview], session_id: int | None = None) -> int:
    value = 0
    for run in runs:
        value = zlib.crc32(run if session_id is None else with_session(run, session_id), value)
    return value


class IndexWriter:
    """The recorder's side of the index. Opening it drops entries past ``position``, and creates the file if it is missing.

    ``origin`` is that of the recording's descriptor, and ``life`` is the life that is recorded now. With ``is_new``, an existing
    file is ignored, because it belongs to a recording whose catalog entry was lost.
    """

    def __init__(
        self,
        directory: Path,
        recording_id: int,
        position: int,
        *,
        origin: StreamLife = NO_LIFE,
        life: StreamLife = NO_LIFE,
        is_new: bool = False,
        durable: bool = False,
        disk: Disk = DISK,
    ) -> None:
        path = index_file(directory, recording_id)
        header = _HEADER.pack(MAGIC, recording_id, position, 0, *origin, *life)
        self._disk = disk
        self._fd = disk.open_whole(path, header, durable=durable)
        written = max(os.fstat(self._fd).st_size - HEADER_LENGTH, 0) // ENTRY_LENGTH
        retained = 0 if is_new else _entries_until(written, lambda index: _entry(self._fd, index), position)
        disk.write(self._fd, header, 0)
        self._end = HEADER_LENGTH + retained * ENTRY_LENGTH
        disk.resize(self._fd, self._end)
        self.last = _entry(self._fd, retained - 1) if retained else None
        # What `append` wrote after the entries that count, until `publish` makes it count.
        self._appended: tuple[IndexEntry, ...] = ()
        self._path = path
        self._map = GuardedMap(self._fd, HEADER_LENGTH, prot=PROT_READ | PROT_WRITE)
        self._header = AtomicBuffer(self._map)

    def publish(self, position: int, time_ns: int) -> None:
        """Publish that everything before ``position`` is written, and keep the appended entries. Call it only after writing."""
        if self._appended:
            self._end += len(self._appended) * ENTRY_LENGTH
            self.last, self._appended = self._appended[-1], ()
        self._header.put_i64(RECORDED_TIME_OFFSET, time_ns)
        self._header.put_i64_release(RECORDED_POSITION_OFFSET, position)
        _check_whole(self._map, self._path)

    def end_life(self) -> None:
        for offset, value in zip(LIFE_OFFSETS, ENDED, strict=True):
            self._header.put_i64(offset, value)

    def append(self, *entries: IndexEntry) -> None:
        """Append entries, which count once a position past theirs is published. Until then, the next call replaces them."""
        if self._appended:
            self._disk.resize(self._fd, self._end)
        self._appended = entries
        if entries:
            packed = b"".join(
                _ENTRY.pack(each.position, each.time_ns, each.messages, each.checksum, each.session_id)
                for each in entries
            )
            self._disk.write(self._fd, packed, self._end)

    def sync(self) -> None:
        """Wait until everything that was published is on the device."""
        if self._fd >= 0:
            self._disk.sync(self._fd)

    def sync_entries(self) -> None:
        """Wait until the appended entries are on the device."""
        if self._appended:
            self.sync()

    def close(self) -> None:
        if self._fd >= 0:
            self._header.close()
            self._map.close()
            fd, self._fd = self._fd, -1
            self._disk.close(fd)


class IndexRepair:
    """Repairs an index file after a power failure. Its header is valid; any entry can be missing."""

    def __init__(self, directory: Path, recording_id: int, disk: Disk = DISK) -> None:
        self._disk = disk
        self._fd = disk.open(index_file(directory, recording_id))

    def entry(self, number: int) -> IndexEntry:
        entry = _entry(self._fd, number)
        assert entry is not None, "it has been read before"
        return entry

    def sound(self, start: int, limit: int) -> tuple[int, int]:
        """Return the number of valid entries in a row, from ``start`` up to ``limit``, and the time of the last one in ns."""
        count, before = 0, (start - 1, 0, 0)
        while block := os.pread(self._fd, BLOCK_LENGTH, HEADER_LENGTH + count * ENTRY_LENGTH):
            block = block[: len(block) // ENTRY_LENGTH * ENTRY_LENGTH]
            for position, time_ns, messages, _, _ in _ENTRY.iter_unpack(block):
                is_next = before[0] < position <= limit and time_ns >= before[1] and messages >= before[2]
                if not is_next or position % FRAME_ALIGNMENT:
                    return count, before[1]
                count, before = count + 1, (position, time_ns, messages)
            if not block:
                break
        return count, before[1]

    def cut(self, position: int, entries: int) -> None:
        """Truncate the file to the given number of entries and store the recorded position, unless that is already its state."""
        length, recorded = HEADER_LENGTH + entries * ENTRY_LENGTH, struct.pack("<q", position)
        has_more = os.fstat(self._fd).st_size > length
        if not has_more and os.pread(self._fd, len(recorded), RECORDED_POSITION_OFFSET) == recorded:
            return
        if has_more:
            self._disk.resize(self._fd, length)
        self._disk.write(self._fd, recorded, RECORDED_POSITION_OFFSET)
        self._disk.sync(self._fd)

    def close(self) -> None:
        self._disk.close(self._fd)


class RecordingIndex:
    """The reader's side: the recorded position and the index, from a local or remote file.

    Entries are read on demand, because a recording of a terabyte has sixteen million of them. A lookup raises RecordingError if a
    restarted recorder has removed the entry that it needs.
    """

    _name: str
    has_file = False  # whether a local file is open: descriptors are limited
    origin = NO_LIFE
    """The origin of the recording to which the file belongs. If an archive extended it, the descriptor has another one."""

    @property
    def life(self) -> StreamLife:
        """The life of the stream that was recorded last, or ``NO_LIFE``."""
        return NO_LIFE

    @property
    def recorded_position(self) -> int:
        """The position before which everything is written. It never decreases while the recorder lives.

        Raises RecordingError if it is not a frame boundary.
        """
        raise NotImplementedError

    def refresh(self) -> None:
        """Read a remote file again. A mapped file is always up to date."""

    def _read(self, first: int, last: int) -> bytes:
        """Return the bytes of the entries ``[first, last)``; fewer at the end of the file."""
        raise NotImplementedError

    def _written(self) -> int:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    @property
    def count(self) -> int:
        """The number of entries before the recorded position."""
        return _entries_until(self._written(), self._entry, self.recorded_position)

    def at_or_before(self, position: int) -> IndexEntry | None:
        """Return the last entry whose position is not past ``position``."""
        return self._before(self._past(position))

    def after(self, position: int) -> IndexEntry | None:
        return self._from(self._past(position))

    def at_time(self, time_ns: int) -> IndexEntry | None:
        """Return the first entry that is not earlier than ``time_ns``. Rows with that time or a later one come after it."""
        return self._from(self._first(lambda entry: entry.time_ns >= time_ns))

    def before_time(self, time_ns: int) -> IndexEntry | None:
        """Return the last entry that is earlier than ``time_ns``. Reading from it finds everything recorded since then."""
        return self._before(self._first(lambda entry: entry.time_ns >= time_ns))

    def within(self, messages: int, position: int) -> IndexEntry | None:
        """Return the last entry that is not past ``position`` and has at most ``messages`` messages before it."""
        return self._before(self._first(lambda entry: entry.messages > messages or entry.position > position))

    def around(self, start: int, end: int) -> list[IndexEntry]:
        """Return the entries from the last one not past ``start`` to the first one not before ``end``."""
        return [IndexEntry(*values) for values in _ENTRY.iter_unpack(self._packed(start, end))]

    def times_around(self, start: int, end: int) -> tuple[memoryview, memoryview]:
        """Return the entries of ``around`` as two 64-bit columns: their positions, and their times in ns."""
        words = memoryview(self._packed(start, end)).cast("q")
        return words[0 :: ENTRY_LENGTH // 8], words[1 :: ENTRY_LENGTH // 8]

    def sessions_around(self, start: int, end: int) -> tuple[memoryview, memoryview]:
        """Return the positions of the entries of ``around``, and the session of the frames before each; 0 in older files."""
        packed = memoryview(self._packed(start, end))
        return packed.cast("q")[0 :: ENTRY_LENGTH // 8], packed.cast("i")[7 :: ENTRY_LENGTH // 4]

    def inside(self, start: int, end: int, most: int) -> tuple[int, bytes]:
        """Return the entries from ``start`` up to, but not including, ``end``, and at most ``most`` of them.

        The result is the number of the first entry, and the bytes of the entries as in the file.
        """
        first = self._first(lambda entry: entry.position >= start)
        last = self._first(lambda entry: entry.position >= end)
        return first, self._read(first, min(last, first + most)) if first < last else b""

    def _packed(self, start: int, end: int) -> bytes:
        first = max(self._past(start) - 1, 0)
        last = min(self._first(lambda entry: entry.position >= end) + 1, self.count)
        if last < first:
            raise RecordingError(f"{self._name}: its entries {last} to {first} are out of order")
        return self._read(first, last)

    def _past(self, position: int) -> int:
        return self._first(lambda entry: entry.position > position)

    def _first(self, holds: Callable[[IndexEntry], bool]) -> int:
        """Return the number of the first entry for which the monotone ``holds`` is true, or ``count`` if there is none."""
        return bisect_left(range(self.count), True, key=lambda index: holds(self.at(index)))

    def _from(self, index: int) -> IndexEntry | None:
        return self.at(index) if index < self.count else None

    def _before(self, index: int) -> IndexEntry | None:
        return self.at(index - 1) if index else None

    def _entry(self, index: int) -> IndexEntry | None:
        return _decoded(self._read(index, index + 1))

    def at(self, index: int) -> IndexEntry:
        """Return an entry by number."""
        entry = self._entry(index)
        if entry is None:
            raise RecordingError(f"{self._name} ends before its entry {index}")
        if entry.position < 0 or entry.position % FRAME_ALIGNMENT or entry.messages < 0:
            raise RecordingError(f"{self._name}: its entry {index} has an invalid position, {entry.position}")
        return entry


class LocalIndex(RecordingIndex):
    """The index of a local recording, which is always up to date. The file is closed together with this object.

    ``fd`` is its descriptor if the caller has opened it, and then belongs to this object.
    """

    has_file = True

    def __init__(self, directory: Path, recording_id: int, fd: int | None = None) -> None:
        path = index_file(directory, recording_id)
        self._name = str(path)
        try:
            opened = path if fd is None else fd
            self._file = open(opened, "rb", buffering=0, opener=open_regular)  # noqa: SIM115 - closed with this object
        except OSError as error:
            raise RecordingError(f"{path}: {error.strerror}") from error
        self._fd = self._file.fileno()
        try:
            _, self.origin, _ = _header(self._name, os.pread(self._fd, HEADER_LENGTH, 0), recording_id)
            self._map = GuardedMap(self._fd, HEADER_LENGTH)
        except CorruptIndexError:
            self._file.close()
            raise
        except ValueError:
            self._file.close()
            raise CorruptIndexError(f"{path} was cut short while it was opened") from None
        # This reads eight bytes in one aligned load. struct would assemble them from parts.
        self._words = memoryview(self._map).cast("q")

    @property
    def recorded_position(self) -> int:
        position = self._words[RECORDED_POSITION_OFFSET // 8]
        _check_whole(self._map, self._name)
        return _checked(self._name, position)

    @property
    def life(self) -> StreamLife:
        life = _lives(*self._words[4:8])[1]
        _check_whole(self._map, self._name)
        return life

    @property
    def recorded_time_ns(self) -> int:
        """The epoch time of the last write, or 0 if a restarted recorder has not written anything yet."""
        time_ns = self._words[RECORDED_TIME_OFFSET // 8]
        _check_whole(self._map, self._name)
        return time_ns

    def _read(self, first: int, last: int) -> bytes:
        return os.pread(self._fd, (last - first) * ENTRY_LENGTH, HEADER_LENGTH + first * ENTRY_LENGTH)

    def _written(self) -> int:
        return max(os.fstat(self._fd).st_size - HEADER_LENGTH, 0) // ENTRY_LENGTH

    def close(self) -> None:
        self._words.release()
        self._map.close()
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_words"):
            self.close()


def open_index(directory: Path, descriptor: RecordingDescriptor) -> LocalIndex | None:
    """Return the index of a local recording, or None if it is missing or corrupt, or if an archive extended the recording."""
    if not index_file(directory, descriptor.recording_id).exists():
        return None
    try:
        index = LocalIndex(directory, descriptor.recording_id)
        if index.recorded_position >= 0 and index.origin == descriptor.origin:
            return index
    except CorruptIndexError as error:
        warn_without_index(error)
        return None
    index.close()
    return None


def warn_without_index(error: CorruptIndexError) -> None:
    """Log, once, that a recording is read without its index."""
    warn_once(log, f"{error}: the recording is read by its frames, without times and checksums")


def damage_of(directory: Path, recording_id: int) -> str:
    """Return what is wrong with a local recording's index; an empty string if it is valid or missing."""
    try:
        with closing(LocalIndex(directory, recording_id)) as index:
            assert index.recorded_position >= 0
    except CorruptIndexError as error:
        return str(error)
    except RecordingError:
        return ""
    return ""


def recorded_position(directory: Path, recording_id: int, *, origin: StreamLife | None = None) -> int | None:
    """Return the recorded position of a local recording without opening a reader.

    Returns None if the index file is missing, corrupt, or of another origin. The file is read until two successive reads agree,
    because a plain read of eight bytes is not atomic.
    """
    path = index_file(directory, recording_id)
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror}") from error
    try:
        header, again = os.pread(fd, HEADER_LENGTH, 0), b""
        while len(header) == HEADER_LENGTH and header != again:
            header, again = os.pread(fd, HEADER_LENGTH, 0), header
    finally:
        os.close(fd)
    try:
        position, stored_origin, _ = _header(str(path), header, recording_id)
        return _checked(str(path), position) if origin in (None, stored_origin) else None
    except CorruptIndexError as error:
        warn_without_index(error)
        return None


def _header(name: str, data: bytes, recording_id: int) -> tuple[int, StreamLife, StreamLife]:
    """Return the recorded position, the origin and the life in a file's header. Raises CorruptIndexError."""
    if len(data) < HEADER_LENGTH:
        raise CorruptIndexError(f"{name} has only {len(data)} bytes")
    magic, stored_id, position, _, *lives = _HEADER.unpack_from(data)
    if magic != MAGIC or stored_id != recording_id:
        raise CorruptIndexError(f"{name} is not the index of recording {recording_id}")
    return position, *_lives(*lives)


def _check_whole(mapped: GuardedMap, name: Path | str) -> None:
    if mapped.was_cut:
        raise CorruptIndexError(f"{name} was cut short by another process")


def _lives(*words: int) -> tuple[StreamLife, StreamLife]:
    """Return the origin and the life in a header. In files of earlier versions they are zeros."""
    origin, life = StreamLife(*words[:2]), StreamLife(*words[2:])
    return (NO_LIFE, NO_LIFE) if not any(words) else (origin, life)


class StoredIndex(RecordingIndex):
    """The index of a recording in a store: the header as of the last ``refresh``, and blocks of entries on demand.

    The header is read before the entries. All entries before the recorded position exist by then.
    """

    def __init__(
        self, name: str, recording_id: int, read: Callable[[int, int], bytes], size: Callable[[], int]
    ) -> None:
        """``read(start, end)`` reads bytes of the file ``name``, and ``size()`` its size."""
        self._name, self._recording_id = name, recording_id
        self._read_file, self._size_of_file = read, size
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._recorded = self._size = 0
        self.refresh()

    def refresh(self) -> None:
        """Read the header again. Raises FileNotFoundError and CorruptIndexError."""
        first = self._read_file(0, BLOCK_LENGTH)
        recorded, self.origin, self._life = _header(self._name, first, self._recording_id)
        self._recorded = _checked(self._name, recorded)
        self._size = len(first) if len(first) < BLOCK_LENGTH else self._size_of_file()
        # A block that was not full can have more entries now.
        self._blocks = OrderedDict((at, block) for at, block in self._blocks.items() if len(block) == BLOCK_LENGTH)
        self._blocks[0] = first

    @property
    def recorded_position(self) -> int:
        return self._recorded

    @property
    def life(self) -> StreamLife:
        return self._life

    def _block(self, at: int) -> bytes:
        block = self._blocks.get(at)
        if block is None:
            block = self._read_file(at, at + BLOCK_LENGTH)
            self._blocks[at] = block
            if len(self._blocks) > MAX_BLOCKS:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(at)
        return block

    def _read(self, first: int, last: int) -> bytes:
        start, end = HEADER_LENGTH + first * ENTRY_LENGTH, HEADER_LENGTH + last * ENTRY_LENGTH
        at = start // BLOCK_LENGTH * BLOCK_LENGTH
        if end <= at + BLOCK_LENGTH:
            return self._block(at)[start - at : end - at]
        return self._read_file(start, end)

    def _written(self) -> int:
        return max(self._size - HEADER_LENGTH, 0) // ENTRY_LENGTH

    def close(self) -> None: ...


def _checked(name: str, position: int) -> int:
    if not 0 <= position <= MAX_POSITION or position % FRAME_ALIGNMENT:
        raise CorruptIndexError(f"{name}: the recorded position {position} is not a frame boundary")
    return position


def _decoded(data: bytes) -> IndexEntry | None:
    return IndexEntry(*_ENTRY.unpack(data)) if len(data) == ENTRY_LENGTH else None


def _entry(fd: int, index: int) -> IndexEntry | None:
    """Return an entry by number, or None past the end of the file."""
    return _decoded(os.pread(fd, ENTRY_LENGTH, HEADER_LENGTH + index * ENTRY_LENGTH))


def _entries_until(count: int, entry_at: Callable[[int], IndexEntry | None], position: int) -> int:
    def is_past(index: int) -> bool:
        # An entry that a restarting recorder has just removed was past the position.
        entry = entry_at(index)
        return entry is None or entry.position > position

    return bisect_left(range(count), True, key=is_past)
