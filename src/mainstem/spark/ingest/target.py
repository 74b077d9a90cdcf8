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
from mainstem.spark.ingest.options import META, PARTITIONS, SCHEMA_FILE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter
    from pyspark.sql.types import StructType

    from mainstem.spark.formats.base import Table
    from mainstem.spark.ingest.options import IngestOptions


class Target(ABC):
    def __init__(self, options: IngestOptions, rules: ColumnRules) -> None:
        self._options, self.rules = options, rules

    @abstractmethod
    def columns(self) -> StructType | None:
        """Return the codec's columns in the table, or None if there is no table yet or it was written without a codec."""

    @abstractmethod
    def writer(self, rows: DataFrame) -> DataStreamWriter: ...

    def started(self, rows: DataFrame) -> None: ...  # noqa: B027 - only ParquetDirectory overrides it


def open_target(options: IngestOptions) -> Target:
    """Open the target table. Raises MissingExtraError if the format's library is not installed."""
    if options.format == "parquet":
        return ParquetDirectory(options, ColumnRules())
    return CommittedTable(open_table(options), options)


def open_table(options: IngestOptions) -> Table:
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

        file = self._options.local_directory / SCHEMA_FILE
        return StructType.fromJson(json.loads(file.read_text())) if file.exists() else None

    def writer(self, rows: DataFrame) -> DataStreamWriter:
        if (self._options.local_directory / "_delta_log").exists():
            raise ConfigurationError(f"--out: {self._options.out} is a Delta table; use --format delta")
        return (
            rows.writeStream.format("parquet")
            .partitionBy(*PARTITIONS)
            .option("path", str(self._options.local_directory))
        )

    def started(self, rows: DataFrame) -> None:
        if self._options.codec:
            (self._options.local_directory / SCHEMA_FILE).write_text(_codec_columns(rows.schema).json())


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

    def writer(self, rows: DataFrame) -> DataStreamWriter:
        if self._options.is_local and (self._options.local_directory / "_spark_metadata").exists():
            raise ConfigurationError(
                f"--out: {self._options.out} is a directory of Parquet files; use --format parquet"
            )
        self._table.prepare(rows.schema, evolve=self._options.evolve)
        write: Any = BatchWriter(self._table, evolve=self._options.evolve, compact_every=self._options.compact_every)
        return rows.writeStream.foreachBatch(write)
