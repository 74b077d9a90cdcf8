"""How the bytes of a query are divided among its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from mainstem.errors import ConfigurationError
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
