from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.live_driver import wait_for
from tests.support.streams import Stream, record

from mainstem.recording import Recorder, open_recording
from mainstem.recording.index import index_file
from mainstem.spark import lag, read_skip_report
from mainstem.spark.lags import LagListener
from mainstem.spark.tables import sessions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TERM = 65536
STREAM = {"session_id": 7, "stream_id": 1001, "initial_term_id": -5, "term_buffer_length": TERM, "mtu_length": 1408}
START_NS = 1_700_000_000_000_000_000
COUNT = 600


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a directory with one recording of 600 messages, one per millisecond."""
    with Recorder(tmp_path / "recordings", segment_length=2 * TERM) as recorder:
        sent = [struct.pack("<q", i) + bytes(i % 1500) for i in range(COUNT)]
        writer = recorder.start(**STREAM, join_position=0)
        record(writer, Stream(session_id=7), sent, time_ns=START_NS, step_ns=1_000_000)
    return tmp_path / "recordings"


def source(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    return spark.read.format("mainstem.recording").options(**options).load(str(path))


def at(seconds: float) -> str:
    return datetime.fromtimestamp(START_NS / 1e9 + seconds, UTC).isoformat()


@pytest.mark.long
def test_a_range_of_times_is_what_a_filter_on_the_column_leaves(spark: SparkSession, path: Path) -> None:
    everything = source(spark, path).select("position", "recorded_at").cache()
    for begin, end in ((at(0.15), at(0.45)), (at(-5), at(9)), (at(0.3), at(9)), (at(-5), at(0.2)), (at(8), at(9))):
        narrowed = source(spark, path, fromTime=begin, toTime=end).select("position", "recorded_at")
        kept = everything.where(f"recorded_at >= timestamp'{begin}' and recorded_at < timestamp'{end}'")
        assert sorted(narrowed.collect()) == sorted(kept.collect())
    assert 0 < source(spark, path, fromTime=at(0.15), toTime=at(0.45)).count() < COUNT
    streamed = spark.readStream.format("mainstem.recording").options(fromTime=at(0.15), toTime=at(0.45)).load(str(path))
    query = streamed.writeStream.format("memory").queryName("between").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert spark.table("between").count() == source(spark, path, fromTime=at(0.15), toTime=at(0.45)).count()


def test_a_stream_ends_at_its_ending_offsets_and_reports_its_lag(spark: SparkSession, path: Path) -> None:
    with open_recording(path, 0) as reader:
        end = reader.advance(0, reader.end_position(), max_messages=200)
    stream = spark.readStream.format("mainstem.recording").options(endingPositions=end, maxRowsPerTrigger=150)
    query = stream.load(str(path)).writeStream.format("memory").queryName("ended").start()
    try:
        query.processAllAvailable()
        (behind,) = lag(query, path)
    finally:
        query.stop()
    assert spark.table("ended").count() == 200
    assert behind.position == end
    assert behind.bytes == behind.recorded_position - end > 0
    assert behind.seconds is not None
    assert behind.seconds > 1e6


@pytest.mark.long
def test_a_listener_gets_the_lag_after_every_micro_batch(spark: SparkSession, path: Path) -> None:
    told: list[Any] = []
    listener = LagListener(path, lambda query_id, lags: told.append((query_id, lags)))
    spark.streams.addListener(listener)
    try:
        stream = spark.readStream.format("mainstem.recording").option("maxRowsPerTrigger", 250).load(str(path))
        query = stream.writeStream.format("noop").trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        wait_for(lambda: told and told[-1][1] and told[-1][1][0].bytes == 0)
    finally:
        spark.streams.removeListener(listener)
    assert {query_id for query_id, _ in told} == {str(query.id)}
    behind = [lags[0].bytes for _, lags in told if lags]
    assert behind == sorted(behind, reverse=True)
    assert behind[0] > 0
    assert told[-1][1][0].seconds == 0


@pytest.mark.long
def test_a_truncated_recording_is_read_up_to_its_end(spark: SparkSession, path: Path) -> None:
    whole = sorted(row.position for row in source(spark, path).select("position").collect())
    last = path / f"0-{2 * TERM}.rec"
    with last.open("r+b") as file:
        file.truncate(TERM // 2 + 100)
    with pytest.raises(Exception, match="a frame is truncated"):
        source(spark, path).count()
    kept = sorted(
        row.position for row in source(spark, path, failOnDataLoss="false").select("position").collect()
    )  # fmt: skip
    before = [position for position in whole if position <= 2 * TERM + TERM // 2]
    assert kept[: len(before)] == before
    assert set(kept) < set(whole)
    stream = spark.readStream.format("mainstem.recording").options(failOnDataLoss="false").load(str(path))
    query = stream.select("position").writeStream.format("memory").queryName("cut").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sorted(row.position for row in spark.table("cut").collect()) == kept
    kinds = {row.kind for row in source(spark, path, rows="problems").collect()}
    assert kinds == {"torn"}


def test_skipped_data_is_counted_once_in_batch_and_streaming(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    whole = {row.position for row in source(spark, path).select("position").collect()}
    with (path / "0-0.rec").open("r+b") as file:
        file.write(b"\x05\0\0\0")
    batch, streaming = tmp_path / "batch", tmp_path / "streaming"
    assert read_skip_report(batch) == []
    for _ in range(2):
        rows = source(spark, path, failOnDataLoss="false", skipReport=str(batch)).select("position").collect()
    options = {"failOnDataLoss": "false", "skipReport": str(streaming)}
    stream = spark.readStream.format("mainstem.recording").options(**options).load(str(path)).select("position")
    query = stream.writeStream.format("memory").queryName("counted").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert spark.table("counted").count() == len(rows) < COUNT
    # A position is that of a message's end, so the skipped range ends before the first remaining message.
    lost = max(whole - {row.position for row in rows})
    for report in (batch, streaming):
        (each,) = read_skip_report(report)
        assert (each.recording_id, each.ranges) == (0, 1)
        assert each.bytes == lost
        assert "0-0.rec at offset 0" in each.reasons[0]


def test_problems_are_rows_and_everything_around_them_is_read(spark: SparkSession, path: Path) -> None:
    assert source(spark, path, rows="problems").count() == 0
    whole = {each.position for each in source(spark, path).select("position").collect()}
    with (path / "0-0.rec").open("r+b") as file:
        file.seek(90_000)
        (byte,) = file.read(1)
        file.seek(90_000)
        file.write(bytes([byte ^ 1]))
    (row,) = source(spark, path, rows="problems").collect()
    assert (row.recording_id, row.kind) == (0, "checksum")
    assert row.position <= 90_000
    assert "not those that were recorded" in row.text
    with pytest.raises(Exception, match="not those that were recorded"):
        source(spark, path, verify="true").count()
    rest = source(spark, path, verify="true", failOnDataLoss="false").select("position").collect()
    lost = whole - {each.position for each in rest}
    assert row.position < min(lost) <= 90_000 <= max(lost) <= row.position + TERM
    (path / f"0-{2 * TERM}.rec").unlink()
    problems = spark.readStream.format("mainstem.recording").option("rows", "problems").load(str(path))
    query = problems.writeStream.format("memory").queryName("problems").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert {row.kind for row in spark.table("problems").collect()} == {"checksum", "missing"}


@pytest.mark.long
def test_a_directory_of_aeron_archive_is_read_without_an_index(spark: SparkSession, path: Path) -> None:
    expected = source(spark, path).select("position", "payload").collect()
    index_file(path, 0).unlink()
    found = source(spark, path, minPartitions=5).select("position", "payload", "recorded_at").collect()
    assert sorted((r.position, r.payload) for r in found) == sorted((r.position, r.payload) for r in expected)
    assert {row.recorded_at for row in found} == {None}
    for option in ({"fromTime": "2000-01-01"}, {"toTime": "2000-01-01"}, {"endingPositions": "2000-01-01"}):
        with pytest.raises(Exception, match="recording 0 has no index and so no times"):
            source(spark, path, **option).count()
    stamped = source(spark, path, timestampFrom="reserved_value_ms", rows="frames").select(
        "timestamp", "reserved_value"
    )
    assert all(row.timestamp is None for row in stamped.collect() if not row.reserved_value)
    (row,) = sessions(source(spark, path)).collect()
    assert (row.first_ns, row.last_ns, row.time, row.messages) == (None, None, None, COUNT)
    assert source(spark, path, rows="problems").count() == 0
