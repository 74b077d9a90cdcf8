"""How the bytes of a query are divided among its tasks."""

from __future__ import annotations

import pytest

from mainstem.spark.sources.options import SHARED_BYTES
from mainstem.spark.sources.planning import tasks_for

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
