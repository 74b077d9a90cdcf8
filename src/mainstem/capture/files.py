"""Captures by path or URL: listing, opening, size, and copies of those that can be read only once."""

from __future__ import annotations

import glob
import os
import re
import shutil
import stat
import sys
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

from mainstem.errors import CaptureError
from mainstem.store import is_url, open_store
from mainstem.store.file_reader import StoredFileReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mainstem.store import Store

INDEX_SUFFIX = ".mainstem-index"
STANDARD_INPUT = "-"
# Names that dumpcap, tcpdump (which numbers its files after the suffix) and Wireshark use. Compressed files match too, so that
# unsupported ones become a problem.
_CAPTURE = re.compile(r"\.(pcap|pcapng|cap|ntar)\d*(\.(gz|zst|xz|bz2|lz4))?$", re.IGNORECASE)


def captures(path: str, *, must_exist: bool = True, options: Mapping[str, str] | None = None) -> list[str]:
    """Return the captures of a path, sorted by name. Raises CaptureError if there is none, unless ``must_exist`` is false.

    A directory stands for its files that are named like captures, a pattern (``**`` is supported) for every file that it matches,
    except indexes. The same applies to URLs, in which only the last part may be a pattern; ``options`` are their store's.
    """
    paths: list[str]
    if is_url(path):
        paths = list(_listed(path, options or {}, lambda name: _CAPTURE.search(name) is not None))
        paths = [each for each in paths if not each.endswith(INDEX_SUFFIX)]
    elif os.path.isdir(path):
        paths = [entry.path for entry in os.scandir(path) if entry.is_file() and _CAPTURE.search(entry.name)]
    elif is_read_once(path):
        raise CaptureError(
            f"{path} can be read only once, and a capture is read more than once: copy it to a file first"
        )
    elif os.path.exists(path):
        paths = [path]
    else:
        matches = glob.glob(path, recursive=True)
        paths = [name for name in matches if os.path.isfile(name) and not name.endswith(INDEX_SUFFIX)]
    if not paths and must_exist:
        raise CaptureError(f"no capture at {path!r}")
    return sorted(paths)


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


def _listed(url: str, options: Mapping[str, str], is_capture: Callable[[str], bool]) -> Iterator[StoredPath]:
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


# -- captures that can be read only once, such as pipes ----------------------------------------------------------------


def is_read_once(path: str) -> bool:
    """Whether a path is ``-``, a pipe, a socket or a device."""
    if path == STANDARD_INPUT:
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def spooled(path: str) -> Iterator[str]:
    """Copy a pipe, or ``-`` for standard input, to a file, and yield its path; other files are not copied.

    Raises CaptureError if it cannot be read.
    """
    if not is_read_once(path):
        yield path
        return
    with TemporaryDirectory(prefix="mainstem-capture-") as directory:
        copy = Path(directory) / ("stdin" if path == STANDARD_INPUT else Path(path).name)
        with (
            capture_errors(path),
            sys.stdin.buffer if path == STANDARD_INPUT else open(path, "rb") as source,
            copy.open("wb") as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
        yield str(copy)
