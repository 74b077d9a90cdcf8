"""Files and mapped memory. This is the only module that maps shared memory.

``MappedFiles`` are shared with other processes. ``MemoryFiles`` exist in one process only, for simulation and for drivers that no
other process uses.
"""

from __future__ import annotations

import errno
import mmap
import os
import pwd
import stat
from contextlib import suppress
from typing import NamedTuple, Protocol

from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._internal import file_modes
from mainstem.errors import StorageSpaceError

ROOT = 0  # the user who may read and write every file
BLOCK_LENGTH = 512  # the unit of st_blocks on every file system


class DirectoryInfo(NamedTuple):
    """What exists under a directory's name.

    ``files`` are the relative paths of all files below it. ``owner`` is its user, or empty if that is the current user.
    """

    is_directory: bool
    is_link: bool = False
    owner: str = ""
    files: tuple[str, ...] = ()


class Files(Protocol):
    """Named regions of memory. Paths are absolute and use ``/``. A missing file raises FileNotFoundError."""

    page_size: int
    is_sparse: bool  # whether a page takes up space only when it is first touched

    def create(self, path: str, length: int, *, sparse_length: int = 0, prefault: bool = True) -> AtomicBuffer:
        """Create and map a zeroed file of ``length`` bytes.

        The first ``sparse_length`` bytes are allocated on first touch, which raises SIGBUS if the file system is full. The rest is
        allocated immediately. If ``sparse_length`` is 0, ``prefault`` also enters all pages into this process's page table, which
        saves a microsecond per page later. Raises FileExistsError, and StorageSpaceError if there is too little space.
        """
        ...

    def allocated_length(self, path: str) -> int:
        """Return how many bytes of the file are allocated."""
        ...

    def allocate(self, path: str, offset: int, length: int) -> None:
        """Allocate blocks for part of a file. Raises StorageSpaceError."""
        ...

    def map(self, path: str) -> AtomicBuffer:
        """Map a whole existing file. The memory is shared with every process that maps it."""
        ...

    def unmap(self, buffer: AtomicBuffer) -> None:
        """Close a buffer that ``create`` or ``map`` returned. Existing views keep the memory mapped."""
        ...

    def delete(self, path: str) -> None:
        """Remove the name if it exists. Processes that have mapped the file keep its memory."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or directory with this path exists."""
        ...

    def size(self, path: str) -> int:
        """Return the file's length in bytes."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """Return the file's whole content."""
        ...

    def write_bytes(self, path: str, data: bytes) -> None:
        """Write a plain file, replacing an existing one."""
        ...

    def make_directory(self, path: str, *, mode: int | None = None, group: str = "") -> None:
        """Make the directory and missing parents. ``mode`` and ``group`` apply to the directory and its files.

        Without a mode, the umask applies, as in the reference. Raises ConfigurationError if the mode or group cannot be set.
        """
        ...

    def delete_directory(self, path: str) -> None:
        """Remove the directory and everything in it, if it exists."""
        ...

    def inspect(self, path: str) -> DirectoryInfo | None:
        """Inspect the path without following a link. Return None if nothing exists there."""
        ...

    def foreign_owner(self, path: str) -> str:
        """Return the owner of the file that the path leads to.

        Return an empty string if the owner is this user or root, or if the file doesn't exist.
        """
        ...

    def free_space(self, path: str) -> int:
        """Return how many bytes a new file under that directory can still take."""
        ...


