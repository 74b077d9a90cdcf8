"""Every table from handmade frames: its contents, and equal results of streaming and batch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.support.case_selection import long_after
from tests.support.frames import everything, to_arrow
from tests.support.read_limits import HAS_READ_LIMITS, limits
from tests.support.streams import Stream, record

from mainstem.analysis.folds.path import CHANNEL
from mainstem.capture import schema
from mainstem.recording import Recorder
from mainstem.spark.tables import OF_FRAMES, TABLES, latest, messages, problems, sessions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PARTS = 3


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a capture: frames in several files, in order of time."""
    directory, rows = tmp_path_factory.mktemp("frames"), everything()
    size = -(-len(rows) // PARTS)
    for part in range(PARTS):
        path = directory / f"{part}.parquet"
        pq.write_table(to_arrow(rows[part * size : (part + 1) * size]), path)
        # A file stream reads the oldest file first.
        os.utime(path, (1_700_000_000 + part, 1_700_000_000 + part))
    return directory


def batch_of(spark: SparkSession, directory: Path) -> DataFrame:
    return spark.read.schema(schema.ddl()).parquet(str(directory))


def stream_of(spark: SparkSession, directory: Path) -> DataFrame:
    return spark.readStream.schema(schema.ddl()).option("maxFilesPerTrigger", 1).parquet(str(directory))


def run(rows: DataFrame, out: Path, *, parts: int = PARTS) -> None:
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(out / "table"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    assert query.exception() is None
    assert query.lastProgress["batchId"] >= parts - 1


def values(rows: DataFrame) -> list[Any]:
    return sorted((tuple(row) for row in rows.collect()), key=str)


@pytest.mark.long
@pytest.mark.parametrize("name", long_after(1, OF_FRAMES))
def test_streaming_and_batch_give_the_same_rows(spark: SparkSession, capture: Path, tmp_path: Path, name: str) -> None:
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


@pytest.mark.long
def test_tables_of_recordings_are_the_same_in_streaming(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "recordings"
    with Recorder(path) as recorder:
        for number in (1, 2):
            writer = Stream(session_id=number).start(recorder)
            sent = [bytes(17 * n % 400) for n in range(200)]
            record(writer, Stream(session_id=number), sent, time_ns=1_700_000_000_000_000_000, step_ns=1_000_000)

    def stream(**options: Any) -> DataFrame:
        return spark.readStream.format("mainstem.recording").options(**options).load(str(path))

    def batch(**options: Any) -> DataFrame:
        return spark.read.format("mainstem.recording").options(**options).load(str(path))

    for name, table, function, given in (
        ("messages", TABLES["messages"], messages, {}),
        ("of messages", TABLES["recorded_sessions"], sessions, {}),
        ("of frames", TABLES["recorded_sessions"], sessions, {"rows": "frames"}),
    ):
        whole = function(batch(**given))
        parts = PARTS if HAS_READ_LIMITS else 1
        run(function(stream(**limits(maxRowsPerTrigger=90), **given)), tmp_path / name, parts=parts)
        found = spark.read.schema(whole.schema).parquet(str(tmp_path / name / "table"))
        found = latest(found, table.identity) if table.is_stateful else found
        assert values(found) == values(whole)
        assert [(f.name, f.dataType.simpleString()) for f in whole.schema.fields] == [
            (c.name, c.type) for c in table.columns
        ]
        assert whole.count() == (400 if name == "messages" else 2)
    with (path / "1-0.rec").open("r+b") as file:
        file.seek(20 * 160)
        file.write(b"\x05\0\0\0")
    whole = problems(batch(rows="problems"))
    query = (
        problems(stream(rows="problems")).writeStream.format("memory").queryName("faults").trigger(availableNow=True)
    ).start()
    assert query.awaitTermination(240)
    assert values(spark.table("faults")) == values(whole)
    assert {(row.recording_id, row.kind) for row in whole.collect()} >= {(1, "checksum")}


def test_frames_to_a_control_address_belong_to_the_group_whose_last_byte_may_wrap(spark: SparkSession) -> None:
    control = spark.createDataFrame([("224.10.9.0",), ("224.10.9.102",)], "dst string")
    columns = ("*", "3 as type", "0 as flags", "'10.0.0.2' as src", "40123 as src_port", "40456 as dst_port")
    groups = control.selectExpr(*columns).selectExpr(f"{CHANNEL} as channel").collect()
    assert [row.channel for row in groups] == ["224.10.9.255:40456", "224.10.9.101:40456"]
