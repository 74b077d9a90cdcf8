"""Writes Delta tables with ``deltalake`` (delta-rs), without a JVM.

Each commit contains a transaction: the query's id and the number of the micro-batch. deltalake refuses the commit if another commit
has changed that transaction since the table was read. The table is then read again, and the micro-batch is committed only if it
is still missing. Transactions survive checkpoints of the log and compactions. So ``committed`` reads the log once per
micro-batch, and its result stays valid until the commit.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from mainstem._internal.clock import NS_PER_MS, SYSTEM_CLOCK
from mainstem.errors import ConfigurationError, StoreError, needs_extras
from mainstem.spark.formats.base import DEFAULT_FILE_SIZE, CommitConflictError, Compaction, Table, conflicts
from mainstem.spark.formats.data_files import COMPRESSION, NewFile, conform, split, upper_text
from mainstem.spark.formats.storage_options import S3_SCHEMES, delta_options
from mainstem.store import open_store
from mainstem.store.open_store import scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from mainstem.spark.formats.data_files import ColumnBounds

NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class DeltaFiles:
    url: str
    options: Mapping[str, str]
    schema: Any
    partition_schema: Any
    prefix: str
    bounded: tuple[str, ...]

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
        import pyarrow as pa

        rows = conform(batch, self.schema)
        if not self.partition_schema.names:
            yield (), rows
            return
        keys = conform(batch, self.partition_schema)
        texts = [_texts(column) for column in keys.columns]
        for values, part in split(rows, texts):
            # Delta stores an empty string as null.
            yield tuple(value or None for value in values), pa.RecordBatch.from_arrays(part.columns, schema=self.schema)

    def create(self, partition: tuple[str | None, ...]) -> NewFile:
        directories = [
            f"{_directory_name(name)}={NULL_DIRECTORY if value is None else _quoted(value)}"
            for name, value in zip(self.partition_schema.names, partition, strict=True)
        ]
        return NewFile(self._store, "/".join([*directories, f"{self.prefix}-{uuid4().hex}.parquet"]))

    @cached_property
    def _store(self) -> Any:
        return open_store(self.url, self.options)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_store"}

    def describe(self, partition: tuple[str | None, ...], file: NewFile, metadata: Any, bounds: ColumnBounds) -> bytes:  # noqa: ARG002
        action = {
            "path": file.name,
            "size": file.size,
            "partition_values": dict(zip(self.partition_schema.names, partition, strict=True)),
            "modification_time": SYSTEM_CLOCK.epoch_ns() // NS_PER_MS,
            "data_change": True,
            "stats": file_statistics(bounds),
        }
        return json.dumps(action).encode()


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _directory_name(column: str) -> str:
    """Escape a column's name for a directory name. Readers such as Polars do not decode it, so escape as little as possible."""
    return "".join(_quoted(each) if each in "/\\=%" or each < " " else each for each in column)


