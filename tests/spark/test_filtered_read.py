"""Recordings filtered by a condition: fewer bytes read, the same rows, whatever the query does with the DataFrame."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.case_selection import long_after
from tests.support.read_limits import limits
from tests.support.streams import Stream, record

from mainstem.errors import ConfigurationError
from mainstem.recording import Recorder
from mainstem.recording.index import index_file
from mainstem.recording.rows.filters import Range
from mainstem.spark import recordings
from mainstem.spark.filtered_read import bounds_of, pruned_options
from mainstem.spark.sources.options import parse_options
from mainstem.spark.sources.planning import Planner, ReadPositions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TERM = 65536
START_NS = 1_700_000_000_000_000_000
COUNT = 300
COLUMNS = "recording_id bigint, session_id int, stream_id int, position bigint, recorded_at timestamp, length int"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of three recordings of 300 messages, one every 2 ms; the third has no index, as in Aeron Archive."""
    directory, rng = tmp_path_factory.mktemp("recordings"), random.Random(9)
    with Recorder(directory, segment_length=2 * TERM) as recorder:
        for session_id, stream_id in ((7, 1001), (8, 1001), (9, 1002)):
            writer = recorder.start(session_id=session_id, stream_id=stream_id, initial_term_id=-5, mtu_length=1408,
                                    term_buffer_length=TERM, join_position=0)  # fmt: skip
            sent = [bytes(rng.randrange(2500)) for _ in range(COUNT)]
            stream = Stream(session_id=session_id, stream_id=stream_id)
            record(writer, stream, sent, time_ns=START_NS, step_ns=2_000_000)
    index_file(directory, 2).unlink()
    return directory


