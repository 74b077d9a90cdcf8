"""Object stores and file systems that ``pyarrow.fs`` opens: S3, Google Cloud Storage, Azure and HDFS.

pyarrow lists and reads. It has no conditional write, and an upload that fails midway leaves a shorter object; so objects are
written through ``store/objects.py``, and files of HDFS beside their name, then renamed, which HDFS refuses where the name is
taken.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import uuid4

from mainstem.errors import ConfigurationError, StoreError, needs_extras
from mainstem.store.base import StoredFile
from mainstem.store.local import NEW_SUFFIX
from mainstem.store.options import azure_options, gcs_options, hdfs_options, s3_options
from mainstem.store.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from mainstem.store.objects import ObjectWriter

# Objects whose length is remembered, so that a further range costs one request and not two.
MAX_OPEN = 64
COPY_BYTES = 4 << 20


class ArrowStore:
    """Files below ``root`` of a ``pyarrow.fs.FileSystem``.

    ``writer`` makes the writer of objects when something is first written; None where files are written and renamed.
    ``lists_directories`` is False where the file system lists only directories that were made as such.
    """

    def __init__(
        self,
        url: str,
        filesystem: Any,
        root: str,
        writer: Callable[[], ObjectWriter] | None = None,
        *,
        lists_directories: bool = True,
        retry: Retry | None = None,
    ) -> None:
        self.url = url
        self._lists_directories = lists_directories
        self._files = filesystem
        self._root = root.strip("/") if writer is not None else root.rstrip("/")
        self._new_writer = writer
        self._writer: ObjectWriter | None = None
        self._retry = retry or Retry()
        self._open: OrderedDict[str, Any] = OrderedDict()
        self._lock = Lock()

    def _path(self, name: str) -> str:
        if name.startswith("/") or ".." in name.split("/"):
            raise StoreError(self.url, f"{name!r} is no name of a file below it")
        return f"{self._root}/{name}" if name else self._root

    def _select(self, directory: str, recursive: bool) -> list[Any]:
        from pyarrow.fs import FileSelector

        selector = FileSelector(self._path(directory) or "/", allow_not_found=True, recursive=recursive)
        infos: list[Any] = self._retry.call(
            lambda: self._files.get_file_info(selector), self.url, f"cannot list {directory or 'it'}"
        )
        return infos

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredFile]:
        """As ``Store.list``."""
        from pyarrow.fs import FileType

        cut = len(self._root) + 1
        for info in self._select(prefix[: prefix.rfind("/")] if "/" in prefix else "", recursive):
            name = info.path[cut:]
            if info.type == FileType.File and name.startswith(prefix) and not name.endswith(NEW_SUFFIX):
                yield StoredFile(name, info.size, info.mtime_ns)

    def directories(self, prefix: str = "") -> Iterator[str]:
        """As ``Store.directories``."""
        from pyarrow.fs import FileType

        cut = len(self._root) + 1
        if not self._lists_directories:
            start = f"{prefix.rstrip('/')}/".lstrip("/")
            below = (file.name[len(start) :].split("/") for file in self.list(start))
            yield from {f"{start}{parts[0]}": None for parts in below if len(parts) > 1}
            return
        for info in self._select(prefix.rstrip("/"), recursive=False):
            if info.type == FileType.Directory:
                yield info.path[cut:].rstrip("/")

    def size(self, name: str) -> int:
        """As ``Store.size``."""
        from pyarrow.fs import FileType

        path = self._path(name)
        info = self._retry.call(lambda: self._files.get_file_info(path), self.url, f"cannot read {name}")
        if info.type != FileType.File:
            raise FileNotFoundError(f"{self.url}/{name} does not exist")
        return int(info.size)

    def read(self, name: str, start: int, end: int) -> bytes:
        """As ``Store.read``."""
        data: bytes = self._retry.call(lambda: self._read(name, start, end), self.url, f"cannot read {name}")
        return data

    def _read(self, name: str, start: int, end: int) -> bytes:
        path = self._path(name)
        # An open object knows its length of then. A file that is read from its start may be another one by now.
        with self._lock:
            file = self._open.get(path) if start else None
        if file is not None and end <= file.size():
            try:
                data: bytes = file.read_at(end - start, start)
                if len(data) == end - start:
                    return data
            except FileNotFoundError:
                pass
        file = self._files.open_input_file(path)
        if self._new_writer is None:
            # A file of HDFS stays open on its servers.
            with file:
                whole: bytes = file.read_at(end - start, start) if start < file.size() else b""
                return whole
        with self._lock:
            self._open[path] = file
            self._open.move_to_end(path)
            if len(self._open) > MAX_OPEN:
                # Dropped, not closed: another thread may be reading from it.
                self._open.popitem(last=False)
        rest: bytes = file.read_at(end - start, start) if start < file.size() else b""
        return rest

    @property
    def _objects(self) -> ObjectWriter | None:
        if self._writer is None and self._new_writer is not None:
            self._writer = self._new_writer()
        return self._writer

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """As ``Store.put_if_absent``."""
        path = self._path(name)
        if (objects := self._objects) is not None:
            return objects.put_if_absent(path, data, self._retry, self.url)
        from pyarrow.fs import FileType

        if self._files.get_file_info(path).type != FileType.NotFound:
            return False
        fresh = self._write_new(path, data, name)
        try:
            # HDFS refuses to rename onto a file. A rename that was done although its response was lost leaves no fresh file.
            self._files.move(fresh, path)
        except OSError as error:
            if self._files.get_file_info(fresh).type == FileType.NotFound:
                return True
            self._files.delete_file(fresh)
            if self._files.get_file_info(path).type == FileType.NotFound:
                raise StoreError(self.url, f"cannot write {name}: {error}") from error
            return False
        return True

    def _write_new(self, path: str, data: bytes | Path, name: str) -> str:
        """Writes a file beside ``path``; returns its path."""
        directory, _, last = path.rpartition("/")
        fresh = f"{directory}/.{last}.{uuid4().hex}{NEW_SUFFIX}"

        def write() -> None:
            self._files.create_dir(directory, recursive=True)
            with self._files.open_output_stream(fresh) as output:
                if isinstance(data, bytes):
                    output.write(data)
                    return
                with data.open("rb") as source:
                    while piece := source.read(COPY_BYTES):
                        output.write(piece)

        self._retry.call(write, self.url, f"cannot write {name}")
        return fresh

    def put(self, name: str, data: bytes | Path) -> None:
        """As ``Store.put``; on HDFS there is a moment without the file when one is replaced."""
        path = self._path(name)
        if (objects := self._objects) is not None:
            objects.put(path, data, self._retry, self.url)
            return
        fresh = self._write_new(path, data, name)

        def replace() -> None:
            self.delete(name)
            self._files.move(fresh, path)

        self._retry.call(replace, self.url, f"cannot write {name}")

    def delete(self, name: str) -> None:
        """As ``Store.delete``."""
        path = self._path(name)
        if (objects := self._objects) is not None:
            objects.delete(path, self._retry, self.url)
            return
        try:
            self._retry.call(lambda: self._files.delete_file(path), self.url, f"cannot delete {name}")
        except FileNotFoundError:
            return

    def local_path(self, name: str = "") -> Path | None:  # noqa: ARG002
        """As ``Store.local_path``: none of these files is mapped."""
        return None

    def close(self) -> None:
        """Forgets what was opened."""
        with self._lock:
            self._open.clear()


def open_arrow_store(url: str, options: Mapping[str, str]) -> ArrowStore:
    """The store of an ``s3``, ``gs``, ``abfs`` or ``hdfs`` URL. Options after ``?`` count as ``options``, which override them."""
    parts = urlsplit(url)
    scheme, path = parts.scheme.lower(), unquote(parts.path).strip("/")
    shown = parts._replace(query="", fragment="").geturl().rstrip("/")
    is_azure = scheme in ("abfs", "abfss")
    if "@" in parts.netloc and not is_azure and scheme != "hdfs":
        host = parts.netloc.rpartition("@")[2]
        raise ConfigurationError(
            f"{scheme}://{host}: give credentials as options, not in the URL, which is shown in messages"
        )
    options = dict(parse_qsl(parts.query)) | dict(options)
    with needs_extras():
        from pyarrow import fs
    if scheme in ("hdfs", "viewfs"):
        user = {"user": unquote(parts.username)} if parts.username else {}
        host = parts.hostname or "default"
        arguments = user | hdfs_options(shown, options)
        if scheme == "viewfs":
            host = f"viewfs://{host}"
        try:
            files = fs.HadoopFileSystem(host, parts.port or 0, **arguments)
        except OSError as error:
            raise StoreError(
                shown, f"{error}; hdfs:// needs Java, and Hadoop's libhdfs and CLASSPATH in the environment"
            ) from error
        return ArrowStore(shown, files, "/" + path)
    bucket, _, rest = parts.netloc.partition("@")
    if not bucket:
        raise ConfigurationError(f"{url!r} names no bucket, as in {scheme}://bucket/path")
    from mainstem.store import objects

    root = f"{bucket}/{path}".rstrip("/")
    if scheme in ("gs", "gcs"):
        values = gcs_options(shown, options)
        # pyarrow leaves out the common prefixes of objects, which are all the directories that there are.
        files, writer = _gcs(fs, values), lambda: objects.gcs_writer(bucket, values)
        return ArrowStore(shown, files, root, writer, lists_directories=False)
    if is_azure:
        values = azure_options(shown, rest.partition(".")[0], options)
        return ArrowStore(shown, fs.AzureFileSystem(**values), root, lambda: objects.azure_writer(bucket, values))
    values = s3_options(shown, bucket, options)
    # Retries are this package's own, so that there is one limit and one wait.
    files = fs.S3FileSystem(**values, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1))
    return ArrowStore(shown, files, root, lambda: objects.s3_writer(bucket, values, files.region))


def _gcs(fs: Any, values: dict[str, Any]) -> Any:
    if "access_token" not in values:
        return fs.GcsFileSystem(**values)
    from datetime import UTC, datetime

    # pyarrow asks when the token expires and cannot renew it: the server reports it.
    return fs.GcsFileSystem(**values, credential_token_expiration=datetime(9999, 1, 1, tzinfo=UTC))
