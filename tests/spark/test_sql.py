"""Recordings and captures as tables, views and SQL text; options that control tasks and micro-batches."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import captures as make
from tests.support.streams import Stream, record

from mainstem.recording import Recorder
from mainstem.spark import root_cause
from mainstem.spark.sources.features import HAS_READ_LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STREAM = {"initial_term_id": -5, "term_buffer_length": 65536, "mtu_length": 1408}
START_NS = 1_700_000_000_000_000_000
COUNT = 500


def record_streams(path: Path) -> None:
    with Recorder(path, segment_length=2 * 65536) as recorder:
        for session_id in (7, 8):
            writer = recorder.start(session_id=session_id, stream_id=1000 + session_id, join_position=0, **STREAM)
            record(writer, Stream(session_id=session_id), [bytes(100)] * COUNT, time_ns=START_NS, step_ns=1_000_000)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sql") / "recordings"
    record_streams(directory)
    return directory


@pytest.fixture(autouse=True)
def database(spark: SparkSession) -> Iterator[None]:
    spark.sql("create database if not exists d")
    spark.sql("use d")
    yield
    spark.sql("use default")
    spark.sql("drop database d cascade")


def count(spark: SparkSession, sql: str) -> int:
    return int(spark.sql(sql).collect()[0][0])


@pytest.mark.parametrize("clause", ["options (path '{}')", "location '{}'", "options (paths '[\"{}\"]')"])
def test_a_table_reads_its_recordings_and_leaves_them_when_it_is_dropped(
    spark: SparkSession, path: Path, clause: str
) -> None:
    before = sorted(os.listdir(path))
    spark.sql(f"create table t using mainstem.recording {clause.format(path)}")
    assert count(spark, "select count(*) from t") == 2 * COUNT
    assert count(spark, "select count(*) from t where stream_id = 1007 and position <= 1600") == 10
    spark.sql("create view v as select position from t where session_id = 8")
    assert count(spark, "select count(distinct position) from v") == COUNT
    spark.sql("drop table t")
    assert sorted(os.listdir(path)) == before


def test_a_table_keeps_its_options(spark: SparkSession, path: Path) -> None:
    spark.sql(f"create table t using mainstem.recording options (path '{path}', streamId '1007', rows 'frames')")
    assert "type" in spark.table("t").columns
    # A padding frame ends the first term.
    assert count(spark, "select count(*) from t") == COUNT + 1
    # With columns copied from a table, the source cannot tell a load from a table.
    with pytest.raises(Exception, match="columns as text: schema"):
        spark.read.format("mainstem.recording").schema(spark.table("t").schema).load(str(path)).collect()


def test_a_temporary_view_and_a_query_over_a_data_frame_need_no_table(spark: SparkSession, path: Path) -> None:
    spark.sql(f"create temporary view v using mainstem.recording options (path '{path}', sessionId '7')")
    try:
        assert count(spark, "select count(*) from v") == COUNT
    finally:
        spark.sql("drop view v")
    df = spark.read.format("mainstem.recording").load(str(path))
    assert int(spark.sql("select count(*) from {r} where stream_id = 1008", r=df).collect()[0][0]) == COUNT


def test_a_table_may_be_streamed(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    spark.sql(f"create table t using mainstem.recording options (path '{path}', streamId '1008')")
    writer = spark.readStream.table("t").writeStream.format("memory").queryName("streamed")
    query = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(120)
    assert spark.table("streamed").count() == COUNT


def test_a_capture_is_a_table_in_sql(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "c.pcap"
    datagrams = (make.ip(make.udp(make.data_frame(at=at))) for at in range(0, 640, 64))
    file.write_bytes(make.pcap(make.link(packet, make.ETHERNET) for packet in datagrams))
    spark.sql(f"create table c using mainstem.capture options (path '{file}', payload 'true')")
    assert "payload" in spark.table("c").columns
    assert count(spark, "select count(*) from c") == spark.read.format("mainstem.capture").load(str(file)).count() > 0


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("create table t using mainstem.recording options (path '{}', color 'red')", "has no option 'color'"),
        ("create table t using mainstem.recording", "must not list columns"),
        (
            "create table t using mainstem.recording options (path '{}', secret_key 'x')",
            r"WITH \(secret_key = '...'\)",
        ),
        ("create table t using mainstem.recording options (path '{}', rows 'cells')", "one of 'messages', 'frames'"),
    ],
)
def test_a_wrong_table_is_refused_when_it_is_created(
    spark: SparkSession, path: Path, statement: str, sentence: str
) -> None:
    with pytest.raises(Exception, match=sentence):
        spark.sql(statement.format(path))
    assert spark.sql("show tables in d").where("not isTemporary").count() == 0


def test_a_table_that_lists_columns_is_refused_when_it_is_read(spark: SparkSession, path: Path) -> None:
    spark.sql(f"create table t (position bigint) using mainstem.recording options (path '{path}')")
    with pytest.raises(Exception, match="must not list columns"):
        spark.sql("select * from t").collect()


@pytest.mark.parametrize("kind", ["table", "temporary view"])
def test_a_tables_options_prune_reads(spark: SparkSession, path: Path, tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "recordings"
    record_streams(directory)
    (directory / "1-0.rec").unlink()

    def named(name: str, options: str) -> str:
        spark.sql(f"create {kind} {name} using mainstem.recording options (path '{directory}', {options})")
        return name

    try:
        stream = named("one_stream", "streamId '1007'")
        assert count(spark, f"select count(*) from {stream} where position > 1600") == COUNT - 10
        middle = "2023-11-14T22:13:20.25Z"
        early = named("early", f"sessionId '7', toTime '{middle}', startingPositions '{{\"0\": 1600}}'")
        chosen = f"session_id = 7 and recorded_at < timestamp '{middle}' and position > 1600"
        some = spark.read.format("mainstem.recording").load(str(path)).where(chosen).count()
        assert count(spark, f"select count(*) from {early}") == some
        assert 0 < some < COUNT - 10
        # Each reference has its own plan, even if a statement names a table several times.
        assert count(spark, f"select count(*) from {stream} a join {stream} b using (position)") == COUNT
        sums = f"select (select count(*) from {early}) + (select count(*) from {stream})"
        assert count(spark, sums) == COUNT + some
        # Without such limits, the recording whose segment is missing is read, even with a condition.
        everything = named("everything", "verify 'false'")
        with pytest.raises(Exception, match=r"1-0\.rec"):
            spark.sql(f"select * from {everything} where stream_id = 1007").collect()
    finally:
        for name in ("one_stream", "early", "everything"):
            spark.sql(f"drop {kind.removeprefix('temporary ')} if exists {name}")


@pytest.mark.long
def test_a_wrong_with_clause_is_refused(spark: SparkSession, path: Path) -> None:
    spark.sql(f"create table t using mainstem.recording options (path '{path}')")
    for option, value in (("streamId", "1007"), ("toTime", "2026-01-31"), ("failOnDataLoss", "false")):
        with pytest.raises(Exception, match="can only be set for the whole table"):
            spark.sql(f"select 1 from t with ({option} = '{value}') union all select 1 from t").collect()
    with pytest.raises(Exception, match="has its own path"):
        spark.sql(f"select 1 from t with (path = '{path}')").collect()
    with pytest.raises(Exception, match="can only be set for the whole table"):
        spark.read.option("startingPositions", "1600").table("t").collect()
    both = "select position from t with (partitionBytes = '64k') union all select position from t"
    assert len(spark.sql(both).collect()) == 4 * COUNT


def test_a_table_has_new_rows_and_a_view_over_files_after_recreation(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "recordings"
    view = f"create or replace temporary view now using mainstem.recording options (path '{directory}')"
    with Recorder(directory, segment_length=2 * 65536) as recorder:
        writer, stream = recorder.start(session_id=7, stream_id=1001, join_position=0, **STREAM), Stream(session_id=7)
        record(writer, stream, [bytes(100)] * 10, time_ns=START_NS, step_ns=1000)
        spark.sql(f"create table t using mainstem.recording location '{directory}'")
        spark.sql("create view v as select * from t")
        spark.sql(view)
        names = ("t", "v", "now")
        try:
            assert [count(spark, f"select count(*) from {name}") for name in names] == [10, 10, 10]
            record(writer, stream, [bytes(100)] * 5, time_ns=START_NS, step_ns=1000)
            assert [count(spark, f"select count(*) from {name}") for name in names[:2]] == [15, 15]
            spark.sql(view)
            assert count(spark, "select count(*) from now") == 15
        finally:
            spark.sql("drop view if exists now")


def test_a_task_reads_only_its_share_of_messages(spark: SparkSession, path: Path) -> None:
    df = spark.read.format("mainstem.recording").option("maxRowsPerPartition", 70).load(str(path))
    sizes = df.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    assert sum(sizes) == 2 * COUNT
    assert max(sizes) <= 70


def stream_into(spark: SparkSession, df: Any, name: str, tmp_path: Path) -> Any:
    writer = df.writeStream.format("memory").queryName(name).option("checkpointLocation", str(tmp_path / name))
    return writer.start()


@pytest.mark.long
def test_a_limit_that_this_spark_version_lacks_is_refused(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    df = spark.readStream.format("mainstem.recording").option("maxRowsPerTrigger", 100).load(str(path))
    query = stream_into(spark, df, "limited", tmp_path)
    try:
        if HAS_READ_LIMITS:
            query.processAllAvailable()
            assert spark.table("limited").count() == 2 * COUNT
            assert query.lastProgress["batchId"] >= 9
        else:
            with pytest.raises(Exception, match=r"maxRowsPerTrigger: Spark 4\.\d+\.\d+ has no limits"):
                query.processAllAvailable()
    finally:
        query.stop()


@pytest.mark.long
@pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark hands no limits to sources in Python before 4.2")
def test_a_micro_batch_waits_for_enough_bytes(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "recordings"
    with Recorder(directory, segment_length=2 * 65536) as recorder:
        writer, stream = recorder.start(session_id=7, stream_id=1001, join_position=0, **STREAM), Stream(session_id=7)
        record(writer, stream, [bytes(100)] * 10, time_ns=START_NS, step_ns=1000)
        reader = spark.readStream.format("mainstem.recording")
        df = reader.options(minBytesPerTrigger="2k", maxTriggerDelay="1h").load(str(directory))
        query = stream_into(spark, df, "waiting", tmp_path)
        try:
            query.processAllAvailable()
            assert spark.table("waiting").count() == 10
            # 12 messages of 160 bytes are less than 2 KiB, 13 are more.
            record(writer, stream, [bytes(100)] * 12, time_ns=START_NS, step_ns=1000)
            query.processAllAvailable()
            assert spark.table("waiting").count() == 10
            record(writer, stream, [bytes(100)], time_ns=START_NS, step_ns=1000)
            query.processAllAvailable()
            assert spark.table("waiting").count() == 23
        finally:
            query.stop()
        record(writer, stream, [bytes(100)], time_ns=START_NS, step_ns=1000)
    query = (
        df.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "waiting"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert query.exception() is None


BATCH = [
    ({"color": "red"}, "{}", "mainstem.recording has no option 'color'"),
    ({"rowsPerBatch": "-1"}, "{}", "rowsPerBatch must be above 0 (got '-1')"),
    ({}, "{}-none", "there is no such directory"),
    ({}, "zz://x/y", "neither Mainstem nor fsspec has a store for zz://"),
]


@pytest.mark.parametrize(("options", "clause", "sentence"), BATCH)
def test_an_error_ends_with_the_sentence_that_matters(
    spark: SparkSession, path: Path, options: dict[str, str], clause: str, sentence: str
) -> None:
    with pytest.raises(Exception) as caught:
        spark.read.format("mainstem.recording").options(**options).load(clause.format(path)).collect()
    assert sentence in root_cause(caught.value)
    # After the message, Spark writes its error code on a separate line.
    lines = [line for line in str(caught.value).splitlines() if "SQLSTATE" not in line and line.strip()]
    assert lines[-1].endswith(root_cause(caught.value))


@pytest.mark.long
def test_the_reason_of_a_damaged_recording_is_known_in_batch_and_in_streaming(
    spark: SparkSession, tmp_path: Path
) -> None:
    directory = tmp_path / "recordings"
    record_streams(directory)
    with (directory / "0-0.rec").open("r+b") as file:
        file.seek(1280)
        file.write(bytes([5, 0, 0, 0]))
    with pytest.raises(Exception) as caught:
        spark.read.format("mainstem.recording").load(str(directory)).collect()
    assert "at offset 1280 (position 1280): a frame header is invalid" in root_cause(caught.value)
    stream = spark.readStream.format("mainstem.recording").load(str(directory))
    query = stream_into(spark, stream, "damaged", tmp_path)
    with pytest.raises(Exception) as caught:
        query.processAllAvailable()
    assert "at offset 1280 (position 1280): a frame header is invalid" in root_cause(caught.value)
    assert "position 1280" in root_cause(query.exception())
