"""Any other scheme, through fsspec and the package that has the scheme."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError, MissingExtraError, StoreError
from mainstem.store.base import StoredFile
from mainstem.store.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class FsspecStore:
    """Files below the root of an fsspec file system. Options go to it as they are."""

    def __init__(self, url: str, filesystem: Any, root: str, *, retry: Retry | None = None) -> None:
        self.url = url
        self._files = filesystem
        self._root = root.rstrip("/")
        self._retry = retry or Retry()

    def _path(self, name: str) -> str:
        if name.startswith("/") or ".." in name.split("/"):
            raise StoreError(self.url, f"{name!r} is no name of a file below it")
        return f"{self._root}/{name}" if name else self._root

    def _entries(self, directory: str, *, recursive: bool) -> list[dict[str, Any]]:
        path = self._path(directory)

        def entries() -> list[dict[str, Any]]:
            # Other clients write too: what fsspec keeps of a listing is not asked for.
            self._files.invalidate_cache()
            if recursive:
                return list(self._files.find(path, detail=True).values())
            return list(self._files.ls(path, detail=True))

        try:
            return self._retry.call(entries, self.url, f"cannot list {directory or 'it'}")
        except FileNotFoundError:
            return []

    def _name(self, entry: Mapping[str, Any]) -> str:
        path = str(entry["name"])
        return path[path.index(self._root.strip("/")) + len(self._root.strip("/")) :].strip("/")

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredFile]:
        """As ``Store.list``."""
        for entry in self._entries(prefix[: prefix.rfind("/")] if "/" in prefix else "", recursive=recursive):
            name = self._name(entry)
            if entry["type"] == "file" and name.startswith(prefix):
                yield StoredFile(name, int(entry["size"]))

    def directories(self, prefix: str = "") -> Iterator[str]:
        """As ``Store.directories``."""
        for entry in self._entries(prefix.rstrip("/"), recursive=False):
            if entry["type"] == "directory":
                yield self._name(entry)

    def size(self, name: str) -> int:
        """As ``Store.size``."""
        path = self._path(name)

        def size() -> int:
            self._files.invalidate_cache()
            info = self._files.info(path)
            if info["type"] != "file":
                raise FileNotFoundError(f"{self.url}/{name} is no file")
            return int(info["size"])

        return self._retry.call(size, self.url, f"cannot read {name}")

    def read(self, name: str, start: int, end: int) -> bytes:
        """As ``Store.read``."""
        path = self._path(name)
        return bytes(self._retry.call(lambda: self._files.cat_file(path, start, end), self.url, f"cannot read {name}"))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """As ``Store.put_if_absent``; StoreError where the file system has no exclusive creation."""
        path = self._path(name)
        attempts = 0

        def put() -> bool:
            nonlocal attempts
            attempts += 1
            try:
                self._make_parent(path)
                self._files.pipe_file(path, data, mode="create")
            except FileExistsError:
                return attempts > 1 and bytes(self._files.cat_file(path)) == data
            return True

        return self._retry.call(put, self.url, f"cannot write {name} on the condition that it is new")

    def _make_parent(self, path: str) -> None:
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)

    def put(self, name: str, data: bytes | Path) -> None:
        """As ``Store.put``, as far as the file system replaces a file at once."""
        path = self._path(name)

        def put() -> None:
            self._make_parent(path)
            if isinstance(data, bytes):
                self._files.pipe_file(path, data)
            else:
                self._files.put_file(str(data), path)

        self._retry.call(put, self.url, f"cannot write {name}")

    def delete(self, name: str) -> None:
        """As ``Store.delete``."""
        path = self._path(name)
        try:
            self._retry.call(lambda: self._files.rm_file(path), self.url, f"cannot delete {name}")
        except FileNotFoundError:
            return

    def local_path(self, name: str = "") -> Path | None:  # noqa: ARG002
        """As ``Store.local_path``: none of these files is mapped."""
        return None

    def close(self) -> None:
        """Nothing is held open here; fsspec keeps its connections for the next store."""


def open_fsspec_store(url: str, scheme: str, options: Mapping[str, str]) -> FsspecStore:
    """The store of any other URL. Raises ConfigurationError for a scheme that there is not, with what to install."""
    try:
        import fsspec
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise MissingExtraError("fsspec", "stores") from error
    if scheme not in fsspec.available_protocols():
        raise ConfigurationError(f"{url!r}: neither Mainstem nor fsspec has a store for {scheme}://")
    try:
        filesystem, root = url_to_fs(url, **options)
    except ImportError as error:
        raise ConfigurationError(f"{url!r}: {error}") from error
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"{url!r}: {error}") from None
    return FsspecStore(url.rstrip("/"), filesystem, root)