def other_owner(status: os.stat_result) -> str:
    """Return the name of a file's owner, or an empty string if that is this process's user."""
    return "" if status.st_uid == os.geteuid() else _user_name(status.st_uid)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class MappedFiles:
    """Files of the operating system, mapped as shared memory."""

    is_sparse = True

    def __init__(self) -> None:
        self.page_size = mmap.PAGESIZE
        self._mappings: dict[int, tuple[AtomicBuffer, mmap.mmap]] = {}

    def create(self, path: str, length: int, *, sparse_length: int = 0, prefault: bool = True) -> AtomicBuffer:
        descriptor = file_modes.create_file(path, os.O_RDWR | os.O_EXCL)
        try:
            if sparse_length:
                os.ftruncate(descriptor, length)
            if sparse_length < length:
                os.posix_fallocate(descriptor, sparse_length, length - sparse_length)
            return self._map(descriptor, populate=prefault and not sparse_length)
        except OSError as error:
            os.unlink(path)
            self._raise_without_space(error, path, length)
            raise
        finally:
            os.close(descriptor)

    def allocate(self, path: str, offset: int, length: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(descriptor, offset, length)
        except OSError as error:
            self._raise_without_space(error, path, length)
            raise
        finally:
            os.close(descriptor)

    def _raise_without_space(self, error: OSError, path: str, length: int) -> None:
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            available = self.free_space(os.path.dirname(path))
            message = f"{path} needs {length} bytes, and {available} are free"
            raise StorageSpaceError(message, needed=length, available=available) from None

    def allocated_length(self, path: str) -> int:
        return os.stat(path).st_blocks * BLOCK_LENGTH

    def map(self, path: str) -> AtomicBuffer:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return self._map(descriptor, populate=False)
        finally:
            os.close(descriptor)

    def _map(self, descriptor: int, *, populate: bool) -> AtomicBuffer:
        flags = mmap.MAP_SHARED | (getattr(mmap, "MAP_POPULATE", 0) if populate else 0)
        mapping = mmap.mmap(descriptor, 0, flags=flags)
        buffer = AtomicBuffer(mapping)
        self._mappings[id(buffer)] = (buffer, mapping)
        return buffer

    def unmap(self, buffer: AtomicBuffer) -> None:
        _, mapping = self._mappings.pop(id(buffer), (None, None))
        buffer.close()
        if mapping is not None:
            # If views of the memory remain, the mapping ends with the last of them.
            with suppress(BufferError):
                mapping.close()

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_bytes(self, path: str, data: bytes) -> None:
        with open(path, "wb", opener=file_modes.create_file) as file:
            file.write(data)

    def make_directory(self, path: str, *, mode: int | None = None, group: str = "") -> None:
        file_modes.make_directory(path, mode=mode, group=group)

    def delete_directory(self, path: str) -> None:
        import shutil

        with suppress(FileNotFoundError):
            shutil.rmtree(path)

    def inspect(self, path: str) -> DirectoryInfo | None:
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return None
        owner = other_owner(status)
        if not stat.S_ISDIR(status.st_mode):
            return DirectoryInfo(is_directory=False, is_link=stat.S_ISLNK(status.st_mode), owner=owner)
        files = tuple(
            os.path.relpath(os.path.join(folder, name), path) for folder, _, names in os.walk(path) for name in names
        )
        return DirectoryInfo(is_directory=True, owner=owner, files=files)

    def foreign_owner(self, path: str) -> str:
        try:
            status = os.stat(path)
        except OSError:
            return ""
        return "" if status.st_uid == ROOT else other_owner(status)

    def free_space(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize


class MemoryFiles:
    """A file system in memory. ``space`` limits its size in bytes, to simulate a full disk."""

    is_sparse = False

    def __init__(self, *, space: int = 1 << 40, page_size: int = 4096) -> None:
        self.page_size = page_size
        self.space = space
        self._files: dict[str, bytearray] = {}
        self._directories: set[str] = set()

    def create(self, path: str, length: int, *, sparse_length: int = 0, prefault: bool = True) -> AtomicBuffer:
        del sparse_length, prefault  # there is nothing to prefault
        if path in self._files:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        available = self.free_space(path)
        if length > available:
            message = f"{path} needs {length} bytes, and {available} are free"
            raise StorageSpaceError(message, needed=length, available=available)
        self._files[path] = bytearray(length)
        return AtomicBuffer(self._files[path])

    def allocate(self, path: str, offset: int, length: int) -> None: ...

    def allocated_length(self, path: str) -> int:
        return self.size(path)

    def map(self, path: str) -> AtomicBuffer:
        return AtomicBuffer(self._file(path))

    def unmap(self, buffer: AtomicBuffer) -> None:
        buffer.close()

    def delete(self, path: str) -> None:
        self._files.pop(path, None)

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def size(self, path: str) -> int:
        return len(self._file(path))

    def read_bytes(self, path: str) -> bytes:
        return bytes(self._file(path))

    def write_bytes(self, path: str, data: bytes) -> None:
        self._files[path] = bytearray(data)

    def make_directory(self, path: str, *, mode: int | None = None, group: str = "") -> None:
        del mode, group  # there is only one process
        while path and path != "/":
            self._directories.add(path)
            path = os.path.dirname(path)

    def delete_directory(self, path: str) -> None:
        inside = path + "/"
        self._files = {name: data for name, data in self._files.items() if not name.startswith(inside)}
        self._directories = {name for name in self._directories if name != path and not name.startswith(inside)}

    def inspect(self, path: str) -> DirectoryInfo | None:
        inside = path + "/"
        files = tuple(name.removeprefix(inside) for name in self._files if name.startswith(inside))
        if path in self._directories or files:
            return DirectoryInfo(is_directory=True, files=files)
        return DirectoryInfo(is_directory=False) if path in self._files else None

    def foreign_owner(self, path: str) -> str:
        del path  # there is only one process
        return ""

    def free_space(self, path: str) -> int:
        del path  # there is only one file system
        return self.space - sum(map(len, self._files.values()))

    def _file(self, path: str) -> bytearray:
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
