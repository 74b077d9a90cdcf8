"""Which recordings a query reads, and how their bytes are divided among its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from mainstem.errors import ConfigurationError, RecordingNotFound
from mainstem.recording.rows.filters import compared
from mainstem.spark.filtered_read import pruned_options
from mainstem.spark.sources.options import SHARED_BYTES
from mainstem.spark.sources.planning import tasks_for
from mainstem.spark.sources.recording import RecordingSource

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


@pytest.mark.parametrize(
    ("total", "partition_bytes", "cores", "tasks"),
    [
        (0, 512 * MIB, 2, 0),
        (1, 512 * MIB, 2, 1),
        (SHARED_BYTES, 512 * MIB, 4, 1),
        (2 * SHARED_BYTES, 512 * MIB, 4, 2),
        (1024 * MIB, 512 * MIB, 2, 2),
        (1024 * MIB, 512 * MIB, 16, 16),
        (1024 * MIB + 1, 512 * MIB, 2, 4),
        (5120 * MIB, 512 * MIB, 4, 12),
        (10 * MIB, MIB, 4, 12),
        (10 * MIB, MIB, 1, 10),
    ],
)
def test_tasks_are_no_larger_than_asked_and_leave_no_core_idle(
    total: int, partition_bytes: int, cores: int, tasks: int
) -> None:
    assert tasks_for(total, partition_bytes, cores) == tasks
    assert tasks * partition_bytes >= total


def batch_reader(recordings: Path, **options: str) -> Any:
    source = RecordingSource({"path": str(recordings), "parallelism": "2"} | options)
    return source.reader(StructType([StructField("position", LongType(), False)]))


def rows_of(reader: Any) -> list[int]:
    return [sum(batch.num_rows for batch in reader.read(part)) for part in reader.partitions()]


def test_a_task_reads_only_its_share_of_messages(recordings: Path) -> None:
    assert max(rows_of(batch_reader(recordings))) > 70
    sizes = rows_of(batch_reader(recordings, maxRowsPerPartition="70"))
    assert sum(sizes) == 1000
    assert max(sizes) <= 70
    assert len(sizes) <= 2 * -(-500 // 70)


def test_small_pieces_share_a_task_only_within_the_limit(recordings: Path) -> None:
    sizes = rows_of(batch_reader(recordings, maxRowsPerPartition="70", toPosition="3200"))
    assert max(sizes) <= 70
    assert sum(sizes) == 2 * 19


def test_too_many_tasks_are_refused(recordings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.spark.sources.planning.MAX_TASKS", 100)
    with pytest.raises(ConfigurationError, match="maxRowsPerPartition needs more than 100 tasks"):
        batch_reader(recordings, maxRowsPerPartition="1").partitions()


def test_a_batch_of_a_recording_that_does_not_exist_fails(recordings: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert sum(rows_of(batch_reader(recordings, recordingId="1"))) == 500
    with pytest.raises(RecordingNotFound, match=f"{recordings} has no recording 7, 8; set failOnDataLoss to false"):
        batch_reader(recordings, recordingId="8,1,7").partitions()
    assert sum(rows_of(batch_reader(recordings, recordingId="8,1,7", failOnDataLoss="false"))) == 500
    assert "has no recording 7, 8; skipped" in caplog.text
    reader = RecordingSource({"path": str(recordings), "recordingId": "7", "rows": "problems"}).reader(
        StructType([StructField("text", StringType())])
    )
    with pytest.raises(RecordingNotFound, match=r"has no recording 7$"):
        reader.partitions()


def test_the_recordings_of_a_condition_need_not_exist(recordings: Path) -> None:
    options = pruned_options(compared("recording_id", "=", 7), {})
    assert batch_reader(recordings, **options).partitions() == []
    # A recording that an option names must exist, whatever the condition is.
    for condition in (compared("recording_id", "=", 7), compared("stream_id", "=", 1001)):
        named = {"recordingId": "7"}
        with pytest.raises(RecordingNotFound, match="has no recording 7"):
            batch_reader(recordings, **named | pruned_options(condition, named)).partitions()
