"""Stores of all other schemes, through fsspec and its package for the scheme. One of them is HDFS, which uses pyarrow.

Calls are not retried here, because the file systems of fsspec have their own retries and options for them.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote
from uuid import uuid4

from mainstem._internal.urls import split_url, url_without_options
from mainstem.errors import ConfigurationError, StoreError, needs_extras
from mainstem.store.base import NEW_SUFFIX, RemoteFiles, StoredFile, replaced
from mainstem.store.options import hdfs_options
from mainstem.store.retry import mapped_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


# What the file systems of fsspec call the length, version and modification time of a file, in lower case.
_VERSION_KEYS = {
    "size", "etag", "e_tag", "md5", "md5hash", "content_md5", "checksum", "generation", "version", "versionid", "version_id",
    "ino", "created", "mtime", "modified", "updated", "last_modified", "lastmodified", "last-modified",
}  # fmt: skip


class FsspecStore(RemoteFiles):
    """Files below the root of an fsspec file system."""

    def __init__(self, url: str, filesystem: Any, root: str) -> None:
        super().__init__(url)
        self._files, self._root = filesystem, root.rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._root}/{self.checked(name)}" if name else self._root

    def _entries(self, directory: str, *, recursive: bool) -> list[dict[str, Any]]:
        path = self._path(directory)
        try:
            with mapped_errors(self.url, f"cannot list {directory or 'it'}"):
                # Other clients also write, so fsspec's cached listing can be stale.
                self._files.invalidate_cache()
                if recursive:
                    return list(self._files.find(path, detail=True).values())
                return list(self._files.ls(path, detail=True))
        except FileNotFoundError:
            return []

    def _name(self, entry: Mapping[str, Any]) -> str:
        path, root = str(entry["name"]), self._root.strip("/")
        return path[path.index(root) + len(root) :].strip("/")

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredFile]:
        for entry in self._entries(prefix.rpartition("/")[0], recursive=recursive):
            name = self._name(entry)
            if entry["type"] == "file" and name.startswith(prefix) and not name.endswith(NEW_SUFFIX):
                yield StoredFile(name, int(entry["size"]), _modified_ns(entry.get("mtime")))

    def directories(self, prefix: str = "") -> Iterator[str]:
        for entry in self._entries(prefix.rstrip("/"), recursive=False):
            if entry["type"] == "directory":
                yield self._name(entry)

    def size(self, name: str) -> int:
        path = self._path(name)
        with mapped_errors(self.url, f"cannot read {name}"):
            self._files.invalidate_cache()
            info = self._files.info(path)
            if info["type"] != "file":
                raise FileNotFoundError(f"{self.url}/{name} is not a file")
            return int(info["size"])

    def read(self, name: str, start: int, end: int) -> bytes:
        path = self._path(name)
        with mapped_errors(self.url, f"cannot read {name}"):
            return self._fetch(path, start, end)

    def read_version(self, name: str, start: int, end: int, version: str | None) -> tuple[bytes, str]:
        """Like ``Store.read_version``. The version is compared before and after the read, as fsspec has no conditions."""
        before = self._version(name) if version is None else version
        data = self.read(name, start, end)
        if self._version(name) != before:
            raise replaced(self.url, name)
        return data, before

    def _version(self, name: str) -> str:
        """Return the length of a file, and whatever its file system says about when or in which version it was written."""
        path = self._path(name)
        with mapped_errors(self.url, f"cannot read {name}"):
            self._files.invalidate_cache()
            info = self._files.info(path)
        return " ".join(f"{key}={info[key]}" for key in sorted(info) if key.lower() in _VERSION_KEYS)

    def _fetch(self, path: str, start: int, end: int) -> bytes:
        return bytes(self._files.cat_file(path, start, end))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write a file unless it exists. Raises StoreError if the file system cannot create files exclusively."""
        path = self._path(name)
        with mapped_errors(self.url, f"cannot write {name} on the condition that it is new"):
            self._make_parent(path)
            try:
                self._files.pipe_file(path, data, mode="create")
            except FileExistsError:
                return False
            return True

    def _make_parent(self, path: str) -> None:
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)

    def put(self, name: str, data: bytes | Path) -> None:
        """Write a file. Replacing a file is atomic only if it is so in the file system."""
        path = self._path(name)
        with mapped_errors(self.url, f"cannot write {name}"):
            self._make_parent(path)
            self._write(path, data)

    def _write(self, path: str, data: bytes | Path) -> None:
        if isinstance(data, bytes):
            self._files.pipe_file(path, data)
        else:
            self._files.put_file(str(data), path)

    def delete(self, name: str) -> None:
        path = self._path(name)
        with suppress(FileNotFoundError), mapped_errors(self.url, f"cannot delete {name}"):
            self._files.rm_file(path)


