"""Captures by path or URL: opening, size and listing."""

from __future__ import annotations

import os
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import IO, TYPE_CHECKING

from mainstem.errors import CaptureError
from mainstem.store import is_url, open_store
from mainstem.store.files import StoredFileReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mainstem.store import Store


class StoredPath(str):
    """The URL of a capture. It is a str that keeps its store's options when pickled."""

    __slots__ = ("options",)
    options: dict[str, str]

    def __new__(cls, url: str, options: Mapping[str, str] | None = None) -> StoredPath:
        path = super().__new__(cls, url)
        path.options = dict(options or {})
        return path

    def __reduce__(self) -> tuple[type[StoredPath], tuple[str, dict[str, str]]]:
        return StoredPath, (str(self), self.options)


def _parent(path: str) -> tuple[Store, str]:
    plain, mark, query = path.partition("?")
    directory, _, name = plain.rstrip("/").rpartition("/")
    return open_store(directory + mark + query, getattr(path, "options", None)), name


@contextmanager
def capture_errors(path: str) -> Iterator[None]:
    """Convert an OSError to a CaptureError that names the capture."""
    try:
        yield
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}") from error


def open_file(path: str) -> IO[bytes]:
    """Open a file for reading, unbuffered. Raises OSError."""
    if not is_url(path):
        return open(path, "rb", buffering=0)
    store, name = _parent(path)
    local = store.local_path(name)
    return open(local, "rb", buffering=0) if local is not None else StoredFileReader(store, name)  # type: ignore[return-value]


def status_of(path: str) -> tuple[int, int]:
    """Return size and modification time in ns since 1970 (0 if the store does not report it). Raises OSError."""
    if not is_url(path):
        status = os.stat(path)
        return status.st_size, status.st_mtime_ns
    store, name = _parent(path)
    try:
        for file in store.list(name, recursive=False):
            if file.name == name:
                return file.size, file.modified_ns or 0
        return store.size(name), 0
    finally:
        store.close()


def listed(url: str, options: Mapping[str, str], is_capture: Callable[[str], bool]) -> Iterator[StoredPath]:
    """Yield the captures of a URL: the file itself, those in the directory, or those that match the pattern in its last part."""
    plain, mark, query = url.partition("?")
    store, name = _parent(StoredPath(url, options))
    try:
        if set("*[") & set(plain):
            directory = plain.rpartition("/")[0]
            if set("*[") & set(directory):
                raise CaptureError(f"{url!r}: only the last part of a URL may be a pattern")
            names = [file.name for file in store.list(recursive=False) if fnmatchcase(file.name, name)]
        else:
            directory = plain.rstrip("/")
            try:
                store.size(name)
            except FileNotFoundError:
                files = store.list(name + "/", recursive=False)
                names = [each for file in files if is_capture(each := file.name.removeprefix(name + "/"))]
            else:
                directory, names = plain.rpartition("/")[0], [name]
        for each in names:
            yield StoredPath(f"{directory}/{each}{mark}{query}", options)
    finally:
        store.close()
