"""The directory that is served: its catalog, its positions, and its files by their exact names.

A file is opened only if its name matches the pattern of a served kind of file, relative to a descriptor of the directory, and never
through a symbolic link. So no part of a request is ever joined to a path. A recorder can be writing, and the directory can be
replaced by another one at any time. So the order of reads is fixed:

1. A file is opened before the catalog that describes it is read. A directory that is recreated writes its catalog first, so a file
   that is described by an old catalog is an old file.
2. The recorded position is read before the bytes up to it.

The ``identity_tag`` of a recording's file stays the same as long as the file belongs to that recording, even while it grows. Bytes
before the recorded position never change under the same tag.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_MS
from mainstem._internal.regular_files import open_regular
from mainstem.recording.archive import IDENTITY_FILE, MAX_IDENTITY_LENGTH
from mainstem.recording.catalog import CATALOG_FILE, NULL, RecordingDescriptor, decode_catalog
from mainstem.recording.index import HEADER_LENGTH, RECORDED_POSITION_OFFSET, LocalIndex, index_file
from mainstem.recording.segments import first_segment_base
from mainstem.recording.served_archive import identity_tag

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem._internal.clock import Clock

# Canonical decimal numbers of at most 19 digits, so that each file has one name.
_NUMBER = r"(?:0|[1-9][0-9]{0,18})"
_SEGMENT = re.compile(rf"({_NUMBER})-({_NUMBER})\.rec", re.ASCII)
_POSITIONS = re.compile(rf"({_NUMBER})\.mainstem-positions", re.ASCII)
# Two changes within the resolution of the kernel's clock have the same time, so a file that was just written is read again.
SETTLED_NS = 1_000_000_000
# The number of index files that are mapped at once. Each needs two descriptors.
MAX_MAPPED_POSITIONS = 128
NO_CATALOG = "the directory holds no recordings (yet): it has no catalog"
# The size of a catalog with about 300 recordings. A longer one is read in a thread, so that other requests are not delayed.
SHORT_CATALOG = 64 << 10


class NotServedError(Exception):
    """The requested file does not exist. The message is for the peer and contains no path of the server."""


class TooManyFilesError(Exception):
    """The directory has more files than the server lists."""


@dataclass(frozen=True, slots=True)
class CatalogView:
    """The catalog at one moment. ``tag`` changes if any byte of the catalog changes."""

    descriptors: tuple[RecordingDescriptor, ...]
    by_id: dict[int, RecordingDescriptor]
    tag: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ServedFile:
    """A file that can be sent. ``tag`` is its entity tag.

    ``recorded_position`` was read before ``size`` and before any byte; it is None if the recording has no index. ``head`` replaces
    the first bytes of an index file, which include the position, so that the position is never half written.
    """

    size: int
    tag: str
    recorded_position: int | None = None
    head: bytes = b""


class ServedDirectory:
    """One directory of recordings, read-only. Only one thread may use it, except for ``names``."""

    def __init__(self, path: Path, clock: Clock, *, listed_files: int) -> None:
        self.path = path
        self._clock = clock
        self._listed_files = listed_files
        self._view: CatalogView | None = None
        self._view_key: tuple[int, ...] = ()
        self._positions: OrderedDict[int, tuple[int, LocalIndex]] = OrderedDict()
        self._names: list[str] = []
        self._names_key: tuple[int, ...] = ()

    def close(self) -> None:
        while self._positions:
            self._positions.popitem()[1][1].close()

    # -- the catalog -------------------------------------------------------------------------------------------------

    def catalog(self) -> CatalogView:
        """Return the current catalog. Raises NotServedError and RecordingError."""
        key, settled = self._catalog_key()
        if self._view is not None and settled and key == self._view_key:
            return self._view
        data, last = self._catalog_bytes(), self._view
        if last is None or data != last.data:
            known = {} if last is None else {each.entry_offset: each for each in last.descriptors}
            before = b"" if last is None else last.data
            descriptors = tuple(decode_catalog(data, str(self.path / CATALOG_FILE), before=before, known=known))
            tag = hashlib.sha256(data).hexdigest()[:32]
            self._view = last = CatalogView(descriptors, {each.recording_id: each for each in descriptors}, tag, data)
        self._view_key = key if settled else ()
        return last

    def is_cheap(self) -> bool:
        """Return whether ``catalog`` returns quickly: the catalog has not changed, or it is short."""
        key, settled = self._catalog_key()
        return key[2] <= SHORT_CATALOG or (settled and key == self._view_key)

    def _catalog_key(self) -> tuple[tuple[int, ...], bool]:
        try:
            status = os.stat(self.path / CATALOG_FILE, follow_symlinks=False)
        except OSError as error:
            raise NotServedError(NO_CATALOG) from error
        settled = self._clock.epoch_ms() * NS_PER_MS - status.st_mtime_ns > SETTLED_NS
        return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns), settled

    def _catalog_bytes(self) -> bytes:
        try:
            fd = self._open_regular(CATALOG_FILE)
        except NotServedError:
            raise NotServedError(NO_CATALOG) from None
        with open(fd, "rb") as file:
            return file.read()

    def identity_bytes(self) -> bytes:
        """Return the file with the identity of the archive. Raises NotServedError if it does not exist."""
        with open(self._open_regular(IDENTITY_FILE), "rb") as file:
            return file.read(MAX_IDENTITY_LENGTH)

    # -- positions ---------------------------------------------------------------------------------------------------

    def recorded_position(self, descriptor: RecordingDescriptor) -> int | None:
        """Return the position before which everything is written, or None if unknown. Raises RecordingError."""
        if descriptor.stop_position != NULL:
            return descriptor.stop_position
        reader = self._positions_of(descriptor.recording_id)
        if reader is None or reader.origin != descriptor.origin:
            return None
        return reader.recorded_position

    def _positions_of(self, recording_id: int) -> LocalIndex | None:
        name = index_file(self.path, recording_id).name
        mapped = self._positions.get(recording_id)
        try:
            inode = os.stat(self.path / name, follow_symlinks=False).st_ino
            if mapped is not None and mapped[0] == inode:
                self._positions.move_to_end(recording_id)
                return mapped[1]
            fd = self._open_regular(name)
        except (OSError, NotServedError):
            self._forget(recording_id)
            return None
        self._forget(recording_id)
        # The name may refer to another file by now, so ask the open one.
        inode = os.fstat(fd).st_ino
        reader = LocalIndex(self.path, recording_id, fd)
        self._positions[recording_id] = (inode, reader)
        if len(self._positions) > MAX_MAPPED_POSITIONS:
            self._positions.popitem(last=False)[1][1].close()
        return reader

    def _forget(self, recording_id: int) -> None:
        mapped = self._positions.pop(recording_id, None)
        if mapped is not None:
            mapped[1].close()

    # -- files -------------------------------------------------------------------------------------------------------

    def open_file(self, name: str) -> int:
        """Open a file by its name. Call this before reading the catalog that is passed to ``described``."""
        if _SEGMENT.fullmatch(name) is None and _POSITIONS.fullmatch(name) is None:
            raise NotServedError("there is no such file")
        return self._open_regular(name)

    def described(self, fd: int, name: str, view: CatalogView) -> ServedFile:
        """Describe an open file, using a catalog that was read after the file was opened.

        Raises NotServedError if the file belongs to no recording in the catalog, and RecordingError if an index file is corrupt.
        """
        segment, positions = _SEGMENT.fullmatch(name), _POSITIONS.fullmatch(name)
        match = segment or positions
        assert match is not None, "open_file has checked the name"
        descriptor = view.by_id.get(int(match[1]))
        if descriptor is None or (segment is not None and not _is_base(descriptor, int(segment[2]))):
            raise NotServedError(f"{name} does not belong to a recording in the catalog")
        recorded = self.recorded_position(descriptor)
        head = b"" if segment else self._positions_head(fd, descriptor)
        return ServedFile(os.fstat(fd).st_size, identity_tag(descriptor, name), recorded, head)

    def _open_regular(self, name: str) -> int:
        try:
            directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return open_regular(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise NotServedError(f"{name} is not here: it was deleted or never written, or is no file") from error

    def _positions_head(self, fd: int, descriptor: RecordingDescriptor) -> bytes:
        """Return the header of an index file, with the position that was read in one load, before the entries are read."""
        head = bytearray(os.pread(fd, HEADER_LENGTH, 0))
        reader = self._positions_of(descriptor.recording_id)
        if len(head) == HEADER_LENGTH and reader is not None:
            at = RECORDED_POSITION_OFFSET
            head[at : at + 8] = reader.recorded_position.to_bytes(8, "little", signed=True)
        return bytes(head)

    # -- the list of files -------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of all served files, sorted. The directory is listed again if it has changed. May run in a thread."""
        try:
            status = os.stat(self.path)
            key = (status.st_dev, status.st_ino, status.st_mtime_ns)
            if key == self._names_key:
                return self._names
            names = []
            with os.scandir(self.path) as entries:
                for entry in entries:
                    name = entry.name
                    if name in (CATALOG_FILE, IDENTITY_FILE) or _SEGMENT.fullmatch(name) or _POSITIONS.fullmatch(name):
                        names.append(name)
                        if len(names) > self._listed_files:
                            raise TooManyFilesError
        except OSError as error:
            raise NotServedError("the directory is not here") from error
        names.sort()
        settled = self._clock.epoch_ms() * NS_PER_MS - status.st_mtime_ns > SETTLED_NS
        self._names, self._names_key = names, key if settled else ()
        return names

    def page(self, names: list[str], prefix: str, after: str, limit: int) -> tuple[list[tuple[str, int, int]], bool]:
        """Return the files after the name ``after`` that start with ``prefix``, and whether there are more.

        Files are returned with their name, size and time in ns.
        """
        first = max(bisect_left(names, prefix), bisect_right(names, after))
        rows: list[tuple[str, int, int]] = []
        for index in range(first, len(names)):
            if not names[index].startswith(prefix):
                break
            if len(rows) == limit:
                return rows, True
            with suppress(OSError):
                status = os.stat(self.path / names[index], follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    rows.append((names[index], status.st_size, status.st_mtime_ns))
        return rows, False


def _is_base(descriptor: RecordingDescriptor, base: int) -> bool:
    first = first_segment_base(descriptor)
    return base >= first and (base - first) % descriptor.segment_file_length == 0
