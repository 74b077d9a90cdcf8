"""The interface of a store: named files below one URL, which are listed, read by range, and written atomically.

Names are relative to the store's URL and separate their parts by ``/``: ``5-0.rec``, ``tides/archive.catalog``. A missing file
raises FileNotFoundError. Any other failure raises StoreError, after the retries of ``store/retry.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mainstem.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The suffix of files that are being written. A killed writer leaves such a file behind; it is never listed.
NEW_SUFFIX = ".mainstem-new"
# How often to read a whole file whose length changes between asking for it and reading.
MAX_READS = 5


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a store: its name relative to the store, its size in bytes, and when it was written, if the store knows that."""

    name: str
    size: int
    modified_ns: int | None = None


class Store(Protocol):
    """Files below one URL. Several threads may call its methods at once."""

    @property
    def url(self) -> str:
        """The URL of the store. For a local directory it is the path as given, without ``file://``."""
        ...

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredFile]:
        """Yield the files whose names start with ``prefix``, in any order; nothing if the store does not exist.

        Without ``recursive``, only the files directly in the directory that ``prefix`` names, up to its last ``/``, are yielded.
        """
        ...

    def directories(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the directories directly below the directory ``prefix``.

        The names are relative to the store and do not end with ``/``.
        """
        ...

    def size(self, name: str) -> int:
        """Return the size of a file in bytes. Raises FileNotFoundError if it is missing."""
        ...

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes ``[start, end)`` of a file, fewer only if the file ends. Raises FileNotFoundError if it is missing."""
        ...

    def read_version(self, name: str, start: int, end: int, version: str | None) -> tuple[bytes, str]:
        """Like ``read``, but of one version of a file: also return its version, to be passed to the next call.

        The version is an entity tag, or what the store has instead. Raises StoreError if the file is not of that ``version`` any
        more, also if the range is now past its end; None accepts any. It is empty if nothing was read and any version accepted.
        """
        ...

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write a file atomically unless it exists. If several writers do so at once, exactly one gets True."""
        ...

    def put(self, name: str, data: bytes | Path) -> None:
        """Write a file from memory or from a local file. Readers see either the old file or the whole new one."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file. It is not an error if the file is missing."""
        ...

    def local_path(self, name: str = "") -> Path | None:
        """Return the path of a file that is local and can be mapped, or None if it is remote. ``""`` is the root of the store."""
        ...

    def close(self) -> None: ...


class RemoteFiles:
    """The common part of all stores except local directories."""

    def __init__(self, url: str) -> None:
        self.url = url

    def checked(self, name: str) -> str:
        """Return the name. Raises StoreError if it refers to a file outside the store."""
        if name.startswith("/") or ".." in name.split("/"):
            raise StoreError(self.url, f"{name!r} is not a file name below it")
        return name

    def local_path(self, name: str = "") -> Path | None:  # noqa: ARG002
        return None

    def close(self) -> None: ...


def replaced(url: str, name: str) -> StoreError:
    """Return the error for a file that is no longer the one that the first range came from."""
    return StoreError(url, f"{name} was replaced or changed while it was read; read it again from its beginning")


class OneVersion:
    """Ranges of one version of a file: the version of the first range. Several threads may read at once."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name
        self._versions: dict[str, str] = {}  # the first one, by the file's name: setdefault is atomic

    def read(self, start: int, end: int, **more: Any) -> bytes:
        """Like ``Store.read``. Raises StoreError if the file was replaced since the first range."""
        expected = self._versions.get(self._name)
        data, version = self._store.read_version(self._name, start, end, expected, **more)
        if version and self._versions.setdefault(self._name, version) != version:
            raise replaced(self._store.url, self._name)
        return data

    def restart(self) -> None:
        """Let the next range be the first one, of any version."""
        self._versions.clear()


def read_all(store: Store, name: str, *, limit: int) -> bytes:
    """Return a whole file.

    Raises FileNotFoundError if it is missing, and StoreError if it is longer than ``limit`` bytes or keeps changing.
    """
    for _ in range(MAX_READS):
        size = store.size(name)
        if size > limit:
            raise StoreError(store.url, f"{name} has {size} bytes, more than {limit}")
        # One byte more than there are, so that a longer file that has replaced this one is noticed, and read again.
        data = store.read(name, 0, size + 1)
        if len(data) == size:
            return data
    raise replaced(store.url, name)
