"""What a recorder does to files, in one place: the simulator replaces it by a disk that fills up, writes short and loses power.

Each call is one step: whatever ends the program, a step has been done as a whole, in part (``write``), or not at all.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mainstem.access import create_file
from mainstem.errors import RecordingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Data without times where the system can do that.
SYNC: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


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
        """Opens a file for reading and writing, creates it where it is missing, and returns its descriptor.

        Raises RecordingError for what is no file; OSError where the disk refuses.
        """
        try:
            return create_file(path, os.O_RDWR)
        except IsADirectoryError as error:
            raise RecordingError(f"{path}: {error.strerror}") from error

    def open_whole(self, path: Path, header: bytes, *, durable: bool = False) -> int:
        """As ``open``; a file that is missing or shorter than its header has it from its first moment.

        A reader may come at any time, so the header is written under another name first; with ``durable`` it is on the device
        before the name is.
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
        return self.open(path)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Writes all of the bytes at an offset. Raises OSError where the disk refuses; some of them may be written by then."""
        done, length = 0, len(data)
        while done < length:
            done += self.write_some(fd, data[done:] if done else data, offset + done)

    def write_some(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """Writes some of the bytes, at least one, and returns how many."""
        return os.pwrite(fd, data, offset)

    def resize(self, fd: int, length: int) -> None:
        """Cuts a file, or makes it longer by zeros."""
        os.ftruncate(fd, length)

    def rename(self, path: Path, target: Path) -> None:
        """Gives a file another name, in place of whatever has it."""
        path.replace(target)

    def delete(self, path: Path) -> None:
        """Deletes a file."""
        path.unlink()

    def sync(self, fd: int) -> None:
        """Waits until the content of a file is on the device, what was stored into its mapped memory included."""
        SYNC(fd)

    def close(self, fd: int) -> None:
        """Closes a descriptor."""
        os.close(fd)


DISK = Disk()
