"""Writes Iceberg tables with ``pyiceberg``, without a JVM.

Each commit adds a snapshot and sets a table property. The property's name contains the query's id, and its value is the number of
the micro-batch. Snapshots expire, but properties do not. A catalog accepts a commit only if the table has not changed since it
was read. Otherwise the table is read again, and the micro-batch is committed only if it is still missing. pyiceberg's own
retries would skip that check, so they are disabled for these commits.
"""

from __future__ import annotations

import pickle
import re
import weakref
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

from mainstem.errors import ConfigurationError, StoreError, needs_extras
from mainstem.spark.formats.base import DEFAULT_FILE_SIZE, ColumnRules, Compaction, Table, conflicts
from mainstem.spark.formats.data_files import conform, split, upper_text, write
from mainstem.spark.formats.storage_options import iceberg_options
from mainstem.store import open_store
from mainstem.store.open_store import scheme_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from mainstem.spark.formats.columns import Path
    from mainstem.spark.formats.data_files import ColumnBounds

COMMITTED = "mainstem.committed."
QUERY, BATCH = "mainstem.query-id", "mainstem.batch-id"
# Every commit rewrites the metadata, so keep only some old versions, and merge manifests.
NEW_TABLE = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "commit.manifest-merge.enabled": "true",
}
NO_RETRIES = {"commit.retry.num-retries": "0"}


class IcebergFile:
    """A new data file, written at its final location."""

    def __init__(self, io: Any, location: str) -> None:
        self.name, self.size = location, 0
        self._io = io
        self.sink = io.new_output(location).create()

    def close(self) -> None:
        self.size = self.sink.tell()
        self.sink.close()

    def discard(self) -> None:
        # No commit refers to the file, so it may remain.
        with suppress(OSError):
            if not self.sink.closed:
                self.sink.close()
            self._io.delete(self.name)


@dataclass(frozen=True)
class IcebergFiles:
    """The data files of an Iceberg table, in its current schema and partition spec."""

    metadata: Any
    io_properties: dict[str, str]
    prefix: str
    # Empty, because pyiceberg reads bounds from the footer.
    bounded: tuple[str, ...] = ()

    @cached_property
    def schema(self) -> pa.Schema:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return schema_to_pyarrow(self.metadata.schema())

    @cached_property
    def _io(self) -> Any:
        from pyiceberg.io import load_file_io

        return load_file_io(self.io_properties, self.metadata.location)

    @cached_property
    def _locations(self) -> Any:
        from pyiceberg.table.locations import load_location_provider

        return load_location_provider(self.metadata.location, self.metadata.properties)

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("metadata", "io_properties", "prefix")}

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
        import pyarrow as pa

        rows, schema = conform(batch, self.schema), self.metadata.schema()
        keys = []
        for item in self.metadata.spec().fields:
            name, kind = schema.find_column_name(item.source_id), schema.find_type(item.source_id)
            column = rows.column(name) if name in rows.schema.names else _member(rows, name)
            keys.append(item.transform.pyarrow_transform(kind)(column))
        if not keys:
            yield (), rows
            return
        for values, part in split(rows, keys):
            yield values, pa.RecordBatch.from_arrays(part.columns, schema=self.schema)

    def _key(self, partition: tuple[Any, ...]) -> Any:
        from pyiceberg.partitioning import PartitionFieldValue, PartitionKey

        spec = self.metadata.spec()
        values = [PartitionFieldValue(item, value) for item, value in zip(spec.fields, partition, strict=True)]
        return PartitionKey(values, spec, self.metadata.schema())

    def create(self, partition: tuple[Any, ...]) -> IcebergFile:
        name = f"{self.prefix}-{uuid4().hex}.parquet"
        return IcebergFile(
            self._io, self._locations.new_data_location(name, self._key(partition) if partition else None)
        )

    def describe(self, partition: tuple[Any, ...], file: IcebergFile, metadata: Any, bounds: ColumnBounds) -> bytes:  # noqa: ARG002
        record = self._key(partition).partition if partition else ()
        return pickle.dumps(
            {
                **file_statistics(metadata, self.metadata.schema(), self.metadata.properties),
                "file_path": file.name,
                "file_size_in_bytes": file.size,
                "spec_id": self.metadata.default_spec_id,
                "partition": [record[i] for i in range(len(partition))],
            }
        )


def _member(rows: pa.RecordBatch, path: str) -> Any:
    import pyarrow.compute as pc

    first, *rest = path.split(".")
    return pc.struct_field(rows.column(first), rest)


