"""A recorder's directory as its shipper sees it: identity, lock, journal, the end of each recording, and chunks to ship.

It is read without a lock, like by any other reader. Nothing stays open between two calls.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
import zlib
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._core.log.columns import FrameWalk
from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem._internal.file_modes import create_file
from mainstem.errors import RecordingError
from mainstem.recording.archive import IDENTITY_FILE, find_end, local_archive
from mainstem.recording.catalog import CATALOG_FILE, NULL, read_catalog
from mainstem.recording.index import ENTRY_LENGTH, LocalIndex, open_index, recorded_position
from mainstem.recording.reader import RecordingReader
from mainstem.recording.segments import checksum, segment_base, segments_of, stored_runs
from mainstem.recording.shipping.chunks import MALFORMED, UNKNOWN
from mainstem.recording.shipping.layout import is_archive_id, nonce
from mainstem.recording.shipping.manifest import garbage_names
from mainstem.recording.shipping.page_tree import between
from mainstem.store.disk import DISK, Disk

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.shipping.manifest import Manifest, ManifestLog

# -- the archive's identity, and the lock of its shipper ---------------------------------------------------------------


LOCK_FILE = "mainstem-shipper.lock"


@dataclass(frozen=True, slots=True)
class ArchiveIdentity:
    """The identity of an archive. ``id`` stays the same if the directory is moved; ``host`` is the host that created it."""

    id: str
    host: str


def identity_of(directory: Path, disk: Disk = DISK) -> ArchiveIdentity:
    """Return the identity of a directory, and create it if it is missing. Raises RecordingError if its file is invalid."""
    path = directory / IDENTITY_FILE
    if not path.exists():
        # The names of shipped objects begin with this id, so it must survive a power failure. If two processes create it at once,
        # both read the result of one.
        fresh = directory / f".{IDENTITY_FILE}.{nonce()}.new"
        disk.create_once(path, fresh, (json.dumps({"id": nonce(), "host": platform.node()}) + "\n").encode())
        disk.sync_directory(directory)
    try:
        value = json.loads(path.read_text())
        identity = ArchiveIdentity(str(value["id"]), str(value["host"]))
    except MALFORMED as error:
        raise RecordingError(f"{path} is not an archive identity: {error}") from error
    if not is_archive_id(identity.id):
        raise RecordingError(f"{path}: {identity.id!r} is not an archive id")
    return identity


class ShipperLock:
    """Keeps other shippers out of a directory until it is closed or the process dies."""

    def __init__(self, directory: Path) -> None:
        path = directory / LOCK_FILE
        self._fd = DISK.open(path)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            other = os.pread(self._fd, 1024, 0).decode("utf-8", "replace").strip()
            os.close(self._fd)
            raise RecordingError(f"{directory} is already being shipped by {other or 'another process'}") from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


# The maximum number of index entries in a chunk: 2 MiB. A stream with one message per 100 ms has more index than frames.
MAX_ENTRIES = 1 << 16
# The time of a file is as coarse as the kernel's clock, so a file that changed recently can change again without a new time.
CATALOG_GRAIN_NS = 2 * NS_PER_SECOND


class LocalCatalog:
    """The catalog of a directory. It is decoded again only if the file has changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: tuple[int, int] | None = None
        self._seen_ns = 0
        self._descriptors: list[RecordingDescriptor] = []

    def recordings(self) -> list[RecordingDescriptor]:
        """Return the current recordings, or an empty list if there is no catalog yet."""
        # The kernel's own clock, because the times of files come from the kernel.
        now_ns = SYSTEM_CLOCK.monotonic_ns()
        try:
            status = (self._directory / CATALOG_FILE).stat()
        except FileNotFoundError:
            return []
        seen = (status.st_mtime_ns, status.st_size)
        if seen != self._seen or now_ns - self._seen_ns < CATALOG_GRAIN_NS:
            self._descriptors = read_catalog(self._directory)
            if seen != self._seen:
                self._seen, self._seen_ns = seen, now_ns
        return self._descriptors


def local_end(directory: Path, descriptor: RecordingDescriptor, known: int) -> int:
    """Return the end of a recording. ``known`` is a frame boundary that it is known to have reached."""
    if descriptor.stop_position != NULL:
        return descriptor.stop_position
    recorded = recorded_position(directory, descriptor.recording_id, origin=descriptor.origin)
    return find_end(local_archive(directory), descriptor, known=known).suspect if recorded is None else recorded


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """A chunk to ship. If ``is_boundary`` is True, a frame ends at ``end``, so the shipped part can end there."""

    start: int
    end: int
    is_boundary: bool
    index: bytes
    before: int
    messages: int
    first_ns: int
    last_ns: int
    has_index: bool


def first_available(directory: Path, descriptor: RecordingDescriptor, position: int) -> int:
    """Return the first position at or after ``position`` whose segment exists, or ``position`` if no such segment exists."""
    step = descriptor.segment_file_length
    bases = [base for base in segments_of(directory, descriptor) if base + step > position]
    return max(position, bases[0]) if bases else position


