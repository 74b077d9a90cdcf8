"""Functions for ``foreachBatch`` in a user's own query: each row once, even if Spark repeats a micro-batch."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.ingesting import forget_last_batch

from mainstem.spark.foreach_batch import idempotent, in_transaction, to_delta

deltalake = pytest.importorskip("deltalake")

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


def test_a_repeated_micro_batch_is_written_once_by_each_of_them(spark: SparkSession, tmp_path: Path) -> None:
    source, table, database = tmp_path / "source", tmp_path / "tides", tmp_path / "tides.db"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE tides (n INTEGER)")
    counts: list[int] = []

    def insert(batch: Any, connection: Any) -> None:
        connection.executemany("INSERT INTO tides VALUES (?)", ((row.n,) for row in batch.toLocalIterator()))

    writers = (
        to_delta(table, partition_by=["place"]),
        in_transaction(lambda: sqlite3.connect(database), insert),
        idempotent(lambda batch, _: counts.append(batch.count()), tmp_path / "ledger"),
    )

    def write(batch: Any, batch_id: int) -> None:
        for writer in writers:
            writer(batch, batch_id)

    def run() -> None:
        rows = spark.readStream.schema("n bigint, place string").json(str(source))
        query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert query.trigger(availableNow=True).start().awaitTermination(400)

    source.mkdir()
    (source / "1.json").write_text('{"n": 1, "place": "a/b"}\n{"n": 2}\n')
    run()
    # The driver ends between the sinks' commits and the checkpoint's, so Spark runs the micro-batch again.
    forget_last_batch(tmp_path / "checkpoint")
    (source / "2.json").write_text('{"n": 3, "place": "a/b"}\n')
    run()
    rows = sorted((row["n"], row["place"]) for row in deltalake.DeltaTable(table).to_pyarrow_table().to_pylist())
    assert rows == [(1, "a/b"), (2, None), (3, "a/b")]
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT n FROM tides ORDER BY n").fetchall() == [(1,), (2,), (3,)]
    assert counts == [2, 1]
