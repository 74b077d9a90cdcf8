"""``archive-mark.dat``: ensures that only one process at a time writes to a directory of recordings.

Aeron Archive writes this file, and refuses to start on a directory whose mark is younger than ten seconds. Its tools read it.
Mainstem's recorders do the same, in addition to the lock on ``mainstem-recorder.lock``. The layout is that of ``ArchiveMarkFile``,
schema 100, version 2: an SBE header, a block of 128 bytes, four strings, and an error log from 8 KiB on.

``_claim`` takes over a mark with one atomic addition to its time, so only one of two processes can take over an old mark. The mark
of a dead recorder has ``WRITER`` in place of a local control channel, and the holder of the recorder's lock takes it over
immediately. An archive's mark must be ten seconds old.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from mmap import PROT_READ, PROT_WRITE
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._internal.clock import NS_PER_MS
from mainstem._internal.guarded_map import GuardedMap
from mainstem._internal.regular_files import open_regular
from mainstem.errors import RecordingError
from mainstem.store.disk import DISK, Disk

if TYPE_CHECKING:
    from mainstem._internal.clock import Clock

MARK_FILE = "archive-mark.dat"
LINK_FILE = "archive-mark.lnk"
MARK_VERSION = 3 << 16 | 1 << 8 | 0
LIVENESS_MS = 10_000  # the same as Aeron Archive's: a younger mark is active
UPDATE_MS = 1_000
HEADER_LENGTH = 8 << 10
ERROR_LOG_LENGTH = 1 << 20
PAGE_LENGTH = 4096
WRITER = "mainstem"
NULL = -1

_SBE_HEADER = struct.Struct("<4H")
BLOCK_LENGTH, TEMPLATE_ID, SCHEMA_ID, SCHEMA_VERSION = 128, 200, 100, 2
# Version, time of activity, start time, pid, three stream ids, lengths of header and error log, archive id.
_BLOCK = struct.Struct("<i4xqqq3iii4xq")
_TEXT_LENGTH = struct.Struct("<I")
_VERSION_OFFSET, _ACTIVITY_OFFSET = _SBE_HEADER.size, _SBE_HEADER.size + 8


@dataclass(frozen=True, slots=True)
class Mark:
    """A decoded mark file. ``version`` is 0 while its process starts; ``activity_ms`` is -1 after the process has ended."""

    version: int
    activity_ms: int
    pid: int
    is_recorder: bool
    error_log_length: int = ERROR_LOG_LENGTH

    @classmethod
    def decode(cls, data: bytes) -> Mark:
        """Decode the first ``HEADER_LENGTH`` bytes of a file."""
        _, template, schema, _ = _SBE_HEADER.unpack_from(data)
        # Files with older schemas have no SBE header.
        at = _SBE_HEADER.size if (template, schema) == (TEMPLATE_ID, SCHEMA_ID) else 0
        version, activity_ms, _, pid, *_, header_length, error_log_length, _ = _BLOCK.unpack_from(data, at)
        texts = data[at + BLOCK_LENGTH :]
        is_recorder = at > 0 and WRITER in _local_control_channel(texts)
        if not at or header_length != HEADER_LENGTH or error_log_length < ERROR_LOG_LENGTH:
            error_log_length = ERROR_LOG_LENGTH
        return cls(version, activity_ms, pid, is_recorder, error_log_length)

    def is_active(self, now_ms: int) -> bool:
        """Return whether the mark's process was active within ``LIVENESS_MS``."""
        return now_ms - self.activity_ms < LIVENESS_MS


def read_mark(directory: Path) -> Mark | None:
    """Return the mark of a directory, or None if it is missing or cannot be read."""
    try:
        with open(mark_path(directory), "rb", opener=open_regular) as file:
            data = file.read(HEADER_LENGTH)
    except OSError:
        return None
    return Mark.decode(data) if len(data) == HEADER_LENGTH else None


