"""What recorders, shippers and tables do to files, in one place: the simulator replaces it by a disk that breaks.

Each call is one step: whatever ends the program, a step has been done as a whole, in part (``write``), or not at all. When the
machine itself goes down there is what was flushed: of a file by ``sync``, of names (created, renamed, linked, deleted) by
``sync_directory``. Anything else may be there or not, each page and each name by itself.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from mainstem._internal.file_modes import MAX_MODE, create_file, make_directory
from mainstem.errors import RecordingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Data without times where the system can do that.
SYNC: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


NOT_FLUSHED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL)
BOOT_FILE = "/proc/sys/kernel/random/boot_id"


class Disk:
    """The files of the operating system."""

    def boot(self) -> bytes:
        """What tells this start of the machine from all others; empty where nothing does."""
        try:
            with open(BOOT_FILE, "rb") as file:
                return file.read(64)
        except OSError:
            return b""

    def open(self, path: Path) -> int:
        """Open a file for reading and writing, creates it where it is missing, and return its descriptor.

        Raises RecordingError for what is not a file; OSError where the disk refuses.
        """
        try:
            return create_file(path, os.O_RDWR)
        except IsADirectoryError as error:
            raise RecordingError(f"{path}: {error.strerror}") from error

    def open_whole(self, path: Path, header: bytes, *, durable: bool = False) -> int:
        """As ``open``; a file that is missing or shorter than its header has it from its first moment.

        A reader may come at any time, so the header is written under another name first; with ``durable`` it is on the device
        before the name is, and both are when this returns.
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
                self.sync_directory(path.parent)
        return self.open(path)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of the bytes at an offset. Raises OSError where the disk refuses; some of them may be written by then."""
        done, length = 0, len(data)
        while done < length:
            done += self.write_some(fd, data[done:] if done else data, offset + done)

    def write_some(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """Write some of the bytes, at least one, and return how many."""
        return os.pwrite(fd, data, offset)

    def resize(self, fd: int, length: int) -> None:
        """Cut a file, or make it longer by zeros."""
        os.ftruncate(fd, length)

    def rename(self, path: Path, target: Path) -> None:
        path.replace(target)

    def link(self, path: Path, target: Path) -> None:
        """Give a file another name too. Raises FileExistsError where something has it."""
        os.link(path, target)

    def delete(self, path: Path) -> None:
        path.unlink()

    def sync(self, fd: int) -> None:
        """Wait until the content of a file is on the device, what was stored into its mapped memory included."""
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
        """As ``sync_directory``, of a directory and all above it: whoever has made those may have died before they were durable.

        Those that this user may not read, or that cannot be flushed, are as they are.
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
