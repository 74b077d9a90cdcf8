"""Several streaming queries at once: over one DataFrame, joined, stopped and started in quick succession; captures that change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support import captures as make
from tests.support.streams import Stream, record

from mainstem.recording import Recorder
from mainstem.spark import root_cause

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.long]

TIMEOUT_S = 300
PACKET = make.link(make.ip(make.udp(make.data_frame())), make.ETHERNET)


def start(df: DataFrame, directory: Path) -> StreamingQuery:
    """Start a query that appends to a table until it is stopped."""
    writer = df.writeStream.format("parquet").option("checkpointLocation", f"{directory}-checkpoint")
    return writer.trigger(processingTime="0 seconds").start(str(directory))


def test_queries_over_one_dataframe_stop_and_start_in_quick_succession(spark: SparkSession, tmp_path: Path) -> None:
    path, stream = tmp_path / "recordings", Stream(session_id=7)
    df = spark.readStream.format("mainstem.recording").load(str(path))
    with Recorder(path) as recorder:
        writer = stream.start(recorder)
        record(writer, stream, [bytes(100)] * 100)
        queries = {name: start(df.select("position"), tmp_path / name) for name in ("one", "other")}
        try:
            for _ in range(2):
                record(writer, stream, [bytes(100)] * 100)
                # It may not have read anything yet, or it is reading.
                queries["one"].stop()
                queries["one"] = start(df.select("position"), tmp_path / "one")
            record(writer, stream, [bytes(100)] * 100)
            for query in queries.values():
                query.processAllAvailable()
        finally:
            for query in queries.values():
                query.stop()
    expected = [160 * n for n in range(1, 401)]
    for name in queries:
        assert sorted(row.position for row in spark.read.parquet(str(tmp_path / name)).collect()) == expected
    # A batch of the same recordings has the same rows.
    batch = spark.read.format("mainstem.recording").load(str(path))
    assert sorted(row.position for row in batch.select("position").collect()) == expected


def test_two_streams_join(spark: SparkSession, tmp_path: Path) -> None:
    with Recorder(tmp_path / "recordings") as recorder:
        for stream_id, count in ((1001, 90), (1002, 60)):
            stream = Stream(session_id=stream_id, stream_id=stream_id)
            record(stream.start(recorder), stream, [str(n).encode() for n in range(count)])

    def side(stream_id: int, column: str) -> DataFrame:
        reader = spark.readStream.format("mainstem.recording").option("streamId", stream_id)
        rows = reader.load(str(tmp_path / "recordings"))
        return rows.selectExpr("cast(cast(payload as string) as int) n", f"position {column}")

    joined = side(1001, "one").join(side(1002, "other"), "n")
    writer = joined.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "joined"))
    assert query.awaitTermination(TIMEOUT_S)
    rows = spark.read.parquet(str(tmp_path / "joined")).collect()
    assert sorted((row.n, row.one, row.other) for row in rows) == [(n, 64 * n + 64, 64 * n + 64) for n in range(60)]


def test_a_capture_that_grows_is_read_on_and_one_that_is_replaced_ends_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    directory, table = tmp_path / "captures", tmp_path / "table"
    directory.mkdir()

    def records(numbers: range) -> bytes:
        return b"".join(make.pcap_record(PACKET, n) for n in numbers)

    def write(name: str, numbers: range) -> None:
        # The query must not see a file that is not whole.
        whole = tmp_path / name
        whole.write_bytes(make.pcap([]) + records(numbers))
        whole.replace(directory / name)

    write("a.pcap", range(20))
    query = start(spark.readStream.format("mainstem.capture").load(str(directory)).select("file", "packet"), table)
    try:
        query.processAllAvailable()
        with (directory / "a.pcap").open("ab") as file:
            file.write(records(range(20, 50)))
        write("b.pcap", range(100, 110))
        query.processAllAvailable()
        rows = [(os.path.basename(row.file), row.packet) for row in spark.read.parquet(str(table)).collect()]
        assert sorted(rows) == [("a.pcap", n) for n in range(1, 51)] + [("b.pcap", n) for n in range(1, 11)]
        write("a.pcap", range(7000, 7050))
        with pytest.raises(Exception, match="STREAM_FAILED") as raised:
            query.awaitTermination(TIMEOUT_S)
        assert "a.pcap begins with other bytes than that of the checkpoint" in root_cause(raised.value)
    finally:
        query.stop()
    assert spark.read.parquet(str(table)).count() == 60
