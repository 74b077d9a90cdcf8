"""Only what surely fits into the driver's memory is collected there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.spark.report import local_path
from mainstem.spark.report.options import Inputs

if TYPE_CHECKING:
    from pathlib import Path


def test_recordings_and_what_cannot_be_read_are_never_small(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(b"1")
    assert local_path.is_small(Inputs(captures=[str(tmp_path)]), {})
    assert not local_path.is_small(Inputs(captures=[str(tmp_path)], recordings=[str(tmp_path)]), {})
    assert not local_path.is_small(Inputs(captures=[str(tmp_path / "absent")]), {})
    (tmp_path / "part.parquet").write_bytes(b"no table")
    assert not local_path.is_small(Inputs(frames=[str(tmp_path)]), {})


def test_captures_of_multiplexers_are_small_only_where_frames_of_a_byte_would_fit(tmp_path: Path) -> None:
    with (tmp_path / "a.pcap").open("wb") as file:
        file.truncate(local_path.SMALL_CAPTURE_BYTES)
    inputs = Inputs(captures=[str(tmp_path)])
    assert local_path.is_small(inputs, {"aeronPorts": "40123"})
    assert not local_path.is_small(inputs, {"bymuxPorts": "4000"})
    assert not local_path.is_small(inputs, {"jmuxports": "4000"})


def test_packed_frames_are_counted_and_not_only_weighed(tmp_path: Path) -> None:
    pq.write_table(pa.table({"type": pa.repeat(1, local_path.SMALL_FRAMES)}), tmp_path / "a.parquet")
    inputs = Inputs(frames=[str(tmp_path)])
    assert local_path.is_small(inputs, {})
    pq.write_table(pa.table({"type": [1]}), tmp_path / "b.parquet")
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < local_path.SMALL_FRAMES_BYTES
    assert not local_path.is_small(inputs, {})
