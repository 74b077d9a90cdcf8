from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.case_selection import long_after
from tests.support.live_driver import wait_for
from tests.support.read_limits import HAS_READ_LIMITS, limits
from tests.support.waiting import STALL_S

import pyspark_mainstem_channel
import pyspark_mainstem_live
from mainstem import Aeron, MediaDriver
from mainstem._internal.loop_thread import LoopThread
from mainstem.message_keys import KEY_MASK, MAX_PARTITIONS, MAX_ROWS, MessageKey
from mainstem.recording import Recorder
from mainstem.recording.message_server import MessageLog, MessageRecorder, listen
from mainstem.spark.sinks.channel import epoch_of
from mainstem.spark.tables import drop_duplicates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.system]

ROWS = 500
IPC, STREAM = "aeron:ipc?term-length=1m", 1001
TIMEOUT_S = STALL_S


@pytest.fixture(scope="module")
def driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch() as launched:
        yield launched


@contextmanager
def recorder_of(driver: MediaDriver, path: Path, channel: str = IPC) -> Iterator[None]:
    """Record a channel in a thread."""
    end, ready = threading.Event(), threading.Event()

    def run() -> None:
        with (
            Aeron.connect(driver.directory) as aeron,
            aeron.add_subscription(channel, STREAM) as subscription,
            Recorder(path) as recorder,
        ):
            recorder.add_subscription(subscription)
            ready.set()
            while not end.is_set():
                if not recorder.do_work():
                    time.sleep(0.001)

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait(TIMEOUT_S)
    try:
        yield
    finally:
        end.set()
        thread.join()


@contextmanager
def listener(protocol: str, path: Path, **options: Any) -> Iterator[str]:
    """Run a server that records; yield its address."""
    thread = LoopThread()
    with Recorder(path) as recorder:
        intake = MessageRecorder(MessageLog(recorder, stream_id=STREAM), keyed=True)
        server = thread.run(listen(protocol, "127.0.0.1", 0, intake, **options))
        try:
            yield f"{protocol}://127.0.0.1:{server.port}"
        finally:
            thread.run(server.close())
    thread.stop()


def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 3).selectExpr("cast(concat('row ', id) as binary) payload")


