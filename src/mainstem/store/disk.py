"""The file operations of recorders, shippers and tables, in one place, so that the simulator can replace them by a faulty disk.

Each call is one step. However the process ends, a step was done completely, partly (``write``), or not at all. If the host itself
crashes, what was flushed is preserved: the contents of a file by ``sync``, and names that were created, renamed, linked or deleted
by ``sync_directory``. Of everything else, each page and each name can be preserved or lost individually.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstem._internal.file_modes import MAX_MODE, create_file, make_directory
from mainstem.errors import RecordingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Flushes only data and not times, if the system can do that.
SYNC: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


NOT_FLUSHED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL)
BOOT_FILE = "/proc/sys/kernel/random/boot_id"


class Disk:
    """The files of the operating system."""

    def boot(self) -> bytes:
        """Return an id of this boot of the host, or empty bytes if the system has none."""
        try:
            with open(BOOT_FILE, "rb") as file:
                return file.read(64)
        except OSError:
            return b""

    def open(self, path: Path) -> int:
        """Open a file for reading and writing, create it if it is missing, and return its descriptor.

        Raises RecordingError if the path is a directory, and OSError if the operation fails.
        """
        try:
            return create_file(path, os.O_RDWR)
        except IsADirectoryError as error:
            raise RecordingError(f"{path}: {error.strerror}") from error

    def open_whole(self, path: Path, header: bytes, *, durable: bool = False) -> int:
        """Like ``open``, but a file that is missing or shorter than its header is created with the header in it.

        Readers can open the file at any time, so the header is first written under another name. With ``durable``, it is on the
        device before the name is, and both are on the device when this returns.
        """
        if not path.exists() or path.stat().st_size < len(header):
            fresh = path.with_name(f"{path.name}.new")
            fd = self.open(fresh)
            try:
                self.resize(fd, 0)
                self.write(fd, header, 0)
                if durable:
                    self.sync(fd)
            finally:
                self.close(fd)
            self.rename(fresh, path)
        if durable:
            # Also if the file exists: whoever renamed it may have failed here.
            self.sync_directory(path.parent)
        return self.open(path)

    def create_once(self, path: Path, fresh: Path, data: bytes, *, length: int = 0) -> None:
        """Create a file of ``data``, and of at least ``length`` bytes, unless it exists.

        It is first written as ``fresh``, so that of several processes one succeeds, and its contents are on the device before its
        name is.
        """
        fd = self.open(fresh)
        try:
            if length:
                self.resize(fd, length)
            self.write(fd, data, 0)
            self.sync(fd)
        finally:
            self.close(fd)
        try:
            with suppress(FileExistsError):
                self.link(fresh, path)
        finally:
            self.delete(fresh)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write all bytes at an offset. Raises OSError if that fails; some of the bytes can be written then."""
        done, length = 0, len(data)
        while done < length:
            done += self.write_some(fd, data[done:] if done else data, offset + done)

    def write_some(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """Write some of the bytes, at least one, and return their number."""
        return os.pwrite(fd, data, offset)

    def resize(self, fd: int, length: int) -> None:
        """Truncate a file, or extend it with zeros."""
        os.ftruncate(fd, length)

    def rename(self, path: Path, target: Path) -> None:
        path.replace(target)

    def link(self, path: Path, target: Path) -> None:
        """Give a file an additional name. Raises FileExistsError if the name is taken."""
        os.link(path, target)

    def delete(self, path: Path) -> None:
        path.unlink()

    def sync(self, fd: int) -> None:
        """Wait until the contents of a file are on the device, including what was stored into its mapped memory."""
        SYNC(fd)

    def make_directory(self, path: Path, *, default: int = MAX_MODE, mode: int | None = None, group: str = "") -> None:
        make_directory(path, default=default, mode=mode, group=group)

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_path(self, path: Path) -> None:
        """Like ``sync_directory``, for a directory and all of its parents, whose creator may have died before they were durable.

        Parents that this user may not read, or that cannot be flushed, are skipped.
        """
        self.sync_directory(path)
        for each in path.absolute().parents:
            try:
                self.sync_directory(each)
            except OSError as error:
                if error.errno not in NOT_FLUSHED:
                    raise

    def close(self, fd: int) -> None:
        os.close(fd)


DISK = Disk()
