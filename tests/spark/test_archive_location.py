"""A running archive as a location of the Spark source: batch and streaming, by several concurrent tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.ports import free_port
from tests.support.waiting import STALL_S, wait_for

import mainstem
from mainstem import MediaDriver, archive
from mainstem.archive.server import ArchiveServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

COUNT = 300


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, MediaDriver, ArchiveServer]]:
    port = free_port()
    with (
        MediaDriver.launch() as driver,
        ArchiveServer.launch(
            tmp_path / "archive",
            driver.directory,
            control_channel=f"aeron:udp?endpoint=localhost:{port}",
            segment_file_length=128 << 10,
        ) as server,
    ):
        yield f"aeron-archive://localhost:{port}", driver, server


def payload(number: int) -> bytes:
    return number.to_bytes(4, "big") * (1 + number % 500)


def publish(publication: Any, first: int) -> None:
    for number in range(first, first + COUNT):
        publication.send(payload(number), timeout=STALL_S)


@pytest.mark.parametrize("has_driver", [True, False])
def test_batch_and_stream(
    spark: SparkSession,
    served: tuple[str, MediaDriver, ArchiveServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_driver: bool,
) -> None:
    url, driver, server = served
    monkeypatch.setenv("AERON_DIR", str(tmp_path / "none"))
    options = {"aeron_dir": driver.directory} if has_driver else {}
    with mainstem.connect(driver.directory) as aeron, archive.connect("aeron:ipc", aeron=aeron) as client:
        client.start_recording("aeron:ipc", 1001, auto_stop=True)
        with aeron.add_exclusive_publication("aeron:ipc?term-length=64k", 1001) as publication:
            publish(publication, 0)
            next(client.events(timeout=STALL_S))
            wait_for(lambda: client.recording_position(0) == publication.position)
            frame = spark.read.format("mainstem.recording").options(**options, minPartitions=3).load(url)
            assert frame.rdd.getNumPartitions() >= 2
            rows = frame.select("payload").collect()
            assert sorted(bytes(row.payload) for row in rows) == sorted(payload(number) for number in range(COUNT))
            stream = spark.readStream.format("mainstem.recording").options(**options).load(url)
            out = str(tmp_path / "out")

            def run() -> list[bytes]:
                query = (
                    stream.select("payload")
                    .writeStream.format("parquet")
                    .option("checkpointLocation", str(tmp_path / "checkpoint"))
                    .trigger(availableNow=True)
                    .start(out)
                )
                assert query.awaitTermination(STALL_S)
                return sorted(bytes(row.payload) for row in spark.read.parquet(out).collect())

            assert run() == sorted(payload(number) for number in range(COUNT))
            publish(publication, COUNT)
            wait_for(lambda: client.recording_position(0) == publication.position)
            assert run() == sorted(payload(number) for number in range(2 * COUNT))
    wait_for(lambda: server.stats().replays == 0)