def data_file(description: bytes) -> Any:
    """Rebuild the ``DataFile`` from the description that a task returned."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    values = pickle.loads(description)
    partition = Record(*values.pop("partition"))
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_format=FileFormat.PARQUET,
        partition=partition,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **values,
    )


class IcebergRules(ColumnRules):
    """The rules of Iceberg: no 8-bit or 16-bit integers, nested names joined with a dot, and some types that can widen."""

    def stored(self, columns: StructType) -> StructType:
        stored: StructType = _stored(columns)
        return stored

    def name_key(self, path: Path) -> str:
        return ".".join(path)

    def widens(self, before: DataType, now: DataType) -> bool:
        from pyspark.sql.types import DecimalType, DoubleType, FloatType, IntegerType, LongType

        if isinstance(before, DecimalType) and isinstance(now, DecimalType):
            return bool(before.scale == now.scale and before.precision < now.precision)
        return (type(before), type(now)) in ((IntegerType, LongType), (FloatType, DoubleType))


class IcebergTable(Table):
    """An Iceberg table of a catalog. The catalog is opened on first use."""

    format = "Iceberg"
    rules: ColumnRules = IcebergRules()

    def __init__(
        self,
        catalog: Callable[[], Any],
        identifier: str,
        partition_by: Sequence[str] = (),
        target_bytes: int = DEFAULT_FILE_SIZE,
    ) -> None:
        with needs_extras():
            import pyiceberg  # noqa: F401
        if "." not in identifier.strip("."):
            raise ConfigurationError(f"{identifier!r} has no namespace; name the table as in sea.tides")
        super().__init__(identifier, partition_by, target_bytes)
        self._make_catalog = catalog

    @cached_property
    def _catalog(self) -> Any:
        try:
            return self._make_catalog()
        except (ConfigurationError, StoreError):
            raise
        except Exception as error:
            # Each kind of catalog raises errors of its own library.
            raise StoreError(self.name, f"cannot open the catalog: {error}") from error

    def _load(self) -> Any:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            return self._catalog.load_table(self.name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _columns(self, table: Any) -> StructType:
        from pyiceberg.io.pyarrow import schema_to_pyarrow
        from pyspark.sql.pandas.types import from_arrow_schema

        schema: StructType = from_arrow_schema(
            schema_to_pyarrow(table.schema(), include_field_ids=False), prefer_timestamp_ntz=True
        )
        return schema

    def _last_batch(self, table: Any, query_id: str) -> int:
        return int(table.metadata.properties.get(f"{COMMITTED}{query_id}", -1))

    def _is_empty(self, table: Any) -> bool:
        return table.current_snapshot() is None or not any(True for _ in table.scan().plan_files())

    def _change_columns(self, table: Any, columns: StructType) -> None:
        from pyiceberg.exceptions import CommitFailedException

        from mainstem.spark.sources.features import arrow_schema

        with conflicts(CommitFailedException), table.update_schema() as update:
            update.union_by_name(arrow_schema(columns))

    def _create(self, columns: StructType) -> None:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        from mainstem.spark.sources.features import arrow_schema

        self._catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
        schema = arrow_schema(columns)
        with (
            conflicts(CommitFailedException, TableAlreadyExistsError),
            self._catalog.create_table_transaction(self.name, schema, properties=NEW_TABLE) as transaction,
            transaction.update_spec() as spec,
        ):
            for column in self._partition_by:
                spec.add_identity(column)

    def files(self, query_id: str, batch_id: int) -> IcebergFiles:
        # A catalog does not compare properties, so the commit reads them again.
        table, self._table = self._table or self.existing(), None
        return self.files_of(table, f"part-{query_id[:8]}-{batch_id:06d}")

    @staticmethod
    def files_of(table: Any, prefix: str) -> IcebergFiles:
        return IcebergFiles(table.metadata, dict(table.io.properties), prefix)

    def _append(self, table: Any, query_id: str, batch_id: int, files: Sequence[bytes]) -> None:
        with _transaction(table) as transaction:
            if files:
                noted = {QUERY: query_id, BATCH: str(batch_id)}
                with transaction.update_snapshot(snapshot_properties=noted).merge_append() as append:
                    for file in files:
                        append.append_data_file(data_file(file))
            transaction.set_properties({f"{COMMITTED}{query_id}": str(batch_id)})

    def compact(self, *, keep_s: float | None = None) -> Compaction:
        replaced, by = _join(self)
        return Compaction(replaced, by, 0 if keep_s is None else _expire(self, keep_s))


@contextmanager
def _transaction(table: Any) -> Iterator[Any]:
    """Commit the changes of the block, without pyiceberg's retries: a commit has a conflict if another writer was first."""
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    properties = {**table.metadata.properties, **NO_RETRIES}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    with conflicts(CommitFailedException, CommitStateUnknownException), table.transaction() as transaction:
        yield transaction