def _local_control_channel(texts: bytes) -> str:
    (skipped,) = _TEXT_LENGTH.unpack_from(texts)
    at = _TEXT_LENGTH.size + min(skipped, len(texts) - 2 * _TEXT_LENGTH.size)
    (length,) = _TEXT_LENGTH.unpack_from(texts, at)
    at += _TEXT_LENGTH.size
    return texts[at : at + length].decode("ascii", "replace")


def _text(text: str) -> bytes:
    encoded = text.encode("ascii", "replace")
    return _TEXT_LENGTH.pack(len(encoded)) + encoded


@dataclass(frozen=True, slots=True)
class MarkOwner:
    """The owner of the directory, as tools show it: by default a recorder, which has no control channels.

    ``local_control_channel`` names Mainstem, so that the next holder of the recorder's lock need not wait.
    """

    control_stream_id: int = 0
    local_control_stream_id: int = 0
    events_stream_id: int = 0
    archive_id: int = NULL
    control_channel: str = ""
    local_control_channel: str = WRITER
    events_channel: str = ""
    aeron_directory: str = ""


RECORDER = MarkOwner()


def _encode(owner: MarkOwner, activity_ms: int, start_ms: int, error_log_length: int) -> bytes:
    streams = owner.control_stream_id, owner.local_control_stream_id, owner.events_stream_id
    lengths = HEADER_LENGTH, error_log_length
    block = _BLOCK.pack(MARK_VERSION, activity_ms, start_ms, os.getpid(), *streams, *lengths, owner.archive_id)
    header = _SBE_HEADER.pack(BLOCK_LENGTH, TEMPLATE_ID, SCHEMA_ID, SCHEMA_VERSION)
    channels = owner.control_channel, owner.local_control_channel, owner.events_channel
    texts = b"".join(map(_text, (*channels, owner.aeron_directory)))
    return (header + block.ljust(BLOCK_LENGTH, b"\0") + texts).ljust(HEADER_LENGTH, b"\0")


def mark_path(directory: Path) -> Path:
    """Return the path of a directory's mark file: in the directory, or in the one that its link file names."""
    try:
        linked = Path((directory / LINK_FILE).read_text("ascii", "replace").strip())
    except OSError:
        return directory / MARK_FILE
    return linked / MARK_FILE if linked.is_dir() else directory / MARK_FILE


class DirectoryInUse(RecordingError):
    """Another process records into the directory."""