def recorded(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format("mainstem.recording").load(str(path))


def texts(df: DataFrame) -> list[str]:
    return sorted(bytes(row.payload).decode() for row in df.select("payload").collect())


EXPECTED = sorted(f"row {number}" for number in range(ROWS))


@contextmanager
def listening(protocol: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield the options with which the sink writes to a server that records into ``recordings``."""
    options: dict[str, Any] = {}
    given: dict[str, str] = {}
    if protocol == "aqueduct":
        from mainstem.aqueduct import make_certificates

        files = make_certificates(tmp_path / "certificates")
        options, given = {"certificate": files.certificate, "key": files.key}, {"ca": str(files.ca)}
    with listener(protocol, tmp_path / "recordings", **options) as channel:
        yield {"channel": channel.replace("127.0.0.1", "localhost") if given else channel, **given}


@pytest.mark.long
@pytest.mark.parametrize("protocol", long_after(1, ["bymux", "jmux", "aqueduct"]))
def test_a_stream_sends_each_micro_batch_over_a_multiplexer_under_its_number(
    spark: SparkSession, tmp_path: Path, protocol: str
) -> None:
    with Recorder(tmp_path / "first") as recorder:
        MessageLog(recorder, stream_id=STREAM).write((0, text.encode()) for text in EXPECTED)
    stream = spark.readStream.format("mainstem.recording").options(**limits(maxRowsPerTrigger=200))
    rows = stream.load(str(tmp_path / "first"))
    with listening(protocol, tmp_path) as told:
        writer = rows.select("payload").writeStream.format("mainstem.channel").options(**told)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_S)
        assert query.exception() is None
        wait_for(lambda: recorded(spark, tmp_path / "recordings").count() >= ROWS)
    df = recorded(spark, tmp_path / "recordings")
    assert texts(drop_duplicates(df)) == EXPECTED
    starts = {epoch: MessageKey(epoch_of(query.id, epoch), 0, 0).reserved_value() for epoch in range(3)}
    reach = MAX_PARTITIONS * MAX_ROWS
    epochs = {
        epoch
        for row in df.select("reserved_value").distinct().collect()
        for epoch, start in starts.items()
        if row.reserved_value - start & KEY_MASK < reach
    }
    assert epochs == ({0, 1, 2} if HAS_READ_LIMITS else {0})


@pytest.mark.parametrize("protocol", long_after(1, ["bymux", "jmux", "aqueduct"]))
def test_a_table_goes_over_a_multiplexer_into_a_recording_and_is_read_again(
    spark: SparkSession, tmp_path: Path, protocol: str
) -> None:
    with listening(protocol, tmp_path) as told:
        writer = numbers(spark).write.format("mainstem.channel").options(epoch=7, **told)
        writer.mode("append").save()
        if protocol == "aqueduct":
            wait_for(lambda: recorded(spark, tmp_path / "recordings").count() >= ROWS)
        # Write the same keys once more.
        writer.mode("append").save()
    df = recorded(spark, tmp_path / "recordings")
    assert texts(drop_duplicates(df)) == EXPECTED
    assert df.count() > ROWS
    keys = {row.reserved_value for row in df.select("reserved_value").collect()}
    sizes = numbers(spark).selectExpr("spark_partition_id() partition").groupBy("partition").count().collect()
    assert keys == {
        MessageKey(7, each.partition, row).reserved_value() for each in sizes for row in range(each["count"])
    }


def test_a_table_is_published_in_batch_and_streaming_queries(
    spark: SparkSession, driver: MediaDriver, tmp_path: Path
) -> None:
    path = tmp_path / "recordings"
    where = {"channel": IPC, "streamId": STREAM, "directory": driver.directory}
    with recorder_of(driver, path):
        numbers(spark).write.format("mainstem.channel").options(epoch=1, **where).mode("append").save()
        wait_for(lambda: recorded(spark, path).count() == ROWS)
        stream = spark.readStream.format("mainstem.recording").options(**limits(maxRowsPerTrigger=100)).load(str(path))
        echo = stream.select("payload").writeStream.format("mainstem.channel")
        query = (
            echo.options(checkpointLocation=str(tmp_path / "checkpoint"), **where).trigger(availableNow=True).start()
        )
        assert query.awaitTermination(TIMEOUT_S)
        wait_for(lambda: recorded(spark, path).count() == 2 * ROWS)
    df = recorded(spark, path)
    assert texts(df) == sorted(2 * EXPECTED)
    # The batch and the query are different writes.
    assert texts(drop_duplicates(df)) == sorted(2 * EXPECTED)


def test_batches_that_are_written_in_quick_succession_are_different_writes(
    spark: SparkSession, driver: MediaDriver, tmp_path: Path
) -> None:
    where = {"channel": IPC, "streamId": STREAM, "directory": driver.directory}
    with recorder_of(driver, tmp_path):
        for first in range(0, 30, 10):
            rows = spark.range(first, first + 10, 1, 1).selectExpr("cast(concat('row ', id) as binary) payload")
            rows.write.format("mainstem.channel").options(**where).mode("append").save()
        wait_for(lambda: recorded(spark, tmp_path).count() == 30)
    assert texts(drop_duplicates(recorded(spark, tmp_path))) == sorted(f"row {number}" for number in range(30))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"channel": "tcp://localhost:1"}, "must be aeron:"),
        ({"channel": "aeron:ipc"}, "needs the option 'streamId'"),
        ({"channel": "bymux://localhost"}, "no host and port"),
        ({"channel": "bymux://localhost:1", "column": "color"}, "only payload"),
        ({"channel": "bymux://localhost:1", "color": "blue"}, "no option 'color'"),
        ({"channel": "bymux://localhost:1", "timeout": "soon"}, "must be a number of seconds"),
    ],
)
def test_a_wrong_option_of_the_sink_is_named(spark: SparkSession, options: dict[str, str], reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        numbers(spark).write.format("mainstem.channel").options(**options).mode("append").save()


def test_no_subscriber_is_an_error_that_names_channel_and_rows(spark: SparkSession, driver: MediaDriver) -> None:
    where = {"channel": "aeron:ipc", "streamId": 99, "directory": driver.directory, "timeout": 0.5}
    with pytest.raises(Exception, match=r"(?s)NotConnected.*partition \d of epoch \d+ \(\d+ rows\)"):
        numbers(spark).write.format("mainstem.channel").options(**where).mode("append").save()


def offer(driver: MediaDriver, count: int, first: int = 0, *, stream_id: int) -> None:
    with (
        Aeron.connect(driver.directory) as aeron,
        aeron.add_exclusive_publication("aeron:ipc?term-length=1m", stream_id) as publication,
    ):
        for number in range(first, first + count):
            publication.send(f"row {number}".encode(), timeout=TIMEOUT_S)


@pytest.mark.parametrize("recording", long_after(1, [True, False]))
def test_a_live_channel_is_read_while_it_flows(
    spark: SparkSession, driver: MediaDriver, tmp_path: Path, recording: bool
) -> None:
    # Each query needs its own stream: the process that a query leaves behind stays a subscriber for ten seconds, and its unread
    # position blocks the publication.
    stream_id = 2002 + recording
    options: dict[str, Any] = {"channel": "aeron:ipc?term-length=1m", "streamId": stream_id}
    options |= {"directory": driver.directory}
    options |= {"recordTo": str(tmp_path / "recordings")} if recording else {"scratch": str(tmp_path / "scratch")}

    def start() -> Any:
        df = spark.readStream.format("mainstem.live").options(**options).load().select("payload")
        writer = df.writeStream.format("parquet").option("path", str(tmp_path / "table"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        wait_for(lambda: query.lastProgress is not None or query.exception() is not None)
        return query

    def rows(query: Any) -> int:
        query.processAllAvailable()
        return int(spark.read.schema("payload binary").parquet(str(tmp_path / "table")).count())

    query = start()
    offer(driver, 300, stream_id=stream_id)
    wait_for(lambda: rows(query) == 300)
    query.stop()
    query = start()
    offer(driver, 200, 300, stream_id=stream_id)
    wait_for(lambda: rows(query) == 500)
    query.stop()
    assert texts(spark.read.parquet(str(tmp_path / "table"))) == EXPECTED
    # The second run removed the first run's directory.
    assert len(list((tmp_path / "scratch").glob("*/*"))) == (0 if recording else 1)


def test_formats_report_unsupported_features(spark: SparkSession) -> None:
    assert pyspark_mainstem_channel.DefaultSource.name() == "mainstem.channel"
    assert pyspark_mainstem_live.DefaultSource.name() == "mainstem.live"
    with pytest.raises(Exception, match="has no end"):
        spark.read.format("mainstem.live").options(channel="aeron:ipc", streamId=1).load().count()
    with pytest.raises(Exception, match="can only write"):
        spark.read.format("mainstem.channel").options(channel="aeron:ipc", streamId=1).load().count()