def _texts(values: Any) -> Any:
    """Return the values of a partition column as strings, in the form of Delta's log."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(values.type):
        zoned = "" if values.type.tz is None else "Z"
        # The text of a time without a zone has no zone either.
        return pa.array(
            [
                None if v is None else v.replace(tzinfo=None).isoformat(timespec="microseconds") + zoned
                for v in values.to_pylist()
            ],
            pa.string(),
        )
    if pa.types.is_binary(values.type) or pa.types.is_nested(values.type):
        raise ConfigurationError(f"a Delta table cannot be partitioned by a column of type {values.type}")
    return pc.cast(values, pa.string())


class DeltaTable(Table):
    """A Delta table at a URL or in a directory. Delta has the same types as Spark; few readers support its type widening."""

    format = "Delta"

    def __init__(
        self,
        url: str,
        options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
        target_bytes: int = DEFAULT_FILE_SIZE,
    ) -> None:
        with needs_extras():
            import deltalake  # noqa: F401
        super().__init__(url, partition_by, target_bytes)
        self._store_options = dict(options or {})
        self._storage = delta_options(url, self._store_options)
        self._url = f"s3://{url.partition('://')[2]}" if scheme_of(url) in S3_SCHEMES else url

    def _load(self) -> Any:
        import deltalake
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return deltalake.DeltaTable(self._url, storage_options=self._storage)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise StoreError(self.name, f"cannot read the Delta table: {error}") from error

    def _columns(self, table: Any) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(table.schema().to_json()))

    def _last_batch(self, table: Any, query_id: str) -> int:
        version = table.transaction_version(query_id)
        return -1 if version is None else int(version)

    def _is_empty(self, table: Any) -> bool:
        return not table.file_uris()

    @contextmanager
    def _changes(self, table: Any = None) -> Iterator[None]:
        """Convert errors of a change of the table, or of its creation, which fails if another writer creates it first."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            with conflicts(CommitFailedError):
                yield
        except (DeltaError, OSError) as error:
            if table is None and self._load() is not None:
                raise CommitConflictError from error
            raise StoreError(self.name, f"cannot change the Delta table: {error}") from error

    def _change_columns(self, table: Any, columns: StructType) -> None:
        import deltalake

        old = {item.name: item.dataType for item in self._columns(table).fields}
        fields = [item for item in columns.fields if old.get(item.name) != item.dataType]
        with self._changes(table):
            table.alter.add_columns([deltalake.Field.from_json(item.json()) for item in fields])

    def _create(self, columns: StructType) -> None:
        import deltalake
        import pyarrow as pa

        with self._changes():
            directory = open_store(self.name, self._store_options).local_path()
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            schema = deltalake.Schema.from_json(columns.json())
            stored = [item for item in pa.schema(schema.to_arrow()) if item.name not in self._partition_by]
            deltalake.DeltaTable.create(
                self._url,
                schema,
                mode="error",
                partition_by=self._partition_by,
                configuration={PROPERTY: property_of(indexable(stored)[:MAX_COLUMNS])},
                storage_options=self._storage,
            )

    def files(self, query_id: str, batch_id: int) -> DeltaFiles:
        import pyarrow as pa

        table = self._table = self._table or self.existing()
        metadata = table.metadata()
        names = metadata.partition_columns
        schema = pa.schema(table.schema().to_arrow())
        stored = pa.schema([item for item in schema if item.name not in names])
        return DeltaFiles(
            self.name,
            self._store_options,
            stored,
            pa.schema([schema.field(name) for name in names]),
            f"part-{query_id[:8]}-{batch_id:06d}",
            indexed(stored, metadata.configuration),
        )

    def _append(self, table: Any, query_id: str, batch_id: int, files: Sequence[bytes]) -> None:
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction, CommitProperties, Transaction

        properties = CommitProperties(
            custom_metadata={"mainstem.query-id": query_id, "mainstem.batch-id": str(batch_id)},
            app_transactions=[Transaction(query_id, batch_id)],
        )
        with conflicts(DeltaError, OSError):
            table.create_write_transaction(
                [AddAction(**json.loads(file)) for file in files],
                "append",
                table.schema(),
                table.metadata().partition_columns or None,
                commit_properties=properties,
            )

    def compact(self, *, keep_s: float | None = None) -> Compaction:
        from deltalake.exceptions import DeltaError

        table = self.existing()
        try:
            if PROPERTY not in table.metadata().configuration:
                table.alter.set_table_properties({PROPERTY: property_of(_bounded_columns(table)[:MAX_COLUMNS])})
            result = table.optimize.compact(target_size=self.target_bytes, writer_properties=_writer_properties(table))
            deleted: list[str] = []
            if keep_s is not None:
                hours = ceil(max(keep_s, 0) / 3600)
                # ``full`` also deletes files that no commit ever referred to.
                deleted = table.vacuum(
                    retention_hours=hours, enforce_retention_duration=False, dry_run=False, full=True
                )
        except (DeltaError, OSError) as error:
            raise StoreError(self.name, f"cannot compact the Delta table: {error}") from error
        return Compaction(result["numFilesRemoved"], result["numFilesAdded"], len(deleted))


