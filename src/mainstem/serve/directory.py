"""The directory that is served: its catalog, its positions, and its files by their exact names.

A file is opened by a name that matches the pattern of one of the three kinds of files, below a descriptor of the directory, and
never through a symbolic link: nothing that a request says is joined to a path. A recorder may write meanwhile, and the directory
may be replaced by another one. So the order of reading is fixed:

1. a file is opened before the catalog is read that describes it: a directory that was recreated writes its catalog first, so
   what is opened under an old catalog is an old file;
2. the recorded position is read before the bytes up to it are.

``identity_tag`` of a recording's file is the same for as long as it is that recording's, while it grows too. What lies before the
recorded position never changes under one tag.
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
from mainstem.recording.archive import IDENTITY_FILE, MAX_IDENTITY_LENGTH
from mainstem.recording.catalog import CATALOG_FILE, NULL, RecordingDescriptor, decode_catalog
from mainstem.recording.index import HEADER_LENGTH, RECORDED_POSITION_OFFSET, LocalIndex, index_file
from mainstem.recording.segments import first_segment_base
from mainstem.recording.served import identity_tag

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem._internal.clock import Clock

# Canonical decimal numbers of at most 19 digits: each file has one name.
_NUMBER = r"(?:0|[1-9][0-9]{0,18})"
_SEGMENT = re.compile(rf"({_NUMBER})-({_NUMBER})\.rec", re.ASCII)
_POSITIONS = re.compile(rf"({_NUMBER})\.mainstem-positions", re.ASCII)
# Two changes within one tick of the kernel's clock have one time: a file that was written just now is read again.
SETTLED_NS = 1_000_000_000
# Positions that are mapped at once; each takes two descriptors.
MAX_MAPPED_POSITIONS = 128
NO_CATALOG = "the directory holds no recordings (yet): it has no catalog"
# Of about three hundred recordings; a longer catalog is read in a thread, so that other requests go on.
SHORT_CATALOG = 64 << 10


class NotServedError(Exception):
    """There is no such file to be served; the message is for the peer and holds no path."""


class TooManyFilesError(Exception):
    """The directory has more files than are listed."""


@dataclass(frozen=True, slots=True)
class CatalogView:
    """The catalog as it was at one moment. ``tag`` differs when any byte of it does."""

    descriptors: tuple[RecordingDescriptor, ...]
    by_id: dict[int, RecordingDescriptor]
    tag: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ServedFile:
    """A file that may be sent; ``tag`` is its entity tag.

    ``recorded_position`` was read before ``size`` and before any byte; None of a recording without positions. ``head`` replaces
    the file's first bytes: those that hold the position, so that it is never one that is half written.
    """

    size: int
    tag: str
    recorded_position: int | None = None
    head: bytes = b""


class ServedDirectory:
    """One directory of recordings, read only. Used by one thread, except ``names``."""

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
        """The catalog as it is now. Raises NotServedError and RecordingError."""
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
        """Whether ``catalog`` takes no time to speak of: it has not changed, or it is short."""
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
        """The file with the identity of the archive. Raises NotServedError if there is none."""
        with open(self._open_regular(IDENTITY_FILE), "rb") as file:
            return file.read(MAX_IDENTITY_LENGTH)

    # -- positions ---------------------------------------------------------------------------------------------------

    def recorded_position(self, descriptor: RecordingDescriptor) -> int | None:
        """Everything of the recording before it is written. Raises RecordingError."""
        if descriptor.stop_position != NULL:
            return descriptor.stop_position
        reader = self._positions_of(descriptor.recording_id)
        if reader is None or reader.origin != descriptor.origin:
            return None
        return reader.recorded_position

    def _positions_of(self, recording_id: int) -> LocalIndex | None:
        path = index_file(self.path, recording_id)
        try:
            inode = os.stat(path).st_ino
        except OSError:
            self._forget(recording_id)
            return None
        mapped = self._positions.get(recording_id)
        if mapped is not None and mapped[0] == inode:
            self._positions.move_to_end(recording_id)
            return mapped[1]
        self._forget(recording_id)
        reader = LocalIndex(self.path, recording_id)
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
        """Open a file by its name, before the catalog is read that describes it; ``described`` checks it against that."""
        if _SEGMENT.fullmatch(name) is None and _POSITIONS.fullmatch(name) is None:
            raise NotServedError("there is no such file")
        return self._open_regular(name)

    def described(self, fd: int, name: str, view: CatalogView) -> ServedFile:
        """What an open file is, by a catalog that was read after it was opened. Raises NotServedError and RecordingError."""
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
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fd = os.open(name, flags, dir_fd=directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise NotServedError(f"{name} is not here: it was deleted, or never written") from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise NotServedError(f"{name} is not here: it is not a regular file")
        return fd

    def _positions_head(self, fd: int, descriptor: RecordingDescriptor) -> bytes:
        """The header, with the position that was read by one load before the entries are."""
        head = bytearray(os.pread(fd, HEADER_LENGTH, 0))
        reader = self._positions_of(descriptor.recording_id)
        if len(head) == HEADER_LENGTH and reader is not None:
            at = RECORDED_POSITION_OFFSET
            head[at : at + 8] = reader.recorded_position.to_bytes(8, "little", signed=True)
        return bytes(head)

    # -- the list of files -------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The names of all files that are served, sorted; read again when the directory has changed. May run in a thread."""
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
        """Names, sizes and times in ns of the files after a name that start with a prefix, and whether there are more."""
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