def _modified_ns(mtime: Any) -> int | None:
    """Return the modification time of an entry. Some file systems do not have it, or use another name for it."""
    seconds = mtime.timestamp() if isinstance(mtime, datetime) else mtime
    return int(seconds * 1e9) if isinstance(seconds, float) else None


class HdfsStore(FsspecStore):
    """Files of HDFS. They are written under another name and then renamed, which HDFS refuses if the name is taken."""

    def _fetch(self, path: str, start: int, end: int) -> bytes:
        # If a range begins at 0, fsspec opens the file without seeking, and then fails.
        with self._files.fs.open_input_file(path) as file:
            return bytes(file.read_at(end - start, start)) if start < file.size() else b""

    def _write_new(self, path: str, data: bytes | Path) -> str:
        directory, _, last = path.rpartition("/")
        self._make_parent(path)
        fresh = f"{directory}/.{last}.{uuid4().hex}{NEW_SUFFIX}"
        self._write(fresh, data)
        return fresh

    def put_if_absent(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        with mapped_errors(self.url, f"cannot write {name}"):
            if self._files.exists(path):
                return False
            fresh = self._write_new(path, data)
            try:
                self._files.fs.move(fresh, path)
            except OSError:
                # If there is no fresh file, the rename succeeded and only its response was lost.
                if not self._files.exists(fresh):
                    return True
                self._files.rm_file(fresh)
                if not self._files.exists(path):
                    raise
                return False
            return True

    def put(self, name: str, data: bytes | Path) -> None:
        """Write a file. When a file is replaced, it is missing for a moment."""
        path = self._path(name)
        with mapped_errors(self.url, f"cannot write {name}"):
            fresh = self._write_new(path, data)
            self.delete(name)
            self._files.fs.move(fresh, path)


def open_hdfs_store(url: str, options: Mapping[str, str]) -> HdfsStore:
    """Return the store of an ``hdfs`` or ``viewfs`` URL. The URL can have options after ``?``; ``options`` override them."""
    parts = split_url(url)
    shown = url_without_options(parts)
    user = {"user": unquote(parts.username)} if parts.username else {}
    arguments = user | hdfs_options(shown, dict(parse_qsl(parts.query)) | dict(options))
    host = parts.hostname or "default"
    with needs_extras():
        from fsspec.implementations.arrow import ArrowFSWrapper
        from pyarrow import fs
    try:
        files = fs.HadoopFileSystem(
            f"viewfs://{host}" if parts.scheme.lower() == "viewfs" else host, parts.port or 0, **arguments
        )
    except OSError as error:
        raise StoreError(
            shown, f"{error}; hdfs:// needs Java, and Hadoop's libhdfs and CLASSPATH in the environment"
        ) from error
    return HdfsStore(shown, ArrowFSWrapper(files), "/" + unquote(parts.path).strip("/"))


def open_fsspec_store(url: str, scheme: str, options: Mapping[str, str]) -> FsspecStore:
    """Return the store of any other URL. ``options`` are passed on to fsspec.

    Raises ConfigurationError if the scheme or an option is unknown.
    """
    with needs_extras():
        import fsspec
        from fsspec.core import url_to_fs
    if scheme not in fsspec.available_protocols():
        raise ConfigurationError(f"{url!r}: neither Mainstem nor fsspec has a store for {scheme}://")
    try:
        filesystem, root = url_to_fs(url, **options)
    except ImportError as error:
        raise ConfigurationError(f"{url!r}: {error}") from error
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"{url!r}: {error}") from None
    return FsspecStore(url.rstrip("/"), filesystem, root)