def _bounded_columns(table: Any) -> list[str]:
    """Return the columns that have bounds in the statistics of every file that has any bounds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    partitions = table.metadata().partition_columns
    stored = [item for item in pa.schema(table.schema().to_arrow()) if item.name not in partitions]
    files = pa.table(table.get_add_actions())
    statistics = {part: files.column(part) for part in ("min", "max", "null_count") if part in files.schema.names}

    def is_bounded(name: str) -> bool:
        if len(statistics) < 3 or any(column.type.get_field_index(name) < 0 for column in statistics.values()):
            return False
        least, greatest, nulls = (pc.struct_field(column, [name]) for column in statistics.values())
        has_bounds = pc.and_(least.is_valid(), greatest.is_valid())
        has_only_nulls = pc.fill_null(pc.equal(nulls, files.column("num_records")), False)
        return all(pc.or_(pc.or_(has_bounds, has_only_nulls), statistics["min"].is_null()).to_pylist())

    return [name for name in indexable(stored) if is_bounded(name)]


def _writer_properties(table: Any) -> Any:
    """Make a compaction write files like tasks do, without float statistics. deltalake does not accept paths of nested fields."""
    import pyarrow as pa
    from deltalake import ColumnProperties, WriterProperties

    kept = [item.name for item in pa.schema(table.schema().to_arrow()) if not pa.types.is_floating(item.type)]
    return WriterProperties(
        compression=COMPRESSION.upper(),
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties=dict.fromkeys(kept, ColumnProperties(statistics_enabled="CHUNK")),
    )


# -- statistics that let readers skip files ----------------------------------------------------------------------------
#
# If a file has bounds for any column, deltalake assumes that no value matches in a column without bounds. So the table property
# ``delta.dataSkippingStatsColumns`` lists columns for which every file has bounds, and a file that cannot state the bounds of one
# of them states none. The property omits columns whose bounds deltalake cannot write during a compaction: floats, because bounds
# exclude NaN, and decimals that it would write with an exponent or with fewer digits.


PROPERTY = "delta.dataSkippingStatsColumns"
# Every reader loads all statistics, so keep them small: only the first columns, and only the beginnings of strings.
MAX_COLUMNS = 32
MAX_TEXT = 32
# Decimals within these limits survive a conversion to a float and back through its shortest text.
MAX_DIGITS, MAX_SCALE = 15, 5
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def indexable(schema: Any) -> list[str]:
    """Return the columns of an Arrow schema whose bounds can be stated for any values."""
    # deltalake splits the property at every comma, even a quoted one.
    return [item.name for item in schema if "," not in item.name and _is_indexable(item.type)]


def _is_indexable(kind: Any) -> bool:
    import pyarrow.types as is_

    if is_.is_decimal(kind):
        return bool(kind.precision <= MAX_DIGITS and kind.scale <= MAX_SCALE)
    plain = is_.is_boolean, is_.is_integer, is_.is_date, is_.is_timestamp, is_.is_string, is_.is_large_string
    return any(is_kind(kind) for is_kind in plain)


def property_of(names: Iterable[str]) -> str:
    return ",".join(map(_property_entry, names))


def _property_entry(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`{}`".format(name.replace("`", "``"))


def indexed(schema: Any, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns whose bounds every file must state. Empty if the table lists no columns, or also others."""
    named = {_property_entry(name): name for name in indexable(schema)}
    entries = [each.strip() for each in properties.get(PROPERTY, "").split(",")]
    return tuple(named[entry] for entry in entries) if named.keys() >= set(entries) else ()


def file_statistics(bounds: ColumnBounds) -> str:
    counts = {"numRecords": bounds.rows, "nullCount": bounds.nulls}
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for name in bounds.nulls:
        try:
            values = bounds.of(name)
        except OverflowError:
            # Delta's log cannot represent this time.
            return _json(counts)
        if values is None:
            continue
        least[name], greatest[name] = _lower(values[0]), _upper(values[1])
        if greatest[name] is None:
            return _json(counts)
    return _json({**counts, "minValues": least, "maxValues": greatest} if least else counts)


def _json(value: Any) -> str:
    """Format JSON with all digits of decimals, and without exponents."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_json(each)}" for name, each in value.items()) + "}"
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value)


def _lower(value: Any) -> Any:
    """Return the value as the log stores it, or one just below it."""
    if isinstance(value, datetime):
        return _time(value - timedelta(microseconds=value.microsecond % 1000))
    if isinstance(value, date):
        return value.isoformat()
    return value[:MAX_TEXT] if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    """Return the value as the log stores it, or one just above it; None if there is none."""
    if isinstance(value, datetime):
        # At the end of year 9999 this cannot round up. Readers add a millisecond, because other writers round down too.
        with suppress(OverflowError):
            value += timedelta(microseconds=-value.microsecond % 1000)
        return _time(value)
    return upper_text(value, MAX_TEXT) if isinstance(value, str) else _lower(value)


def _time(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text + ("Z" if value.tzinfo is not None else "")
