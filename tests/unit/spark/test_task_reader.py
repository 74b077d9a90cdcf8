"""The rows that a task reads: columns, ranges, limits, problems, and what stays in memory."""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.streams import Stream, record

from mainstem.errors import RecordingError
from mainstem.recording import Recorder, read_catalog
from mainstem.recording.index import index_file
from mainstem.recording.rows.arrow import event_times
from mainstem.recording.segments import segment_name
from mainstem.spark.sources.options import RecordingOptions
from mainstem.spark.sources.task_reader import RecordingRange, TaskReader

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import gc
from mainstem.spark.sources import task_reader

seen = []
for task in range(task_reader.FREEZING_TASKS + 2):
    task_reader.freeze_gc()
    seen.append(gc.get_freeze_count())
    kept = globals().setdefault("kept", [])
    kept.append([[] for _ in range(10_000)])
    gc.collect()
print(*seen)
"""


def test_survivors_of_the_first_tasks_are_frozen_and_later_ones_collected() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    seen = [int(word) for word in done.stdout.split()]
    settling, later = seen[:-2], seen[-2:]
    assert all(after >= before + 10_000 for before, after in itertools.pairwise(settling))
    # A worker lives for days, so garbage from its tasks must be collected.
    assert later == [settling[-1]] * 2


@pytest.mark.parametrize(("unit", "factor"), [("ns", 1000), ("us", 1), ("ms", 0.001)])
def test_publisher_times_are_read_in_their_unit_and_null_if_invalid(unit: str, factor: float) -> None:
    now_us = 1_700_000_000_123_000
    values = pa.array([int(now_us * factor), 0, -5, 2**63 - 1], pa.int64())
    times = event_times(values, f"reserved_value_{unit}").cast(pa.int64()).to_pylist()
    # 64-bit nanoseconds end in the year 2262.
    assert times == [now_us, None, None, (2**63 - 1) // 1000 if unit == "ns" else None]


TERM = 65536
STREAM = {"session_id": 7, "stream_id": 1001, "initial_term_id": 0, "term_buffer_length": TERM, "mtu_length": 1408}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Four segments of messages that take 1,024 bytes each, headers included."""
    with Recorder(tmp_path, segment_length=TERM) as recorder:
        record(recorder.start(**STREAM, join_position=0), Stream(initial_term_id=0), [bytes(992)] * (4 * 64))
    return tmp_path


def positions(path: Path, **changes: Any) -> list[int]:
    (descriptor,) = read_catalog(path)
    options = RecordingOptions(rows_per_batch=50, **{"fail_on_data_loss": False} | changes)
    rows = TaskReader(options, {"position": False}).rows(RecordingRange(str(path), descriptor, 0, 4 * TERM))
    return [value for batch in rows for value in batch.column("position").to_pylist()]


@pytest.mark.parametrize("has_index", [True, False])
def test_a_missing_segment_loses_only_its_own_messages_and_is_logged(path: Path, has_index: bool, caplog: Any) -> None:
    whole = positions(path)
    (path / segment_name(0, TERM)).unlink()
    if not has_index:
        index_file(path, 0).unlink()
    with caplog.at_level(logging.WARNING):
        assert positions(path) == [each for each in whole if each <= TERM or each > 2 * TERM]
    assert f"recording 0: {TERM} to {2 * TERM} are skipped" in caplog.text
    with pytest.raises(RecordingError):
        positions(path, fail_on_data_loss=True)


def test_bytes_that_changed_cost_what_their_checksum_covers(path: Path, caplog: Any) -> None:
    whole = positions(path)
    with (path / segment_name(0, TERM)).open("r+b") as file:
        file.seek(TERM // 2 + 500)
        file.write(b"changed")
    with caplog.at_level(logging.WARNING):
        rest = positions(path, verify=True)
    lost = set(whole) - set(rest)
    assert TERM + TERM // 2 + 1024 in lost
    assert len(lost) <= 2 * 64
    assert max(rest) == max(whole)
    assert "are skipped: the bytes of positions" in caplog.text
    with pytest.raises(RecordingError, match="are not those that were recorded"):
        positions(path, verify=True, fail_on_data_loss=True)
