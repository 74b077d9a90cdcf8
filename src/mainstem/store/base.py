"""What a store is: files with names below one URL, listed, read by range, and written whole or not at all.

Names are relative to the store's URL, with ``/`` between their parts: ``5-0.rec``, ``tides/archive.catalog``. A missing file is
``FileNotFoundError``; everything else that goes wrong is ``StoreError``, after the retries of ``store/retry.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mainstem.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What a writer that was killed leaves behind; never listed.
NEW_SUFFIX = ".mainstem-new"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a store: its name relative to the store, its bytes, and when it was written where the store knows."""

    name: str
    size: int
    modified_ns: int | None = None


class Store(Protocol):
    """Files below one URL. Its methods may be called from several threads at once."""

    @property
    def url(self) -> str:
        """Where it is; a local directory without ``file://``, as it was named."""
        ...

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredFile]:
        """The files whose names start with ``prefix``, in no order; none where there is no such place.

        Without ``recursive`` only those of the directory that ``prefix`` names up to its last ``/``.
        """
        ...

    def directories(self, prefix: str = "") -> Iterator[str]:
        """The names of the directories right below the directory ``prefix``, relative to the store, without a ``/`` at the end."""
        ...

    def size(self, name: str) -> int:
        """The length of a file in bytes. Raises FileNotFoundError where it is missing."""
        ...

    def read(self, name: str, start: int, end: int) -> bytes:
        """The bytes ``[start, end)`` of a file; fewer only where the file ends. Raises FileNotFoundError."""
        ...

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write a file unless there is one: whole or not at all. Of writers at once exactly one gets True."""
        ...

    def put(self, name: str, data: bytes | Path) -> None:
        """Write a file from memory or from a local file: readers see what was there before, or all of it."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file; a missing one is not an error."""
        ...

    def local_path(self, name: str = "") -> Path | None:
        """The file on this machine, where it can be mapped; None where it is elsewhere. The store's root for ``""``."""
        ...

    def close(self) -> None: ...


class RemoteFiles:
    """What every store that is not a local directory has in common."""

    def __init__(self, url: str) -> None:
        self.url = url

    def checked(self, name: str) -> str:
        """The name. Raises StoreError for one that leads elsewhere."""
        if name.startswith("/") or ".." in name.split("/"):
            raise StoreError(self.url, f"{name!r} is not a file name below it")
        return name

    def local_path(self, name: str = "") -> Path | None:  # noqa: ARG002
        """None: no file can be mapped."""
        return None

    def close(self) -> None:
        """Nothing is held open."""


def read_all(store: Store, name: str, *, limit: int) -> bytes:
    """A whole file. Raises FileNotFoundError, and StoreError where it is longer than ``limit`` bytes."""
    size = store.size(name)
    if size > limit:
        raise StoreError(store.url, f"{name} has {size} bytes, more than {limit}")
    return store.read(name, 0, size)
