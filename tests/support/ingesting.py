"""Recordings that ``ingest`` loads into tables, and commits that Spark forgets."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from mainstem.errors import ConfigurationError
from mainstem.recording import Recorder
from mainstem.recording.message_server import MessageLog
from mainstem.spark.ingest.options import IngestOptions
from mainstem.spark.ingest.query import Count, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


def log(path: Path, payloads: list[bytes], stream_id: int = 1001) -> None:
    with Recorder(path) as recorder:
        MessageLog(recorder, stream_id=stream_id).write((0, payload) for payload in payloads)


def ingest(spark: SparkSession, tmp_path: Path, **options: Any) -> tuple[list[Any], Count]:
    given = IngestOptions(source=str(tmp_path / "recordings"), out=tmp_path / "table", **options)
    query, count = start(spark, given), Count()
    assert query.awaitTermination(200)
    count.update(query)
    rows = spark.read.parquet(str(tmp_path / "table")).orderBy("stream_id", "position").collect()
    return rows, count


def forget_last_batch(checkpoint: Path) -> None:
    """Simulate a driver that ended between the table's commit and the checkpoint's commit."""
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        path.unlink(missing_ok=True)


def numbered(numbers: range) -> list[bytes]:
    return [b'{"n": %d}' % number for number in numbers]


def numbers_in(spark: SparkSession, table: Path, table_format: str) -> list[int]:
    """Return the sorted values of ``n`` in an ingested table; in Iceberg, the table is ``sea.tides``."""
    if table_format == "parquet":
        return [row.n for row in spark.read.parquet(str(table)).orderBy("n").collect()]
    if table_format == "delta":
        import deltalake

        return sorted(deltalake.DeltaTable(table).to_pyarrow_table().column("n").to_pylist())
    from mainstem.spark.formats.iceberg import open_catalog

    catalog = open_catalog(str(table))
    try:
        return sorted(catalog.load_table("sea.tides").scan().to_arrow().column("n").to_pylist())
    finally:
        catalog.close()


def finish(start_query: Callable[[], StreamingQuery]) -> None:
    """Run a query to its end, and again if Spark gives up on a worker that needs too long to start, as on a busy machine."""
    for _ in range(20):
        query = start_query()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
        else:
            return
    raise AssertionError("Spark's workers do not start")


class IngestTrial:
    """A table, and checkpoints beside it."""

    def __init__(self, spark: SparkSession, root: Path, table_format: str) -> None:
        self.spark, self.root, self.format = spark, root, table_format
        self.table = root / "table"

    def options(self, source: str = "recordings", checkpoint: str = "checkpoint", **options: Any) -> IngestOptions:
        table = {"table": "sea.tides"} if self.format == "iceberg" else {}
        given = {
            "format": self.format,
            "checkpoint": str(self.root / checkpoint),
            "codec": "json",
            "schema": "n bigint",
        }
        return IngestOptions(source=str(self.root / source), out=self.table, **given, **table, **options)

    def run(self, *where: str, **options: Any) -> None:
        finish(lambda: start(self.spark, self.options(*where, **options)))

    def refuses(self, reason: str, *where: str, **options: Any) -> None:
        with pytest.raises(ConfigurationError, match=reason):
            start(self.spark, self.options(*where, **options))

    def drop(self) -> None:
        """Delete the table in the middle of a query, which may have its catalog open."""
        if self.format == "delta":
            shutil.rmtree(self.table)
            return
        from mainstem.spark.formats.iceberg import open_catalog

        catalog = open_catalog(str(self.table))
        try:
            catalog.drop_table("sea.tides")
        finally:
            catalog.close()

    def numbers(self) -> list[int]:
        return numbers_in(self.spark, self.table, self.format)
