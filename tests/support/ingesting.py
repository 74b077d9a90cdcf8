"""A recording that ``ingest`` loads into a table, and a commit that Spark forgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.recording import Recorder
from mainstem.recording.message_server import MessageLog
from mainstem.spark.ingest.options import IngestOptions
from mainstem.spark.ingest.query import Count, start

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def log(path: Path, payloads: list[bytes], stream_id: int = 1001) -> None:
    with Recorder(path) as recorder:
        MessageLog(recorder, stream_id=stream_id).write((0, payload) for payload in payloads)


def ingest(spark: SparkSession, tmp_path: Path, **options: Any) -> tuple[list[Any], Count]:
    given = IngestOptions(source=str(tmp_path / "recordings"), out=tmp_path / "table", **options)
    query, count = start(spark, given), Count()
    assert query.awaitTermination(200)
    count.update(query)
    rows = spark.read.parquet(str(tmp_path / "table")).orderBy("stream_id", "position").collect()
    return rows, count


def forget_last_batch(checkpoint: Path) -> None:
    """Simulate a driver that ended between the table's commit and the checkpoint's commit."""
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        path.unlink(missing_ok=True)
