"""Writes the Parquet data files of one task: one open file per partition, and a new one at the target size.

Rows stay in memory until they fill a row group. Memory and open files are bounded over all partitions: beyond the memory limit, the
task writes the largest row group, and beyond the file limit, it closes the least recently written file. A task that fails tries
to delete its files. No commit refers to any that remain.
"""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mainstem.errors import StoreError
from mainstem.store.disk import DISK

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    import pyarrow as pa

    from mainstem.store.base import Store
    from mainstem.store.disk import Disk

# -- upper bounds of texts ---------------------------------------------------------------------------------------------


_BEFORE_SURROGATES, _AFTER_SURROGATES, _LAST = 0xD7FF, 0xE000, 0x10FFFF


def upper_text(text: str, length: int) -> str | None:
    """Return the text, or if it is longer than ``length``, a shorter one that sorts above it (by code points), or None."""
    if len(text) <= length:
        return text
    start = text[:length].rstrip(chr(_LAST))
    if not start:
        return None
    last = ord(start[-1])
    return start[:-1] + chr(_AFTER_SURROGATES if last == _BEFORE_SURROGATES else last + 1)


class DataFiles(Protocol):
    """A factory for the data files of one table. It is pickled to the tasks."""

    @property
    def schema(self) -> pa.Schema: ...

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[Hashable, pa.RecordBatch]]:
        """Split rows by table partition, and convert them to the columns of the files."""
        ...

    def create(self, partition: Any) -> Any:
        """Create a file of a partition. It has ``name``, ``sink`` (a binary file to write to), ``close()`` and ``discard()``."""
        ...

    @property
    def bounded(self) -> Sequence[str]:
        """The columns whose bounds ``describe`` needs."""
        ...

    def describe(self, partition: Any, file: Any, metadata: Any, bounds: ColumnBounds) -> bytes:
        """Describe a closed file for the commit, given its Parquet footer and the bounds of its columns."""
        ...


# -- bounds of columns -------------------------------------------------------------------------------------------------


