"""Recordings from several locations, including an S3 server, as one source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.object_stores import (
    azurite_options,
    azurite_server,
    make_bucket,
    make_container,
    s3_options,
    s3_server,
)
from tests.support.streams import Stream, record

from mainstem.recording import Recorder
from mainstem.spark import recordings
from mainstem.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]
TERM = 65536


@pytest.fixture
def s3() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


def recorded(path: Path, session_id: int, messages: int = 300) -> None:
    with Recorder(path, segment_length=4 * TERM) as recorder:
        writer = Stream(session_id=session_id).start(recorder)
        record(writer, Stream(session_id=session_id), [bytes([session_id]) * 2000] * messages)


def upload(directory: Path, url: str, options: dict[str, str]) -> None:
    store = open_store(url, options)
    for file in directory.iterdir():
        store.put(file.name, file)
    store.close()


def test_a_stream_over_a_directory_and_a_pattern_of_s3_has_each_message_once(
    spark: SparkSession, tmp_path: Path, s3: str
) -> None:
    options, bucket = s3_options(s3), make_bucket(s3)
    for session_id, name in ((1, "here"), (2, "north"), (3, "south"), (4, "west")):
        recorded(tmp_path / name, session_id)
    for name in ("north", "south"):
        upload(tmp_path / name, f"s3://{bucket}/{name}/rec", options)
    locations = [str(tmp_path / "here"), f"s3://{bucket}/*/rec"]

    batch = recordings(spark, locations, **options)
    assert batch.columns[-2:] == ["archive", "host"]
    counts = {
        (row["archive"], row["session_id"]): row["count"]
        for row in batch.groupBy("archive", "session_id").count().collect()
    }
    assert counts == {
        (locations[0], 1): 300,
        (f"s3://{bucket}/north/rec", 2): 300,
        (f"s3://{bucket}/south/rec", 3): 300,
    }
    loaded = spark.read.format("mainstem.recording").options(**options).load(locations)
    assert loaded.select("payload").distinct().count() == 3

    def run() -> None:
        rows = recordings(
            spark, locations, streaming=True, schema="session_id int, position bigint, archive string", **options
        )
        query = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()

    run()
    upload(tmp_path / "west", f"s3://{bucket}/west/rec", options)
    run()
    out = spark.read.parquet(str(tmp_path / "out"))
    assert out.count() == out.distinct().count() == 1200
    assert {row["archive"] for row in out.select("archive").distinct().collect()} == {
        locations[0],
        *(f"s3://{bucket}/{name}/rec" for name in ("north", "south", "west")),
    }


def test_a_container_of_azure_is_read_by_tasks(spark: SparkSession, tmp_path: Path) -> None:
    recorded(tmp_path / "here", 5)
    with azurite_server() as endpoint:
        options, url = azurite_options(endpoint), f"abfs://{make_container(endpoint)}/rec"
        upload(tmp_path / "here", url, options)
        remote = spark.read.format("mainstem.recording").options(**options, minPartitions=3).load(url)
        local = spark.read.format("mainstem.recording").load(str(tmp_path / "here"))
        assert sorted(remote.collect()) == sorted(local.collect())
        assert remote.count() == 300
