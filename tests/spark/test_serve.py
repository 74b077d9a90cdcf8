"""Spark over ``mainstem serve``: a live query, a query while the server ends, and one with the closed part in another directory."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("aiohttp")

from tests.support.recording_server import RunningServer
from tests.support.streams import Stream, record

from mainstem.recording import Recorder
from mainstem.serve.access import Access

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TERM = 65536
TOKEN = "0123456789abcdef-token"


class Recording:
    """One growing recording of numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recorder = Recorder(path, segment_length=TERM)
        self.stream = Stream()
        self.writer = Stream().start(self.recorder)
        self.count = 0

    def add(self, count: int) -> None:
        record(
            self.writer, self.stream, [b"%d" % (self.count + i) for i in range(count)], time_ns=1_700_000_000 * 10**9
        )
        self.count += count


def numbers(df: DataFrame) -> list[int]:
    return sorted(int(bytes(row.payload)) for row in df.select("payload").collect())


def test_a_batch_over_a_server_has_the_rows_of_the_directory(spark: SparkSession, tmp_path: Path) -> None:
    recording = Recording(tmp_path / "rec")
    recording.add(5000)
    with RunningServer(recording.path, access=Access((TOKEN,))) as server:
        reader = spark.read.format("mainstem.recording")
        remote = reader.options(token=TOKEN, minPartitions=3).load(server.url)
        local = spark.read.format("mainstem.recording").load(str(recording.path))
        assert sorted(remote.collect()) == sorted(local.collect())
        assert remote.count() == 5000
        assert TOKEN not in str(remote._jdf.queryExecution().toString())
    recording.recorder.close()


@pytest.mark.long
def test_a_live_query_over_a_server_that_restarts_has_each_message_once(spark: SparkSession, tmp_path: Path) -> None:
    recording = Recording(tmp_path / "rec")
    recording.add(500)
    server = RunningServer(recording.path)
    server.__enter__()
    port = int(server.url.rpartition(":")[2])
    df = spark.readStream.format("mainstem.recording").load(server.url)
    query = (
        df.writeStream.format("memory")
        .queryName("served")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        for _ in range(3):
            query.processAllAvailable()
            assert numbers(spark.table("served")) == list(range(recording.count))
            recording.add(700)
            server.__exit__()
            again = RunningServer(recording.path, port=port)
            starting = threading.Timer(0.5, again.__enter__)
            starting.start()
            query.processAllAvailable()
            starting.join()
            server = again
        assert numbers(spark.table("served")) == list(range(recording.count))
    finally:
        query.stop()
        server.__exit__()
        recording.recorder.close()


@pytest.mark.long
def test_a_query_reads_closed_segments_from_one_place_and_the_tail_from_a_server(
    spark: SparkSession, tmp_path: Path
) -> None:
    recording = Recording(tmp_path / "rec")
    recording.add(5000)
    closed = tmp_path / "closed"

    def ship() -> None:
        """Move the closed segments, and write how far they reach to the positions file."""
        closed.mkdir(exist_ok=True)
        end = recording.writer.position // TERM * TERM
        for base in range(0, end, TERM):
            source = recording.path / f"0-{base}.rec"
            if source.exists():
                shutil.copy(source, closed)
        positions = bytearray((recording.path / "0.mainstem-positions").read_bytes())
        positions[16:24] = end.to_bytes(8, "little")
        (closed / "new").write_bytes(positions)
        (closed / "new").rename(closed / "0.mainstem-positions")
        # Replace the catalog atomically, because the query reads it at the same time.
        shutil.copy(recording.path / "archive.catalog", closed / "new")
        (closed / "new").rename(closed / "archive.catalog")
        for base in range(0, end, TERM):
            (recording.path / f"0-{base}.rec").unlink(missing_ok=True)

    ship()
    with RunningServer(recording.path, access=Access((TOKEN,))) as server:
        options = {"tail": server.url, "tail.token": TOKEN}
        assert numbers(spark.read.format("mainstem.recording").options(**options).load(str(closed))) == list(
            range(5000)
        )
        df = spark.readStream.format("mainstem.recording").options(**options).load(str(closed))
        query = df.writeStream.format("memory").queryName("tailed").start()
        try:
            for _ in range(3):
                recording.add(1500)
                query.processAllAvailable()
                ship()
            assert numbers(spark.table("tailed")) == list(range(recording.count))
        finally:
            query.stop()
            recording.recorder.close()
