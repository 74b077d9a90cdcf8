"""Writes rows to a table format with commits, or to a directory of Parquet files with Spark's own sink."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

from mainstem.codecs.rows import RESCUE_COLUMNS
from mainstem.errors import ConfigurationError
from mainstem.spark.foreach_batch import BatchWriter
from mainstem.spark.formats.base import ColumnRules
from mainstem.spark.ingest.options import META, PARTITIONS, QUERY_FILE, SCHEMA_FILE
from mainstem.spark.ingest.resume import NONE, Checkpoint, check_table, read_checkpoint
from mainstem.store import open_store
from mainstem.store.base import read_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
    from pyspark.sql.types import StructType

    from mainstem.spark.formats.base import Table
    from mainstem.spark.ingest.options import IngestOptions, TableOptions


SINK_LOG = "_spark_metadata"
MAX_STORED_LENGTH = 16 << 20
ANOTHER_TABLE = "use another `out` or `format=delta`"


class Target(ABC):
    def __init__(self, options: IngestOptions, rules: ColumnRules) -> None:
        self._options, self.rules = options, rules

    @abstractmethod
    def columns(self) -> StructType | None:
        """Return the codec's columns in the table, or None if there is no table yet or it was written without a codec."""

    def check(self) -> None:
        """Raise ConfigurationError if the table is of another format, or the query cannot continue in it."""
        self._check_format()
        if self._options.has_local_checkpoint:
            checkpoint = read_checkpoint(self._options.checkpoint_location)
            self._check_rows(checkpoint)

    @abstractmethod
    def _check_format(self) -> None: ...

    @abstractmethod
    def _check_rows(self, checkpoint: Checkpoint) -> None: ...

    @abstractmethod
    def writer(self, rows: DataFrame) -> DataStreamWriter: ...

    def started(self, rows: DataFrame, query: StreamingQuery) -> None: ...  # noqa: B027 - only ParquetDirectory overrides it


def open_target(options: IngestOptions) -> Target:
    """Open the target table. Raises MissingExtraError if the format's library is not installed."""
    if options.format == "parquet":
        return ParquetDirectory(options, ColumnRules())
    return CommittedTable(open_table(options), options)


def open_table(options: TableOptions) -> Table:
    if options.format == "iceberg":
        from mainstem.spark.formats.iceberg import IcebergTable, open_catalog

        access = {"options": options.catalog_options, "store": options.store_options}
        catalog = partial(open_catalog, str(options.out), name=options.catalog, **access)
        return IcebergTable(catalog, options.table, PARTITIONS, options.target_file_size)
    from mainstem.spark.formats.delta import DeltaTable

    return DeltaTable(str(options.out), options.store_options, PARTITIONS, options.target_file_size)


def _codec_columns(whole: StructType) -> StructType:
    return type(whole)([item for item in whole.fields if item.name not in (*META, *RESCUE_COLUMNS)])


class ParquetDirectory(Target):
    """A directory of Parquet files per partition, and a file with the columns, because Parquet has no log for them."""

    def columns(self) -> StructType | None:
        from pyspark.sql.types import StructType

        text = self._stored(SCHEMA_FILE)
        return None if text is None else StructType.fromJson(json.loads(text))

    def _stored(self, name: str) -> bytes | None:
        try:
            return read_all(open_store(self._options.local_directory), name, limit=MAX_STORED_LENGTH)
        except FileNotFoundError:
            return None

    def _check_format(self) -> None:
        if (self._options.local_directory / "_delta_log").exists():
            raise ConfigurationError(f"`out`: {self._options.out} is a Delta table; use `format=delta`")

    def _check_rows(self, checkpoint: Checkpoint) -> None:
        directory = self._options.local_directory
        owner = self._stored(QUERY_FILE)
        if owner is not None and not checkpoint.is_new and json.loads(owner)["id"] != checkpoint.query_id:
            raise ConfigurationError(
                f"`out`: {directory} was written with another checkpoint than {checkpoint.location}, and a directory of Parquet "
                f"files belongs to one; {ANOTHER_TABLE}"
            )
        last = self._last_batch()
        is_empty = last == NONE and next(directory.glob("**/*.parquet"), None) is None
        check_table(f"`out`: {directory}", checkpoint, last, is_empty=is_empty, remedy=ANOTHER_TABLE)

    def _last_batch(self) -> int:
        """Return the number of the last micro-batch in the log of Spark's file sink, or -1."""
        names = (file.name for file in open_store(self._options.local_directory).list(f"{SINK_LOG}/", recursive=False))
        numbers = (name.removeprefix(f"{SINK_LOG}/").removesuffix(".compact") for name in names)
        return max((int(number) for number in numbers if number.isdecimal()), default=NONE)

    def writer(self, rows: DataFrame) -> DataStreamWriter:
        return (
            rows.writeStream.format("parquet")
            .partitionBy(*PARTITIONS)
            .option("path", str(self._options.local_directory))
        )

    def started(self, rows: DataFrame, query: StreamingQuery) -> None:
        store = open_store(self._options.local_directory)
        store.put(QUERY_FILE, json.dumps({"id": str(query.id)}).encode())
        if self._options.codec:
            store.put(SCHEMA_FILE, _codec_columns(rows.schema).json().encode())


class CommittedTable(Target):
    """A table whose commits name their micro-batches."""

    def __init__(self, table: Table, options: IngestOptions) -> None:
        super().__init__(options, table.rules)
        self._table = table

    def columns(self) -> StructType | None:
        whole = self._table.columns()
        if whole is None:
            return None
        missing = [name for name in META if name not in whole.names]
        if missing:
            raise ConfigurationError(f"{self._table.name} was not written by ingest: column {missing[0]!r} is missing")
        return _codec_columns(whole) if RESCUE_COLUMNS[0] in whole.names else None

    def _check_format(self) -> None:
        if self._options.is_local and (self._options.local_directory / SINK_LOG).exists():
            raise ConfigurationError(
                f"`out`: {self._options.out} is a directory of Parquet files; use `format=parquet`"
            )

    def _check_rows(self, checkpoint: Checkpoint) -> None:
        last = self._table.committed(checkpoint.query_id) if checkpoint.query_id else NONE
        is_empty = self._options.append or self._table.is_empty()
        remedy = "use another table; if its rows are other messages, add `append`"
        check_table(self._table.name, checkpoint, last, is_empty=is_empty, remedy=remedy)

    def writer(self, rows: DataFrame) -> DataStreamWriter:
        options = self._options
        self._table.prepare(rows.schema, evolve=options.evolve)
        write: Any = BatchWriter(
            self._table,
            evolve=options.evolve,
            compact_every=options.compact_every,
            is_whole=True,
            append=options.append,
        )
        return rows.writeStream.foreachBatch(write)