def next_chunk(
    directory: Path, descriptor: RecordingDescriptor, start: int, end: int, length: int, epoch_ns: int
) -> PlannedChunk:
    """Return the next chunk of ``[start, end)``: within one segment, and at most ``length`` bytes.

    ``epoch_ns`` is the present time. Raises RecordingError if a file of the recording is missing or corrupt.
    """
    limit = min(end, segment_base(descriptor, start) + descriptor.segment_file_length)
    with RecordingReader(local_archive(directory), descriptor) as reader:
        index = reader.index
        if index is None:
            stop, is_boundary = _last_frame(directory, descriptor, start, limit, length)
            return PlannedChunk(start, stop, is_boundary, b"", 0, 0, UNKNOWN, UNKNOWN, has_index=False)
        assert isinstance(index, LocalIndex)
        stop, is_boundary = limit, True
        if limit - start > length:
            near = index.at_or_before(start + length)
            if near is not None and near.position > start:
                stop = near.position
            else:
                stop, is_boundary = _last_frame(directory, descriptor, start, limit, length)
        first, entries = index.inside(start, stop, MAX_ENTRIES + 1)
        if len(entries) > MAX_ENTRIES * ENTRY_LENGTH:
            stop, is_boundary = index.at(first + MAX_ENTRIES).position, True
            entries = entries[: MAX_ENTRIES * ENTRY_LENGTH]
        entry, following = index.at_or_before(start), index.after(stop - 1)
        # This time must not be too early, because retention depends on it.
        last_ns = following.time_ns if following is not None else index.recorded_time_ns or epoch_ns
        first_ns = entry.time_ns if entry is not None else UNKNOWN
        before = reader.messages_before(start)
        messages = max(reader.messages_before(stop) - before, 0) if is_boundary else 0
        return PlannedChunk(start, stop, is_boundary, entries, before, messages, first_ns, last_ns, has_index=True)


def _last_frame(
    directory: Path, descriptor: RecordingDescriptor, start: int, limit: int, length: int
) -> tuple[int, bool]:
    """Return the end of the last whole frame within ``length`` bytes, and True.

    If there is none, return the end of those bytes, and False.
    """
    if limit - start <= length:
        return limit, True
    walk = FrameWalk()
    walk.term_mask = descriptor.term_buffer_length - 1
    walk.run(frames(directory, descriptor, start, start + length), 0, length)
    # A padding frame can be longer than a chunk.
    return (start + walk.offset, True) if walk.offset else (start + length, False)


def frames(directory: Path, descriptor: RecordingDescriptor, start: int, end: int) -> bytes:
    """Return the bytes ``[start, end)`` of one segment. Raises RecordingError if the file is missing or too short."""
    data = b""
    for run in stored_runs(directory, descriptor, start, end):
        data += run
    return data


def checksum_of(directory: Path, descriptor: RecordingDescriptor, start: int, end: int) -> int:
    """Return the current CRC-32 of a chunk ``[start, end)``. Raises RecordingError if a segment is missing."""
    value = checksum(directory, descriptor, start, end)
    # The index as it was shipped, even if an archive that does not write it has extended the recording since.
    with suppress(RecordingError), closing(LocalIndex(directory, descriptor.recording_id)) as index:
        value = zlib.crc32(index.inside(start, end, (end - start) // ENTRY_LENGTH)[1], value)
    return value


def waited_ns(directory: Path, descriptor: RecordingDescriptor, position: int, epoch_ns: int) -> int:
    """Return how long bytes after a position have existed by the wall clock, which the recorder's times come from.

    The result is 0 if that is unknown, or if the recorder's time is later than ``epoch_ns``, the present time.
    """
    index = open_index(directory, descriptor)
    if index is None:
        return 0
    with closing(index):
        entry = index.at_or_before(position)
    return max(epoch_ns - entry.time_ns, 0) if entry is not None else 0


# -- the shipper's journal ---------------------------------------------------------------------------------------------
#
# The journal finds the objects that a killed shipper has put without a manifest that refers to them. If the journal is lost,
# ``mainstem recordings compact --remove-orphans`` finds those objects in a listing.


JOURNAL_FILE = "mainstem-shipper.pending"
MAX_JOURNAL_LENGTH = 1 << 20

_CHUNK = re.compile(r"(\d+)/(\d{20})-(\d{20})-[0-9a-f]{12}\.seg")


class Journal:
    """A file whose first line is the store's URL. The other lines are names of objects, written before the objects are put."""

    def __init__(self, directory: Path, url: str) -> None:
        self._path, self._url = directory / JOURNAL_FILE, url

    def add(self, name: str) -> None:
        """Add a name. It is in the file when this returns."""
        with open(self._path, "a", opener=create_file) as file:
            if file.tell() == 0:
                file.write(f"{self._url}\n")
            file.write(f"{name}\n")

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)

    def delete_unreferred(self, chain: ManifestLog, manifest: Manifest) -> int:
        """Delete the objects named in the journal that nothing refers to. Return their number.

        Objects that compaction or retention has removed are listed as garbage. They stay until their readers have finished.
        """
        try:
            lines = self._path.read_text(errors="replace")[:MAX_JOURNAL_LENGTH].splitlines()
        except FileNotFoundError:
            return 0
        count = 0
        if len(lines) > 1 and lines[0] == self._url:
            dropped = {name for ref in manifest.garbage for name in garbage_names(chain, ref)}
            recordings = chain.recording_pages.all(manifest)
            for match in filter(None, map(_CHUNK.fullmatch, lines[1:])):
                entry = recordings.get(int(match[1]))
                chunks = between(entry.tree, int(match[2]), int(match[3]), chain.pages) if entry is not None else ()
                if match[0] not in dropped and all(chunk.name != match[0] for chunk in chunks):
                    chain.store.delete(f"{chain.archive_id}/{match[0]}")
                    count += 1
        self.clear()
        return count