class ColumnBounds:
    """Bounds and null counts of columns over all rows of a file. There are no floating-point columns, because NaN has no order."""

    def __init__(self, names: Sequence[str]) -> None:
        self.rows = 0
        self.nulls = dict.fromkeys(names, 0)
        # Arrow values, because Python has no times after year 9999.
        self._ends: dict[str, Any] = {}

    def add(self, rows: pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self.rows += rows.num_rows
        for name in self.nulls:
            column = rows.column(name)
            self.nulls[name] += column.null_count
            ends = [pc.min_max(column), *([self._ends[name]] if name in self._ends else [])]
            self._ends[name] = pc.min_max(pa.array([end[key] for end in ends for key in ("min", "max")], column.type))

    def of(self, name: str) -> tuple[Any, Any] | None:
        """Return the minimum and maximum of a column, or None if it has only nulls. Raises OverflowError."""
        if self.nulls[name] == self.rows:
            return None
        return self._ends[name]["min"].as_py(), self._ends[name]["max"].as_py()


# -- the files of a task -----------------------------------------------------------------------------------------------

# The memory limits for the rows of one row group and for all rows of a task.
ROW_GROUP_BYTES = 32 << 20
GATHERED_BYTES = 128 << 20
# Maximum number of open files. Each has buffers and, in a store, an upload or a temporary file.
MAX_OPEN = 64
COMPRESSION = "zstd"
# A task returns this column, with one row per file.
FILE_COLUMN = "file"
FILE_DDL = f"{FILE_COLUMN} binary"


class WriteFiles:
    """The function for ``mapInArrow`` that writes the batches of a task. It is pickled to the workers.

    ``names`` are the columns of the batches, in order. None keeps the names in the batches.
    """

    def __init__(self, files: DataFiles, target_bytes: int, names: Sequence[str] | None = None) -> None:
        self._files, self._target, self._names = files, target_bytes, names

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows to files, and yield one row per file."""
        import pyarrow as pa

        if self._names is not None:
            batches = (batch.rename_columns(self._names) for batch in batches)
        written = list(write(self._files, batches, self._target))
        yield pa.RecordBatch.from_arrays([pa.array(written, pa.binary())], names=[FILE_COLUMN])


def write(files: DataFiles, batches: Iterator[pa.RecordBatch], target_bytes: int) -> Iterator[bytes]:
    """Write batches to files of about ``target_bytes``, and yield the description of each for the commit."""
    opened: OrderedDict[Hashable, _OpenFile] = OrderedDict()
    finished: list[_OpenFile] = []
    group_bytes = max(min(ROW_GROUP_BYTES, target_bytes), 1)
    try:
        for batch in batches:
            for partition, whole in files.split(batch) if batch.num_rows else ():
                for rows in _pieces(whole, group_bytes):
                    file = opened.pop(partition, None) or _OpenFile(files, partition)
                    opened[partition] = file
                    file.gather(rows)
                    if file.gathered >= group_bytes and file.flush() >= target_bytes:
                        finished.append(opened.pop(partition))
                        finished[-1].close()
                    _bound(opened, finished)
        for partition in list(opened):
            finished.append(opened.pop(partition))
            finished[-1].close()
    except BaseException:
        for file in (*opened.values(), *finished):
            file.discard()
        raise
    for file in finished:
        yield file.description


def _pieces(rows: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    count = max(rows.num_rows * size // max(rows.nbytes, 1), 1)
    for start in range(0, rows.num_rows, count):
        yield rows.slice(start, count)


def _bound(opened: OrderedDict[Hashable, _OpenFile], finished: list[_OpenFile]) -> None:
    if len(opened) > MAX_OPEN:
        _, oldest = opened.popitem(last=False)
        finished.append(oldest)
        oldest.close()
    if sum(file.gathered for file in opened.values()) > GATHERED_BYTES:
        max(opened.values(), key=lambda file: file.gathered).flush()


def _columns_with_statistics(schema: pa.Schema) -> list[str]:
    """Return the paths of all columns except floats. Arrow's bounds exclude NaN, so readers would skip rows with NaN."""
    import pyarrow as pa
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    parquet.write_metadata(schema, sink)
    columns = parquet.read_metadata(pa.BufferReader(sink.getvalue())).schema
    leaves = [columns.column(i) for i in range(len(columns))]
    return [leaf.path for leaf in leaves if leaf.physical_type not in ("FLOAT", "DOUBLE")]


class _OpenFile:
    """An open file of one partition, and the rows that wait to be written to it."""

    def __init__(self, files: DataFiles, partition: Any) -> None:
        from pyarrow import parquet

        self._files, self._partition = files, partition
        self._rows: list[pa.RecordBatch] = []
        self._bounds = ColumnBounds(files.bounded)
        self.gathered = 0
        self.description = b""
        self._file = files.create(partition)
        try:
            # Do not store the Arrow schema, or readers would use its types instead of the table's.
            self._writer = parquet.ParquetWriter(
                self._file.sink,
                files.schema,
                compression=COMPRESSION,
                store_schema=False,
                coerce_timestamps="us",
                write_statistics=_columns_with_statistics(files.schema),
            )
        except BaseException:
            self._file.discard()
            raise

    def gather(self, rows: pa.RecordBatch) -> None:
        self._rows.append(rows)
        self.gathered += rows.nbytes

    def flush(self) -> int:
        """Write the waiting rows as a row group, and return the size of the file so far."""
        import pyarrow as pa

        table = pa.Table.from_batches(self._rows, self._files.schema)
        self._rows, self.gathered = [], 0
        self._bounds.add(table)
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        return int(self._file.sink.tell())

    def close(self) -> None:
        if self._rows:
            self.flush()
        self._writer.close()
        self._file.close()
        metadata = self._writer.writer.metadata
        self.description = self._files.describe(self._partition, self._file, metadata, self._bounds)

    def discard(self) -> None:
        # The footer is not needed, and a sink that failed may fail again.
        with suppress(OSError):
            self._writer.close()
        self._file.discard()


# -- new files ---------------------------------------------------------------------------------------------------------


class NewFile:
    """A new file in a store. A local file is written in place; otherwise a temporary file is written and then uploaded.

    No reader knows the name before the commit, so the file need not appear atomically.
    """

    def __init__(self, store: Store, name: str, disk: Disk = DISK) -> None:
        self._store, self.name, self._disk = store, name, disk
        self._descriptor = -1
        self.size = 0
        path = store.local_path(name)
        self._is_local = path is not None
        if path is None:
            descriptor, text = tempfile.mkstemp(prefix="mainstem-", suffix=".parquet")
            self._path = Path(text)
            self.sink: Any = os.fdopen(descriptor, "wb")
            return
        self._path = path
        try:
            disk.make_directory(path.parent)
            self._descriptor = disk.open(path)
            self.sink = os.fdopen(self._descriptor, "wb", closefd=False)
        except OSError as error:
            raise StoreError(store.url, f"{name}: {error.strerror}") from error

    def close(self) -> None:
        self.sink.flush()
        if self._is_local:
            self._disk.sync(self._descriptor)
        self._close()
        if self._is_local:
            self._disk.sync_path(self._path.parent)
        self.size = self._path.stat().st_size
        if not self._is_local:
            try:
                self._store.put(self.name, self._path)
            finally:
                self._path.unlink()

    def _close(self) -> None:
        self.sink.close()
        if self._descriptor >= 0:
            self._disk.close(self._descriptor)
            self._descriptor = -1

    def discard(self) -> None:
        self._close()
        self._path.unlink(missing_ok=True)
        if not self._is_local:
            with suppress(StoreError):
                self._store.delete(self.name)


# -- partitions --------------------------------------------------------------------------------------------------------


def split(batch: pa.RecordBatch, keys: Sequence[Any]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Split a batch by the values of ``keys``, which are arrays as long as the batch. Null counts as a value."""
    import numpy as np
    import pyarrow as pa

    codes = np.zeros(batch.num_rows, np.int64)
    for key in keys:
        encoded = key.dictionary_encode(null_encoding="encode")
        codes = codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(zero_copy_only=False)
        # Renumber the codes from 0, so that they fit for any number of keys.
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
    if not batch.num_rows or not codes.any():
        if batch.num_rows:
            yield tuple(key[0].as_py() for key in keys), batch
        return
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        rows = order[start:end]
        yield tuple(key[int(rows[0])].as_py() for key in keys), batch.take(pa.array(rows))


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns of a schema, matched by name. Missing columns are null. Raises if a value does not fit."""
    import pyarrow as pa

    names = set(batch.schema.names)
    columns = [
        _cast(batch.column(item.name), item.type) if item.name in names else pa.nulls(batch.num_rows, item.type)
        for item in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(values: Any, kind: Any) -> Any:
    return values if values.type.equals(kind, check_metadata=True) else values.cast(kind)
