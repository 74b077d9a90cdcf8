"""A worker's garbage collector does not look at what was imported long ago."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pyarrow as pa
import pytest

from mainstem.spark.sources import batches

PROGRAM = """
import gc
from mainstem.spark.sources import batches

seen = []
for task in range(batches.SETTLING_TASKS + 2):
    batches.settle()
    seen.append(gc.get_freeze_count())
    kept = globals().setdefault("kept", [])
    kept.append([[] for _ in range(10_000)])
    gc.collect()
print(*seen)
"""


def test_what_the_first_tasks_leave_behind_is_not_looked_at_again_and_what_later_ones_leave_is() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    seen = [int(word) for word in done.stdout.split()]
    settling, later = seen[:-2], seen[-2:]
    assert all(after >= before + 10_000 for before, after in itertools.pairwise(settling))
    # A worker lives for days: what its tasks drop must be found.
    assert later == [settling[-1]] * 2


@pytest.mark.parametrize(("unit", "factor"), [("ns", 1000), ("us", 1), ("ms", 0.001)])
def test_times_of_publishers_are_read_in_their_unit_and_null_where_they_are_none(unit: str, factor: float) -> None:
    now_us = 1_700_000_000_123_000
    values = pa.array([int(now_us * factor), 0, -5, 2**63 - 1], pa.int64())
    times = batches.event_times(values, f"reserved_value_{unit}").cast(pa.int64()).to_pylist()
    # In nanoseconds 64 bits end in the year 2262.
    assert times == [now_us, None, None, (2**63 - 1) // 1000 if unit == "ns" else None]
