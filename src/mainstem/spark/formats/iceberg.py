"""Iceberg tables, by ``pyiceberg``: no JVM has a part in it.

A commit is a snapshot and a property of the table, changed together: the property's name has the query's id, its value is the
number of the micro-batch. Snapshots expire, properties stay. A catalog takes a commit only where the table is as it was read; else
the table is read again, and the micro-batch is committed only where it is not there yet. pyiceberg's own retries would leave out
that second look-up, so they are off for these commits.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from mainstem.errors import ConfigurationError, StoreError, needs_extras
from mainstem.spark.formats import iceberg_statistics, partitions
from mainstem.spark.formats.base import COMMIT_ATTEMPTS, DEFAULT_FILE_SIZE, ColumnRules, Compaction
from mainstem.spark.formats.columns import check_names, check_types, difference, united

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from mainstem.spark.formats.column_bounds import ColumnBounds
    from mainstem.spark.formats.names import Path

COMMITTED = "mainstem.committed."
QUERY, BATCH = "mainstem.query-id", "mainstem.batch-id"
# Every commit rewrites the table's metadata. This many old versions are kept, and manifests are merged.
NEW_TABLE = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "commit.manifest-merge.enabled": "true",
}
NO_RETRIES = {"commit.retry.num-retries": "0"}


class IcebergFile:
    """A new data file, written where it stays."""

    def __init__(self, io: Any, location: str) -> None:
        self.name, self.size = location, 0
        self._io = io
        self.sink = io.new_output(location).create()

    def close(self) -> None:
        self.size = self.sink.tell()
        self.sink.close()

    def discard(self) -> None:
        try:
            if not self.sink.closed:
                self.sink.close()
            self._io.delete(self.name)
        except OSError:
            # No commit names it.
            return


@dataclass(frozen=True)
class IcebergFiles:
    """The data files of an Iceberg table, in its current schema and partition spec."""

    metadata: Any
    io_properties: dict[str, str]
    prefix: str
    # pyiceberg takes bounds from the footer.
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

        rows, schema = partitions.conform(batch, self.schema), self.metadata.schema()
        keys = []
        for item in self.metadata.spec().fields:
            name, kind = schema.find_column_name(item.source_id), schema.find_type(item.source_id)
            column = rows.column(name) if name in rows.schema.names else _member(rows, name)
            keys.append(item.transform.pyarrow_transform(kind)(column))
        if not keys:
            yield (), rows
            return
        for values, part in partitions.split(rows, keys):
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
                **iceberg_statistics.statistics(metadata, self.metadata.schema(), self.metadata.properties),
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
    """The ``DataFile`` of what a task returned."""
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
    """Iceberg has no integers of one or two bytes, names members with a dot, and promotes some types."""

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


class IcebergTable:
    """An Iceberg table of a catalog.

    Args:
        catalog: The catalog of pyiceberg, or what makes it when it is first needed.
        identifier: The table's name there, with its namespace.
        partition_by: The columns that a new table is partitioned by; a table that exists keeps its spec.
        target_bytes: The size of files that a compaction makes.
    """

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
            raise ConfigurationError(f"{identifier!r} names no namespace, as in sea.tides")
        self._make_catalog, self.name = catalog, identifier
        self._partition_by, self._target = tuple(partition_by), target_bytes

    @cached_property
    def _catalog(self) -> Any:
        try:
            return self._make_catalog()
        except (ConfigurationError, StoreError):
            raise
        except Exception as error:
            # A catalog is whatever its library raises.
            raise StoreError(self.name, f"cannot open its catalog: {error}") from error

    def _load(self) -> Any:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            return self._catalog.load_table(self.name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def existing(self) -> Any:
        """The table as it is now. Raises ConfigurationError if there is none."""
        table = self._load()
        if table is None:
            raise ConfigurationError(f"{self.name} is not a table of its catalog")
        return table

    def columns(self) -> StructType | None:
        table = self._load()
        return None if table is None else _columns(table)

    def prepare(self, columns: StructType, *, evolve: bool) -> None:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
        from pyspark.sql.pandas.types import to_arrow_schema

        check_types(columns, "Iceberg")
        check_names(columns, "Iceberg", self.rules.name_key)
        columns = self.rules.stored(columns)
        for _ in range(COMMIT_ATTEMPTS):
            table = self._load()
            try:
                if table is None:
                    self._create(columns)
                    return
                before = _columns(table)
                whole = united(before, columns, self.rules.widens)
                if not (change := difference(before, whole)):
                    return
                if not evolve:
                    raise ConfigurationError(
                        f"{self.name} is another table than what is written: {change}; --evolve adds columns"
                    )
                with table.update_schema() as update:
                    update.union_by_name(to_arrow_schema(whole, timezone="UTC"))
                return
            except (CommitFailedException, TableAlreadyExistsError):
                # Another writer was first: what is left to do depends on what it did.
                continue
        raise StoreError(self.name, f"{COMMIT_ATTEMPTS} commits of other writers came before this one")

    def _create(self, columns: StructType) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
        schema = to_arrow_schema(columns, timezone="UTC")
        with (
            self._catalog.create_table_transaction(self.name, schema, properties=NEW_TABLE) as transaction,
            transaction.update_spec() as spec,
        ):
            for column in self._partition_by:
                spec.add_identity(column)

    def committed(self, query_id: str) -> int:
        table = self._load()
        return -1 if table is None else _committed(table, query_id)

    def files(self, query_id: str, batch_id: int) -> IcebergFiles:
        return self.files_of(self.existing(), f"part-{query_id[:8]}-{batch_id:06d}")

    @staticmethod
    def files_of(table: Any, prefix: str) -> IcebergFiles:
        return IcebergFiles(table.metadata, dict(table.io.properties), prefix)

    def commit(self, query_id: str, batch_id: int, files: Sequence[bytes]) -> bool:
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        error: Exception | None = None
        for _ in range(COMMIT_ATTEMPTS):
            table = self.existing()
            if _committed(table, query_id) >= batch_id:
                # Before, by another driver of the query, or by an attempt here whose response was lost.
                return False
            try:
                with without_retries(table).transaction() as transaction:
                    if files:
                        noted = {QUERY: query_id, BATCH: str(batch_id)}
                        with transaction.update_snapshot(snapshot_properties=noted).merge_append() as append:
                            for file in files:
                                append.append_data_file(data_file(file))
                    transaction.set_properties({f"{COMMITTED}{query_id}": str(batch_id)})
            except (CommitFailedException, CommitStateUnknownException) as reason:
                error = reason
                continue
            return True
        raise StoreError(self.name, f"cannot commit micro-batch {batch_id} of {query_id}: {error}") from error

    def compact(self, *, keep_s: float | None = None) -> Compaction:
        from mainstem.spark.formats import iceberg_compaction

        return iceberg_compaction.compact(self, self._target, keep_s)


def without_retries(table: Any) -> Any:
    """The table, whose commits fail at once where another one came first. The property is this process's alone."""
    properties = {**table.metadata.properties, **NO_RETRIES}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def _committed(table: Any, query_id: str) -> int:
    return int(table.metadata.properties.get(f"{COMMITTED}{query_id}", -1))


def _columns(table: Any) -> StructType:
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyspark.sql.pandas.types import from_arrow_schema

    schema: StructType = from_arrow_schema(
        schema_to_pyarrow(table.schema(), include_field_ids=False), prefer_timestamp_ntz=True
    )
    return schema


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
