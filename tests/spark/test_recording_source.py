from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StructField, StructType
from tests.support.read_limits import HAS_READ_LIMITS, limits
from tests.support.streams import Stream, record

import pyspark_mainstem_recording
from mainstem.recording import Recorder, open_recordings, read_catalog
from mainstem.spark import read_skip_report
from mainstem.spark.java import ensure_java
from mainstem.spark.tables import messages

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TERM = 65536
STREAM = {"stream_id": 1001, "initial_term_id": -5, "term_buffer_length": TERM, "mtu_length": 1408}
START_NS = 1_700_000_000_000_000_000


class Publisher:
    """Records one stream of numbered messages, some of them fragmented."""

    def __init__(self, recorder: Recorder, session_id: int) -> None:
        self.stream = Stream(session_id=session_id)
        self.writer = recorder.start(session_id=session_id, join_position=0, **STREAM)
        self.sent: list[bytes] = []
        self._random = random.Random(session_id)

    def publish(self, count: int) -> None:
        fresh = [
            struct.pack("<iq", self.stream.session_id, len(self.sent) + i)
            + self._random.randbytes(self._random.randrange(2500))
            for i in range(count)
        ]
        record(self.writer, self.stream, fresh, time_ns=START_NS + len(self.sent) * 1_000_000, step_ns=1_000_000)
        self.sent += fresh


def source(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    return spark.read.format("mainstem.recording").options(**options).load(str(path))


def payloads(df: DataFrame) -> list[bytes]:
    return sorted(bytes(row.payload) for row in df.select("payload").collect())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Publisher]]:
    path = tmp_path_factory.mktemp("recordings")
    with Recorder(path, segment_length=2 * TERM) as recorder:
        publishers = [Publisher(recorder, session_id) for session_id in (7, 8)]
        for _ in range(5):
            for publisher in publishers:
                publisher.publish(60)
    return path, publishers


def test_a_batch_holds_each_message_once_with_its_columns(
    spark: SparkSession, recorded: tuple[Path, list[Publisher]]
) -> None:
    path, publishers = recorded
    df = source(spark, path, minPartitions=7)
    assert df.rdd.getNumPartitions() >= 7
    rows = sorted(df.collect(), key=lambda row: (row.recording_id, row.position))
    assert [bytes(row.payload) for row in rows] == publishers[0].sent + publishers[1].sent
    assert {(row.recording_id, row.session_id, row.stream_id) for row in rows} == {(0, 7, 1001), (1, 8, 1001)}
    assert all(row.length == len(row.payload) and row.flags == 0xC0 for row in rows)
    begin = {(row.term_id + 5) * TERM + row.term_offset for row in rows if row.recording_id == 0}
    assert min(begin) == 0
    assert rows[299].position == publishers[0].stream.position
    times = [row.recorded_at.replace(tzinfo=UTC).timestamp() for row in rows[:300]]
    assert times == sorted(times)
    assert 0 <= times[0] - START_NS / 1e9 < 0.001
    assert times[-1] > START_NS / 1e9 + 0.1


def test_frames_and_messages_agree(spark: SparkSession, recorded: tuple[Path, list[Publisher]]) -> None:
    path, publishers = recorded
    frames = source(spark, path, rows="frames", recordingId=0).collect()
    frames.sort(key=lambda row: row.position)
    assert b"".join(bytes(row.payload) for row in frames) == b"".join(publishers[0].sent)
    assert sum(row.type == 1 and row.flags & 0x40 == 0x40 for row in frames) == len(publishers[0].sent)
    assert any(row.type == 0 for row in frames)


def test_a_narrowed_schema_is_honoured_and_a_wrong_one_refused(
    spark: SparkSession, recorded: tuple[Path, list[Publisher]]
) -> None:
    path, publishers = recorded
    reader = spark.read.format("mainstem.recording")
    df = reader.schema("length int, recording_id bigint, position bigint").load(str(path))
    assert df.columns == ["length", "recording_id", "position"]
    expected = sum(len(p) for publisher in publishers for p in publisher.sent)
    assert df.selectExpr("sum(length) s").first().s == expected
    assert spark.read.format("mainstem.recording").schema("stream_id int").load(str(path)).count() == 600
    with pytest.raises(Exception, match="no column 'color'"):
        spark.read.format("mainstem.recording").schema("color int").load(str(path)).collect()
    with pytest.raises(Exception, match="of type bigint, not string"):
        spark.read.format("mainstem.recording").schema("position string").load(str(path)).collect()


