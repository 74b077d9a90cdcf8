"""Every table, from frames made by hand: what it holds, and that streaming gives what batch gives."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.support.frames import everything, to_arrow

from mainstem.capture import schema
from mainstem.spark.tables import OF_FRAMES, TABLES, latest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PARTS = 3


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames in a few files, in the order of time."""
    folder, rows = tmp_path_factory.mktemp("frames"), everything()
    size = -(-len(rows) // PARTS)
    for part in range(PARTS):
        path = folder / f"{part}.parquet"
        pq.write_table(to_arrow(rows[part * size : (part + 1) * size]), path)
        # A stream of files takes the oldest first.
        os.utime(path, (1_700_000_000 + part, 1_700_000_000 + part))
    return folder


def batch_of(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.schema(schema.ddl()).parquet(str(folder))


def stream_of(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(schema.ddl()).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(rows: DataFrame, out: Path) -> None:
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(out / "table"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    assert query.exception() is None
    assert query.lastProgress["batchId"] >= PARTS - 1


def values(rows: DataFrame) -> list[Any]:
    return sorted((tuple(row) for row in rows.collect()), key=str)


@pytest.mark.parametrize("name", OF_FRAMES)
def test_streaming_gives_what_batch_gives(spark: SparkSession, capture: Path, tmp_path: Path, name: str) -> None:
    table = TABLES[name]
    whole = OF_FRAMES[name](batch_of(spark, capture))
    expected = values(whole)
    assert [(f.name, f.dataType.simpleString()) for f in whole.schema.fields] == [
        (c.name, c.type) for c in table.columns
    ]
    assert len(expected) > 0
    run(OF_FRAMES[name](stream_of(spark, capture)), tmp_path)
    found = spark.read.schema(whole.schema).parquet(str(tmp_path / "table"))
    if table.is_stateful:
        assert found.count() >= len(expected)
        found = latest(found, table.identity)
    assert values(found) == expected
    assert whole.select(*table.identity).distinct().count() == len(expected)