class ArchiveMark:
    def __init__(self, directory: Path, clock: Clock, disk: Disk = DISK, owner: MarkOwner = RECORDER) -> None:
        self._directory, self._clock, self._disk = directory, clock, disk
        self._owner = owner
        self._path = mark_path(directory)
        self._fd = -1
        self._map: GuardedMap | None = None
        self._written_ms = now_ms = clock.epoch_ms()
        self._create(now_ms)
        try:
            self._fd = disk.open(self._path)
            self._claim(now_ms)
        except PermissionError as error:
            self.close()
            raise RecordingError(
                f"{self._path}: {error.strerror}; whoever records there must be able to write it"
            ) from error
        except BaseException:
            self.close()
            raise

    def _create(self, now_ms: int) -> None:
        if self._path.exists():
            return
        link = self._directory / LINK_FILE
        if link.exists():
            # The link names a directory that no longer exists. Tools would look for the mark there.
            self._disk.delete(link)
        fresh = self._path.with_name(f"{MARK_FILE}.new")
        # A mark that is empty after a power failure would look like that of an archive that is starting. If an archive creates its
        # mark in the meantime, `_claim` decides.
        data = _encode(self._owner, now_ms, now_ms, ERROR_LOG_LENGTH)
        self._disk.create_once(self._path, fresh, data, length=HEADER_LENGTH + ERROR_LOG_LENGTH)

    def _claim(self, now_ms: int) -> None:
        data = os.pread(self._fd, HEADER_LENGTH, 0).ljust(HEADER_LENGTH, b"\0")
        mark = Mark.decode(data)
        self._check(mark, now_ms)
        length = -(-(HEADER_LENGTH + mark.error_log_length) // PAGE_LENGTH) * PAGE_LENGTH
        if os.fstat(self._fd).st_size < length:
            self._disk.resize(self._fd, length)
        if not any(data[:PAGE_LENGTH]):
            # Every mapped page needs a disk block. Without one, a full disk would kill the process.
            self._disk.write(self._fd, bytes(PAGE_LENGTH), 0)
        self._map = GuardedMap(self._fd, PAGE_LENGTH, prot=PROT_READ | PROT_WRITE)
        self._words = AtomicBuffer(self._map)
        (seen_ms,) = struct.unpack_from("<q", data, _ACTIVITY_OFFSET)
        # If two processes have read the same time, the first one to add to it owns the directory.
        if self._words.add_i64(_ACTIVITY_OFFSET, now_ms - seen_ms) != seen_ms:
            self._words.add_i64(_ACTIVITY_OFFSET, seen_ms - now_ms)
            raise DirectoryInUse(
                f"{self._directory} is in use: an archive starts there just now; choose another directory"
            )
        self._start_ms, self._error_log_length = now_ms, mark.error_log_length
        self._write(now_ms)

    def _write(self, activity_ms: int) -> None:
        self._disk.write(self._fd, _encode(self._owner, activity_ms, self._start_ms, self._error_log_length), 0)

    def show(self, owner: MarkOwner) -> None:
        """Show another owner to tools, from now on."""
        self._owner = owner
        self._write(self._clock.epoch_ms())

    def _check(self, mark: Mark, now_ms: int) -> None:
        """Raise RecordingError if the mark's process may be alive, or if its archive has another layout version."""
        if mark.version and mark.version >> 16 != MARK_VERSION >> 16:
            raise RecordingError(
                f"{self._directory}: {self._path.name} belongs to an archive of version {mark.version >> 16}, not "
                f"{MARK_VERSION >> 16}; migrate it with its ArchiveTool, or choose another directory"
            )
        if mark.is_recorder:
            return  # this process holds its lock, so that recorder is gone
        activity_ms = mark.activity_ms
        if not mark.version:
            # Its process is starting, or died while starting. It stores the time of activity only when it has started.
            activity_ms = os.fstat(self._fd).st_mtime_ns // NS_PER_MS
        age_ms = now_ms - activity_ms
        if age_ms <= -LIVENESS_MS:
            raise RecordingError(
                f"{self._directory} may be in use: an Aeron Archive (pid {mark.pid}) was active there {-age_ms / 1000:.1f} s in "
                f"the future, says {self._path}: the clock was set back since then; end that archive, or choose another "
                f"directory. If it is gone, delete {self._path.name}, or wait until the clock is past that time"
            )
        if age_ms < LIVENESS_MS:
            raise DirectoryInUse(
                f"{self._directory} is in use: an Aeron Archive (pid {mark.pid}) was active there "
                f"{max(age_ms, 0) / 1000:.1f} s ago, says {self._path}; end that archive, or choose another directory. "
                f"If it is gone, wait {LIVENESS_MS // 1000} s"
            )

    def touch(self) -> None:
        now_ms = self._clock.epoch_ms()
        if abs(now_ms - self._written_ms) >= UPDATE_MS:
            self._written_ms = now_ms
            self._words.put_i64_release(_ACTIVITY_OFFSET, now_ms)
            if self._map is not None and self._map.was_cut:
                raise RecordingError(
                    f"{self._path} was cut short by another process: no program sees this recorder there"
                )

    def end(self) -> None:
        if self._fd >= 0:
            self._words.put_i64_release(_ACTIVITY_OFFSET, NULL)
        self.close()

    def close(self) -> None:
        if self._map is not None:
            self._words.close()
            self._map.close()
            self._map = None
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1