def test_only_time_columns_are_null_and_a_nullable_schema_is_honored(
    spark: SparkSession, recorded: tuple[Path, list[Publisher]]
) -> None:
    path, _ = recorded
    whole = spark.read.format("mainstem.recording").load(str(path))
    assert [field.name for field in whole.schema.fields if field.nullable] == ["recorded_at"]
    mixed = StructType(
        [StructField("position", LongType(), nullable=True), StructField("length", IntegerType(), False)]
    )
    read = spark.read.format("mainstem.recording").schema(mixed).load(str(path))
    assert sorted(read.collect()) == sorted(whole.select("position", "length").collect())


def test_a_filtered_query_leaves_nothing_behind_for_the_next_one(
    spark: SparkSession, recorded: tuple[Path, list[Publisher]]
) -> None:
    path, _publishers = recorded
    df = source(spark, path)
    ends = sorted(row.position for row in df.where("recording_id = 0").select("position").collect())
    middle = ends[100]
    assert df.where(f"recording_id = 0 and position > {middle}").count() == 300 - 101
    assert df.where(f"recording_id = 0 and position <= {middle}").count() == 101
    assert df.where(f"recording_id = 0 and position = {middle}").count() == 1
    assert df.where(f"recording_id = 0 and position < {middle - 7}").count() == 100
    assert df.where("session_id in (8, 9)").count() == 300
    assert df.where("stream_id = 5").count() == 0
    late = datetime.fromtimestamp(START_NS / 1e9 + 0.15, UTC).isoformat()
    everything = {
        bytes(r.payload) for r in df.collect() if r.recorded_at.replace(tzinfo=UTC).timestamp() >= START_NS / 1e9 + 0.15
    }
    assert set(payloads(df.where(f"recorded_at >= timestamp'{late}'"))) == everything
    assert 0 < len(everything) < 600
    assert df.count() == 600
    assert df.where(f"position > {middle}").union(df.where(f"position <= {middle}")).count() == 600


def test_positions_bound_a_batch(spark: SparkSession, recorded: tuple[Path, list[Publisher]]) -> None:
    path, publishers = recorded
    ends = sorted(r.position for r in source(spark, path, recordingId=0).select("position").collect())
    start, end = ends[49], ends[199]
    positions = {"recordingId": 0, "startingPositions": start, "endingPositions": json.dumps({"0": end})}
    assert payloads(source(spark, path, **positions)) == sorted(publishers[0].sent[50:200])
    assert source(spark, path, startingPositions="latest").count() == 0
    assert source(spark, path, startingPositions="2000-01-01").count() == 600
    assert source(spark, path, startingPositions="2100-01-01T00:00:00Z").count() < 100


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"rows": "bytes"}, "one of 'messages', 'frames', 'problems'"),
        ({"maxRowsPerTrigger": "-1"}, "must be above 0"),
        ({"startingPositions": "soon"}, "neither 'earliest'"),
        ({"startingPositions": "17"}, "must be a frame boundary"),
        ({"recordingId": "one"}, "must be integers separated by commas"),
        ({"color": "blue"}, "no option 'color'"),
    ],
)
def test_a_wrong_option_is_named(
    spark: SparkSession, recorded: tuple[Path, list[Publisher]], options: dict[str, str], reason: str
) -> None:
    with pytest.raises(Exception, match=reason):
        source(spark, recorded[0], **options).count()


def stream(spark: SparkSession, path: Path, sink: Path, **options: Any) -> Any:
    df = messages(spark.readStream.format("mainstem.recording").options(**options).load(str(path)))
    return (
        df.select("recording_id", "position", "payload")
        .writeStream.format("parquet")
        .option("path", str(sink / "table"))
        .option("checkpointLocation", str(sink / "checkpoint"))
    )


def run_available(query: Any) -> Any:
    started = query.trigger(availableNow=True).start()
    assert started.awaitTermination(120)
    assert started.exception() is None
    return started


def test_streaming_equals_batch_and_respects_its_limits(
    spark: SparkSession, recorded: tuple[Path, list[Publisher]], tmp_path: Path
) -> None:
    path, _ = recorded
    query = run_available(stream(spark, path, tmp_path, **limits(maxRowsPerTrigger=150)))
    rows = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
    assert sum(rows) == 600
    assert max(rows) <= (150 if HAS_READ_LIMITS else 600)
    result = spark.read.parquet(str(tmp_path / "table"))
    assert result.exceptAll(source(spark, path).select(*result.columns)).count() == 0
    assert result.count() == 600