def source(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("mainstem.recording").schema(COLUMNS).load(str(path))


def read(spark: SparkSession, path: Path, where: Any, **options: Any) -> DataFrame:
    return recordings(spark, path, where=where, schema=COLUMNS, **options)


def bytes_read(spark: SparkSession, path: Path, where: Any) -> int:
    """Return how many bytes of the recordings the plan reads."""
    made = pruned_options(bounds_of(source(spark, path).where(where)), {})
    planner = Planner(parse_options({"path": str(path), "unknownTimes": "skip", **made}), {"position": False})
    try:
        planner.refresh()
        tasks = planner.ranges(ReadPositions(planner.starting()), ReadPositions(planner.ending()))
        return sum(part.end - part.start for task in tasks for part in task.ranges())
    finally:
        planner.close()


def at(seconds: float) -> str:
    return f"timestamp'{datetime.fromtimestamp(START_NS / 1e9 + seconds, UTC).isoformat()}'"


# A condition, and the largest share of all bytes that reading its rows may take. The recording without an index is read for every
# session: another one may have extended it.
CONDITIONS = [
    ("stream_id = 1002", 0.4),
    ("1002 = stream_id", 0.4),
    ("STREAM_ID <=> 1002", 0.4),
    ("not (stream_id <=> 1002)", 1.0),
    ("stream_id = 1002 or length = null", 1.0),
    ("session_id in (7, 9)", 0.7),
    ("session_id in (7, 1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 14, 15)", 0.7),
    ("recording_id = 1 and position > 200000", 0.2),
    ("recording_id = 1 and position between 100000 and 110000", 0.03),
    ("position < 50001", 0.2),
    ("position <= 0", 0.001),
    ("position in (64, 5000)", 0.1),
    (f"recorded_at >= {at(0.3)} and recorded_at < {at(0.4)} and stream_id = 1001", 0.4),
    (f"recorded_at < {at(-1)}", 0.001),
    ("session_id = 7 or session_id = 8 and position < 1000", 1.0),
    # Spark itself reads nothing for this condition.
    ("session_id = 7 and session_id = 8", 1.0),
    ("stream_id = 5", 0.001),
    ("length > 1000", 1.0),
    ("not (position > 1000)", 0.1),
    ("stream_id = 1001L and cast(position as string) like '%6'", 0.7),
    ("position > (select 1000)", 1.0),
    ("position = null", 1.0),
    ("length % 7 = 0 or position > 300000", 1.0),
]


# These conditions select different rows tomorrow than today.
MOVING = ["now()", "current_date() + interval 1 day", "to_timestamp(unix_timestamp())", "'now'", "(select now())"]


@pytest.mark.parametrize("moment", MOVING)
def test_a_moving_time_is_not_a_bound(spark: SparkSession, path: Path, moment: str) -> None:
    condition = f"recorded_at < {moment} and stream_id = 1002 and position > 1000"
    found = bounds_of(source(spark, path).where(condition))
    assert found.recorded_at == Range()
    assert found.stream_id == {1002}


@pytest.mark.parametrize(("condition", "share"), long_after(4, CONDITIONS))
def test_a_condition_reads_less_and_finds_the_same_rows(
    spark: SparkSession, path: Path, condition: str, share: float
) -> None:
    narrowed, whole = read(spark, path, condition), source(spark, path).where(condition)
    assert sorted(narrowed.collect()) == sorted(whole.collect())
    assert bytes_read(spark, path, condition) <= share * bytes_read(spark, path, "true")


def test_one_dataframe_serves_any_queries_in_any_order(spark: SparkSession, path: Path) -> None:
    from pyspark.sql import functions as f

    df, whole = read(spark, path, f.col("stream_id") == 1001), source(spark, path).where("stream_id = 1001")
    middle = 200_000
    assert df.where(f"position > {middle}").count() == whole.where(f"position > {middle}").count() > 0
    assert df.count() == whole.count() == 2 * COUNT
    halves = df.where(f"position > {middle}").union(df.where(f"position <= {middle}"))
    assert sorted(halves.collect()) == sorted(whole.collect())
    joined = df.where("session_id = 7").alias("a").join(df.where("session_id = 8").alias("b"), "length")
    assert joined.count() == (whole.where("session_id = 7").join(whole.where("session_id = 8"), "length").count())
    kept = df.where(f"position > {middle}").cache()
    assert df.where(f"position <= {middle}").count() + kept.count() == df.count()
    kept.unpersist()
    df.createOrReplaceTempView("narrowed")
    found = spark.sql(
        f"select (select count(*) from narrowed where position > {middle}) above,"
        f" (select count(*) from narrowed where position <= {middle}) below, (select count(*) from narrowed) whole,"
        " (select count(*) from narrowed where (session_id, position) in"
        " (select session_id, max(position) from narrowed group by session_id)) ends"
    ).first()
    assert (found.above + found.below, found.whole, found.ends) == (2 * COUNT, 2 * COUNT, 2)


@pytest.mark.long
def test_queries_of_one_dataframe_at_once_do_not_disturb_each_other(spark: SparkSession, path: Path) -> None:
    df = read(spark, path, "session_id = 7")
    ends = sorted(row.position for row in df.collect())
    assert len(ends) == COUNT

    def count(at_least: int) -> int:
        return df.where(f"position >= {ends[at_least]}").count() if at_least else df.count()

    wanted = [0, 250, 10, 0, 299, 100, 0, 200]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(count, wanted)) == [COUNT - at_least for at_least in wanted]


def test_options_and_a_condition_narrow_together(spark: SparkSession, path: Path) -> None:
    given = read(spark, path, "session_id in (7, 9) and position < 150000", streamId=1001, fromPosition=100_000)
    wanted = source(spark, path).where("session_id = 7 and position >= 100000 and position < 150000")
    assert sorted(given.collect()) == sorted(wanted.collect())
    bounded = recordings(spark, path, schema=COLUMNS, fromPosition=100_000, toPosition=150_000)
    wanted = source(spark, path).where("position >= 100000 and position < 150000")
    assert sorted(bounded.collect()) == sorted(wanted.collect())


def test_wrong_options_are_reported_by_name(spark: SparkSession, path: Path) -> None:
    with pytest.raises(ConfigurationError, match="streamId must be integers separated by commas"):
        read(spark, path, "stream_id = 1001", streamId="tide")


def test_streaming_reads_are_pruned_too(spark: SparkSession, path: Path) -> None:
    condition = f"stream_id = 1001 and position > 60001 and recorded_at < {at(0.45)}"
    df = read(spark, path, condition, streaming=True, **limits(maxRowsPerTrigger=40))
    query = df.writeStream.format("memory").queryName("narrowed_stream").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    found = spark.table("narrowed_stream").collect()
    assert sorted(found) == sorted(source(spark, path).where(condition).collect())
    taken = sum(progress["numInputRows"] for progress in query.recentProgress)
    assert len(found) <= taken < COUNT * 3 // 2
