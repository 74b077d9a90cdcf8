"""Which analyses need Spark: those with more input than this process can read in seconds."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support import captures as make
from tests.support.waiting import STALL_S

from mainstem.analysis import program
from mainstem.analysis.options import AnalyzeOptions, Inputs
from mainstem.analysis.program import analyze_here, needs_spark
from mainstem.errors import CaptureError, MissingExtraError

if TYPE_CHECKING:
    from pathlib import Path


def test_recordings_are_always_analyzed_with_spark(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(b"1")
    assert not needs_spark(Inputs(captures=[str(tmp_path)]), {})
    assert needs_spark(Inputs(captures=[str(tmp_path)], recordings=[str(tmp_path)]), {})


def test_unreadable_input_is_an_error_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="absent"):
        needs_spark(Inputs(captures=[str(tmp_path / "absent")]), {})
    (tmp_path / "part.parquet").write_bytes(b"no table")
    with pytest.raises(CaptureError, match=r"part\.parquet is not a table"):
        needs_spark(Inputs(frames=[str(tmp_path)]), {})


def test_a_capture_of_a_multiplexer_needs_spark_at_a_smaller_size(tmp_path: Path) -> None:
    with (tmp_path / "a.pcap").open("wb") as file:
        file.truncate(program.LOCAL_CAPTURE_BYTES)
    inputs = Inputs(captures=[str(tmp_path)])
    assert not needs_spark(inputs, {"aeronPorts": "40123"})
    assert needs_spark(inputs, {"bymuxPorts": "4000"})
    assert needs_spark(inputs, {"jmuxports": "4000"})


def test_packed_frames_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "LOCAL_FRAMES", 1000)
    pq.write_table(pa.table({"type": pa.repeat(1, 1000)}), tmp_path / "a.parquet")
    inputs = Inputs(frames=[str(tmp_path)])
    assert not needs_spark(inputs, {})
    pq.write_table(pa.table({"type": [1]}), tmp_path / "b.parquet")
    assert needs_spark(inputs, {})


def test_without_duckdb_spark_converts_and_without_both_the_smaller_extra_is_suggested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.pcap").write_bytes(b"1")
    options = AnalyzeOptions(inputs=(str(tmp_path / "a.pcap"),), out=tmp_path / "out")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert needs_spark(options.split(), {})
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingExtraError, match=r"duckdb is not installed: pip install 'mainstem\[tables\]'"):
        analyze_here(options)


@pytest.mark.long
def test_the_command_loads_neither_pandas_nor_what_reads_tables(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    frame = make.link(make.ip(make.udp(make.data_frame(b"x"))), make.ETHERNET)
    (tmp_path / "a.pcap").write_bytes(make.pcap([frame]))
    code = (
        "import atexit, sys; from mainstem.cli import main;"
        " atexit.register(lambda: print(sorted({'pandas', 'pyarrow.dataset', 'pyspark'} & sys.modules.keys())));"
        f" main(['analyze', {str(tmp_path / 'a.pcap')!r}, '--out', {str(tmp_path / 'out')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=STALL_S, check=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout
    assert (tmp_path / "out" / "report.html").exists()