@pytest.mark.long
def test_a_query_continues_from_its_checkpoint_while_recordings_grow_and_begin(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "recordings"
    with Recorder(path, segment_length=2 * TERM) as recorder:
        one = Publisher(recorder, 1)
        one.publish(100)
        run_available(stream(spark, path, tmp_path, **limits(maxBytesPerTrigger="50k")))
        one.publish(57)
        two = Publisher(recorder, 2)
        two.publish(40)
        run_available(stream(spark, path, tmp_path, **limits(maxBytesPerTrigger="50k")))
        one.publish(20)
        query = stream(spark, path, tmp_path).trigger(processingTime="0 seconds").start()
        try:
            two.publish(33)
            query.processAllAvailable()
            one.publish(10)
            query.processAllAvailable()
        finally:
            query.stop()
    assert payloads(spark.read.parquet(str(tmp_path / "table"))) == sorted(one.sent + two.sent)


@pytest.mark.long
def test_an_uncommitted_batch_is_read_again_identically(spark: SparkSession, tmp_path: Path) -> None:
    path, seen = tmp_path / "recordings", []
    with Recorder(path, segment_length=2 * TERM) as recorder:
        publisher = Publisher(recorder, 3)
        publisher.publish(50)

        def query() -> Any:
            df = spark.readStream.format("mainstem.recording").load(str(path))
            return (
                df.select("position", "recorded_at", "payload")
                .writeStream.foreachBatch(lambda batch, batch_id: seen.append((batch_id, sorted(batch.collect()))))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
            )

        run_available(query())
        commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
        commits[-1].unlink()
        publisher.publish(50)
        run_available(query())
    assert seen[0] == seen[1]
    assert sum(len(rows) for _, rows in seen[1:]) == 100


@pytest.mark.long
def test_purged_positions_fail_the_query_unless_data_loss_is_accepted(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "recordings"
    with Recorder(path, segment_length=TERM) as recorder:
        publisher = Publisher(recorder, 4)
        publisher.publish(100)
        run_available(stream(spark, path, tmp_path))
        publisher.publish(200)
        (reader,) = open_recordings(path)
        last = reader.end_position() // TERM * TERM
        reader.close()
    for segment in path.glob("0-*.rec"):
        if int(segment.stem.partition("-")[2]) < last:
            segment.unlink()
    failed = stream(spark, path, tmp_path).trigger(availableNow=True).start()
    with pytest.raises(Exception, match="were purged"):
        failed.awaitTermination(120)
    report = tmp_path / "report"
    run_available(stream(spark, path, tmp_path, failOnDataLoss="false", skipReport=str(report)))
    (each,) = read_skip_report(report)
    assert (each.recording_id, each.ranges, "were purged" in each.reasons[0]) == (0, 1, True)
    assert 0 < each.bytes < last
    assert spark.read.parquet(str(tmp_path / "table")).where(f"position > {last}").count() > 0


@pytest.mark.long
def test_a_damaged_frame_fails_the_query_and_names_its_position(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "recordings"
    with Recorder(path, segment_length=8 * TERM) as recorder:
        Publisher(recorder, 4).publish(50)
    assert read_catalog(path)[0].stop_position < 8 * TERM
    with (path / "0-0.rec").open("r+b") as file:
        file.write(b"\x05\0\0\0")
    with pytest.raises(Exception, match=r"0-0\.rec at offset 0 .*header is invalid"):
        source(spark, path).count()
    # Reading resumes at the next entry of the index.
    assert 0 < source(spark, path, failOnDataLoss="false").count() < 50


def test_a_directory_without_recordings_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="holds no recordings"):
        source(spark, tmp_path).count()


def test_spark_finds_the_source_by_itself(spark: SparkSession, recorded: tuple[Path, list[Publisher]]) -> None:
    # Registrations belong to a session, and this one has none.
    fresh = spark.newSession()
    fresh.sql(f"CREATE OR REPLACE TEMPORARY VIEW found USING `mainstem.recording` OPTIONS (path '{recorded[0]}')")
    assert fresh.sql("SELECT count(*) n FROM found").first().n == 600
    assert pyspark_mainstem_recording.DefaultSource.name() == "mainstem.recording"


PLAIN = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[5]").config("spark.ui.enabled", "false").getOrCreate()
df = spark.read.format("mainstem.recording").option("partitionBytes", "128k").load(sys.argv[1])
print("partitions", df.rdd.getNumPartitions(), spark.sparkContext.defaultParallelism)
"""


@pytest.mark.long  # starts its own JVM
def test_a_plain_session_plans_for_its_own_parallelism(recorded: tuple[Path, list[Publisher]]) -> None:
    ensure_java()
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", PLAIN, str(recorded[0])]
    plain = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    (line,) = [each for each in plain.stdout.splitlines() if each.startswith("partitions")] or [plain.stderr]
    _, partitions, parallelism = line.split()
    # The size gives six or seven partitions, so Spark makes two per core; a recording may add one for its remainder.
    assert (int(parallelism), int(partitions) in (10, 11)) == (5, True), line