def _stored(kind: Any) -> Any:
    from pyspark.sql.types import ArrayType, ByteType, IntegerType, MapType, ShortType, StructField, StructType

    if isinstance(kind, ByteType | ShortType):
        return IntegerType()
    if isinstance(kind, ArrayType):
        return ArrayType(_stored(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_stored(kind.keyType), _stored(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, StructType):
        return StructType([StructField(item.name, _stored(item.dataType), item.nullable) for item in kind.fields])
    return kind


# -- statistics that let readers skip files ----------------------------------------------------------------------------
#
# pyiceberg computes them from the file's footer. It raises for times beyond Python's range and for strings whose bound would end in
# a surrogate, and it ignores row groups without bounds. In each of these cases, the column gets no bounds in the manifest.


def file_statistics(metadata: Any, schema: Any, properties: Mapping[str, str]) -> dict[str, Any]:
    """Compute a file's statistics from its footer, as arguments of ``DataFile``. The table's properties choose them by column."""
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )

    plan = compute_statistics_plan(schema, dict(properties))
    ids = parquet_path_to_id_mapping(schema)
    for position in range(metadata.num_columns):
        field_id = ids[metadata.schema.column(position).path]
        plan[field_id] = _possible(plan[field_id], metadata, position)
    measured = data_file_statistics_from_parquet_metadata(metadata, plan, ids)
    for bounds in measured.column_aggregates.values():
        if isinstance(bounds.current_max, str) and bounds.trunc_length is not None:
            bounds.current_max = upper_text(bounds.current_max, bounds.trunc_length)
    stated: dict[str, Any] = measured.to_serialized_dict()
    return stated


def _possible(collector: Any, metadata: Any, position: int) -> Any:
    """Limit the statistics of a column to those that every row group has."""
    from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode

    chunks = [metadata.row_group(i).column(position) for i in range(metadata.num_row_groups)]
    if not all(chunk.is_stats_set and chunk.statistics.has_null_count for chunk in chunks):
        return replace(collector, mode=MetricsMode(MetricModeTypes.NONE))
    if collector.mode.type != MetricModeTypes.NONE and not all(map(_has_bounds, chunks)):
        return replace(collector, mode=MetricsMode(MetricModeTypes.COUNTS))
    return collector


def _has_bounds(chunk: Any) -> bool:
    found = chunk.statistics
    if not found.has_min_max:
        return bool(found.null_count == chunk.num_values)
    try:
        found.min, found.max  # noqa: B018 - each read converts a value
    except OverflowError:
        return False
    return True


# -- compaction --------------------------------------------------------------------------------------------------------
#
# A compaction joins the files of each partition into files of about the target size, and one commit replaces all of them. A catalog
# accepts the commit only if the table has not changed since it was read, so no append is lost. If another writer committed first,
# the same files are committed to the changed table, provided that all files they replace are still in it.


# A file larger than this fraction of the target size is not compacted.
SMALL = 0.75
PREFIX = "compacted"
OWN = re.compile(rf"(?:part-[^/]+|{PREFIX})-[0-9a-f]{{32}}\.parquet")


def _groups(loaded: Any, target_bytes: int) -> list[list[Any]]:
    """Return groups of scan tasks: the small files of one partition that fit into one file."""
    open_groups: dict[tuple[Any, ...], list[Any]] = {}
    groups: list[list[Any]] = []
    for task in loaded.scan().plan_files():
        file = task.file
        # Skip files with deleted rows, and files of another partition spec.
        if task.delete_files or file.spec_id != loaded.metadata.default_spec_id:
            continue
        if file.file_size_in_bytes >= target_bytes * SMALL:
            continue
        key = tuple(file.partition[i] for i in range(len(loaded.spec().fields)))
        group = open_groups.get(key)
        if group is None or sum(each.file.file_size_in_bytes for each in group) >= target_bytes:
            group = open_groups[key] = []
            groups.append(group)
        group.append(task)
    return [group for group in groups if len(group) > 1]


def _join(table: IcebergTable) -> tuple[int, int]:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    loaded = table.existing()
    groups = _groups(loaded, table.target_bytes)
    if not groups:
        return 0, 0
    scan = ArrowScan(loaded.metadata, loaded.io, loaded.schema(), AlwaysTrue())
    files = table.files_of(loaded, PREFIX)
    # Process one group at a time, so that memory holds only a batch and a row group.
    batches = (scan.to_record_batches(group) for group in groups)
    written = [data_file(each) for group in batches for each in write(files, group, table.target_bytes)]
    rows = sum(file.record_count for file in written), sum(task.file.record_count for group in groups for task in group)
    if rows[0] != rows[1]:
        raise StoreError(table.name, f"the compaction read {rows[0]} of {rows[1]} rows; nothing was changed")
    replaced = {task.file.file_path: task.file for group in groups for task in group}

    def attempt() -> None:
        loaded = table.existing()
        present = {task.file.file_path for task in loaded.scan().plan_files() if not task.delete_files}
        if written[0].file_path in present:
            return
        if not present.issuperset(replaced):
            raise StoreError(table.name, "another writer replaced files during the compaction; nothing was changed")
        with (
            _transaction(loaded) as transaction,
            transaction.update_snapshot(snapshot_properties={"mainstem.compaction": "true"}).overwrite() as change,
        ):
            for file in replaced.values():
                change.delete_data_file(file)
            for file in written:
                change.append_data_file(file)

    table.retry(attempt, "commit the compaction")
    return len(replaced), len(written)


def _expire(table: IcebergTable, keep_s: float) -> int:
    """Expire snapshots older than ``keep_s`` seconds, and delete data files that only they use. Returns the number of files."""
    from pyarrow.fs import FileSelector, FileType

    before = datetime.now(UTC) - timedelta(seconds=keep_s)
    loaded = table.existing()
    loaded.maintenance.expire_snapshots().older_than(before).commit()
    loaded = table.existing()
    named = {_path(path) for path in loaded.inspect.all_files().column("file_path").to_pylist()}
    data = loaded.metadata.properties.get("write.data.path", f"{loaded.metadata.location.rstrip('/')}/data")
    parts = urlsplit(data)
    files = loaded.io.fs_by_scheme(parts.scheme or "file", parts.netloc)
    deleted = 0
    for info in files.get_file_info(FileSelector(_path(data), allow_not_found=True, recursive=True)):
        is_old = info.mtime is not None and info.mtime <= before
        if info.type == FileType.File and is_old and OWN.fullmatch(info.base_name) and info.path not in named:
            files.delete_file(info.path)
            deleted += 1
    return deleted


def _path(location: str) -> str:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    return str(PyArrowFileIO.parse_location(location)[2])


# -- catalogs ----------------------------------------------------------------------------------------------------------


# The catalog in a warehouse directory, for the processes of one host.
CATALOG_FILE, LOCAL_NAME = "catalog.db", "mainstem"


def open_catalog(
    warehouse: str, *, name: str = "", options: Mapping[str, str] | None = None, store: Mapping[str, str] | None = None
) -> Any:
    """Open a catalog of pyiceberg's configuration, one that ``options`` define, or a file in the warehouse.

    ``options`` override the configuration, and ``store`` has the options of the warehouse's store. Raises ConfigurationError if
    there is neither ``name`` nor ``options``, and the warehouse is not a directory.
    """
    with needs_extras():
        from pyiceberg.catalog import load_catalog
    properties = {**iceberg_options(warehouse, store or {})} if warehouse or store else {}
    is_local = bool(warehouse) and scheme_of(warehouse) in ("", "file")
    path = open_store(warehouse).local_path() if is_local else None
    if warehouse:
        properties["warehouse"] = path.resolve().as_uri() if path is not None else warehouse
    if name or options:
        return _closed_with_its_last_user(load_catalog(name or LOCAL_NAME, **{**properties, **(options or {})}))
    if path is None:
        raise ConfigurationError(
            f"{warehouse or 'the table'}: `catalog` is required because the warehouse is not a directory"
        )
    path.mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{path.resolve() / CATALOG_FILE}"
    return _closed_with_its_last_user(load_catalog(LOCAL_NAME, type="sql", uri=uri, **properties))


def _closed_with_its_last_user(catalog: Any) -> Any:
    """Let a catalog in a database close its connections when it is collected. Tables share it, and none of them owns it."""
    if (engine := getattr(catalog, "engine", None)) is not None:
        weakref.finalize(catalog, engine.dispose)
    return catalog
