"""A local directory. Readers map its files; files are written by rename and link, which are atomic."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from mainstem._internal.file_modes import RECORDINGS_MODE
from mainstem._internal.regular_files import open_regular
from mainstem.errors import StoreError
from mainstem.store.base import NEW_SUFFIX, StoredFile, replaced
from mainstem.store.disk import DISK, Disk

if TYPE_CHECKING:
    from collections.abc import Iterator


class LocalStore:
    """Files below a directory, which is created by the first write.

    When a write returns, the file is on the device, and so are its name and the names of the directories above it.
    """

    def __init__(self, directory: Path | str, url: str | None = None, *, disk: Disk = DISK) -> None:
        self.directory = Path(directory)
        self._disk = disk
        self._synced: set[Path] = set()  # directories whose own names are on the device
        self.url = str(directory) if url is None else url

    def _path(self, name: str) -> Path:
        parts = name.split("/")
        if name.startswith("/") or ".." in parts or "\0" in name:
            raise StoreError(self.url, f"{name!r} is not a file name below it")
        return self.directory / name

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredFile]:
        start = prefix[: prefix.rfind("/") + 1]
        waiting = [(self._path(start), start)]
        while waiting:
            directory, inside = waiting.pop()
            try:
                with os.scandir(directory) as entries:
                    for entry in entries:
                        name = inside + entry.name
                        if entry.is_dir():
                            if recursive and (name.startswith(prefix) or prefix.startswith(name + "/")):
                                waiting.append((Path(entry.path), name + "/"))
                        elif name.startswith(prefix) and not name.endswith(NEW_SUFFIX):
                            try:
                                status = entry.stat()
                            except FileNotFoundError:
                                continue
                            yield StoredFile(name, status.st_size, status.st_mtime_ns)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise StoreError(self.url, f"{directory}: {error.strerror}") from error

    def directories(self, prefix: str = "") -> Iterator[str]:
        inside = prefix.rstrip("/")
        try:
            with os.scandir(self._path(inside)) as entries:
                for entry in entries:
                    if entry.is_dir():
                        yield f"{inside}/{entry.name}" if inside else entry.name
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise StoreError(self.url, f"{inside or '.'}: {error.strerror}") from error

    def size(self, name: str) -> int:
        try:
            status = os.stat(self._path(name))
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(f"{self.url}/{name} does not exist") from None
        except OSError as error:
            raise StoreError(self.url, f"{name}: {error.strerror}") from error
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(f"{self.url}/{name} is not a file")
        return status.st_size

    def read(self, name: str, start: int, end: int) -> bytes:
        try:
            with open(self._path(name), "rb", buffering=0, opener=open_regular) as file:
                pieces, at = [], start
                while at < end and (piece := os.pread(file.fileno(), end - at, at)):
                    pieces.append(piece)
                    at += len(piece)
                return b"".join(pieces) if len(pieces) != 1 else pieces[0]
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(self.url, f"{name}: {error.strerror}") from error

    def read_version(self, name: str, start: int, end: int, version: str | None) -> tuple[bytes, str]:
        """Like ``Store.read_version``. The version is compared before and after the read."""
        before = self._version(name) if version is None else version
        data = self.read(name, start, end)
        if self._version(name) != before:
            raise replaced(self.url, name)
        return data, before

    def _version(self, name: str) -> str:
        try:
            status = os.stat(self._path(name))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(self.url, f"{name}: {error.strerror}") from error
        return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns}"

    def _write_new(self, path: Path, data: bytes | Path) -> Path:
        """Write a file beside ``path``. It is on the device when this returns, and so are the names of the directories above it."""
        disk = self._disk
        disk.make_directory(path.parent, default=RECORDINGS_MODE)
        if path.parent not in self._synced:
            disk.sync_path(path.parent)
            self._synced.add(path.parent)
        fresh = path.with_name(f".{path.name}.{uuid4().hex}{NEW_SUFFIX}")
        try:
            fd = disk.open(fresh)
            try:
                at = 0
                for piece in _pieces(data):
                    disk.write(fd, piece, at)
                    at += len(piece)
                disk.sync(fd)
            finally:
                disk.close(fd)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        return fresh

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write a file unless it exists. It is linked into place, because a hard link never replaces a file."""
        path = self._path(name)
        try:
            if path.exists():
                # The process that put it may have died before the name was on the device.
                self._disk.sync_directory(path.parent)
                return False
            fresh = self._write_new(path, data)
            try:
                self._disk.link(fresh, path)
                is_new = True
            except FileExistsError:
                is_new = False
            finally:
                self._disk.delete(fresh)
            self._disk.sync_directory(path.parent)
        except OSError as error:
            raise StoreError(self.url, f"{name}: {error.strerror}") from error
        return is_new

    def put(self, name: str, data: bytes | Path) -> None:
        path = self._path(name)
        try:
            self._disk.rename(self._write_new(path, data), path)
            self._disk.sync_directory(path.parent)
        except OSError as error:
            raise StoreError(self.url, f"{name}: {error.strerror}") from error

    def delete(self, name: str) -> None:
        try:
            self._disk.delete(self._path(name))
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(self.url, f"{name}: {error.strerror}") from error

    def local_path(self, name: str = "") -> Path | None:
        return self._path(name) if name else self.directory

    def close(self) -> None: ...


def _pieces(data: bytes | Path) -> Iterator[bytes]:
    if not isinstance(data, Path):
        yield data
        return
    with data.open("rb", buffering=0) as source:
        while piece := source.read(1 << 20):
            yield piece
