"""An analysis without Spark: DuckDB produces the same tables. ``tests/spark/test_analyze.py`` compares both."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from itertools import chain
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.captures import data_frame, ip, link, nak_frame, pcap, udp
from tests.support.frames import CHANNELS, everything, to_arrow
from tests.support.waiting import STALL_S

from mainstem.analysis.folds.path import CHANNEL
from mainstem.analysis.local_tables import MACROS, SETTINGS
from mainstem.analysis.options import AnalyzeOptions
from mainstem.analysis.program import analyze_here
from mainstem.capture.schema import COLUMNS
from mainstem.errors import CaptureError
from mainstem.spark.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path

OF_FRAMES = set(TABLES) - {"messages", "recorded_sessions"}


def write_capture(path: Path, packets: list[bytes]) -> None:
    path.write_bytes(pcap([link(packet, 1) for packet in packets]))


def one_stream(*, lost: bool) -> list[bytes]:
    """Return three messages of a stream. If ``lost``, the second appears only after a receiver has requested it."""
    data = [ip(udp(data_frame(b"x" * 32, at=64 * n))) for n in range(3)]
    asked = ip(udp(nak_frame(at=64, length=64), source=40123, to=40001), source="10.0.0.2", to="10.0.0.1")
    return [data[0], data[2], asked, data[1]] if lost else data


@pytest.mark.parametrize("directory", ["out", "it's [1] * ?"])
def test_every_table_is_written_wherever_it_goes(tmp_path: Path, directory: str) -> None:
    (tmp_path / directory).mkdir()
    write_capture(tmp_path / directory / "a.pcap", one_stream(lost=True))
    options = AnalyzeOptions(inputs=(str(tmp_path / directory / "a.pcap"),), out=tmp_path / directory / "report")
    analysis = analyze_here(options)
    assert {path.name for path in options.tables.iterdir()} == OF_FRAMES
    for name in OF_FRAMES:
        assert pq.read_table(options.tables / name).column_names == list(TABLES[name].names)
    (gap,) = pq.read_table(options.tables / "gaps").to_pylist()
    assert (gap["position"], gap["length"], gap["place"], gap["status"]) == (64, 64, "before the capture", "repaired")
    assert analysis.summary.totals["naks"] == 1
    assert "1 range" in analysis.verdict[0]
    assert json.loads((options.out / "summary.json").read_text()) == json.loads(json.dumps(analysis.as_json()))


def test_an_analysis_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    options = AnalyzeOptions(inputs=(str(path),), out=tmp_path / "report")
    for lost in (True, False):
        write_capture(path, one_stream(lost=lost))
        analyze_here(options)
        assert pq.read_table(options.tables / "gaps").num_rows == int(lost)


def test_captures_and_tables_of_frames_are_read_together(tmp_path: Path) -> None:
    write_capture(tmp_path / "a.pcap", one_stream(lost=False))
    (tmp_path / "frames").mkdir()
    rows = everything()
    pq.write_table(to_arrow(rows).drop_columns(["ttl"]), tmp_path / "frames" / "0.parquet")
    options = AnalyzeOptions(inputs=(str(tmp_path / "a.pcap"), str(tmp_path / "frames")), out=tmp_path / "report")
    analyze_here(options)
    frames = pq.read_table(options.tables / "frames")
    assert frames.num_rows == 3 + len(rows)
    assert frames.column_names == [*(column.name for column in COLUMNS), "channel"]


def test_frames_whose_channel_cannot_be_named_are_one_channel(tmp_path: Path) -> None:
    rows = [row for row in everything() if row.get("protocol") == "aeron"]
    lost = [row | {"dst": "ff02::", "src": "fe80::1"} for row in rows if row["type"] == 3]
    assert lost
    (tmp_path / "frames").mkdir()
    pq.write_table(to_arrow(rows + lost), tmp_path / "frames" / "0.parquet")
    options = AnalyzeOptions(inputs=(str(tmp_path / "frames"),), out=tmp_path / "report")
    analyze_here(options)
    status = pq.read_table(options.tables / "status_messages")
    assert status["channel"].null_count == len(lost)
    keys = pq.read_table(options.tables / "sessions").select(["session_id", "stream_id", "channel"]).to_pylist()
    assert any(key["channel"] is None for key in keys)
    assert len(keys) == len({tuple(key.values()) for key in keys})


def test_a_file_that_is_not_a_capture_is_one_problem(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_capture(
        tmp_path / "in" / "a.pcap", [*one_stream(lost=False), ip(b"icmp", protocol=1), ip(b"icmp", protocol=1)]
    )
    (tmp_path / "in" / "b.pcap").write_bytes(b"no capture at all, and long enough to be read")
    options = AnalyzeOptions(inputs=(str(tmp_path / "in"),), out=tmp_path / "report")
    summary = analyze_here(options).summary
    assert summary.problem_counts == {"UNREADABLE_FILE": 1}
    assert list(summary.passed_over.values()) == [2]
    assert summary.packets == 3


def test_a_table_without_frames_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"packet": ["a", "b"]}), tmp_path / "0.parquet")
    with pytest.raises(CaptureError, match="has no frames"):
        analyze_here(AnalyzeOptions(inputs=(str(tmp_path),), out=tmp_path / "report"))


@pytest.mark.parametrize(("kind", "src", "dst", "channel"), CHANNELS)
def test_the_channel_of_a_frame(kind: int, src: str | None, dst: str, channel: str | None) -> None:
    with duckdb.connect() as db:
        for statement in (*(f"set {each}" for each in SETTINGS), *(f"create macro {each}" for each in MACROS)):
            db.execute(statement)
        frame = "(select ?::int as type, 0 as flags, ? as src, 8 as src_port, ? as dst, 9 as dst_port)"
        assert db.execute(f"select {CHANNEL} from {frame}", [kind, src, dst]).fetchone() == (channel,)


def test_neither_spark_nor_java_is_started_or_imported(tmp_path: Path) -> None:
    write_capture(tmp_path / "a.pcap", one_stream(lost=True))
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from mainstem.cli import main\n"
        f"main(['analyze', {str(tmp_path / 'a.pcap')!r}, '--out', {str(tmp_path / 'out')!r}, '--json'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=STALL_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["naks"] == 1


def test_without_a_clock_the_tables_are_the_same_in_1970(tmp_path: Path) -> None:
    frames, found = to_arrow(everything()).drop_columns(["ttl"]), []
    (tmp_path / "frames").mkdir()
    for first_s in (1_700_000_000, 0):
        # Everything has the time at which the device was turned on.
        packets = [link(packet, 1) for packet in one_stream(lost=True)]
        records = (struct.pack("<IIII", first_s, 0, len(packet), len(packet)) + packet for packet in packets)
        (tmp_path / "a.pcap").write_bytes(pcap([]) + b"".join(records))
        times = pa.repeat(pa.scalar(first_s * 10**9, frames.schema.field("time_ns").type), frames.num_rows)
        of_time = frames.set_column(frames.column_names.index("time_ns"), "time_ns", times)
        pq.write_table(of_time, tmp_path / "frames" / "0.parquet")
        inputs = (str(tmp_path / "a.pcap"), str(tmp_path / "frames"))
        options = AnalyzeOptions(inputs=inputs, out=tmp_path / f"{first_s}")
        summary = analyze_here(options).summary
        assert (summary.first_ns, summary.duration_ns) == (first_s * 10**9, 0)
        rows = {name: pq.read_table(options.tables / name).to_pylist() for name in sorted(OF_FRAMES)}
        for row in chain(*rows.values()):
            # A time is there or not.
            row |= {name: value is None for name, value in row.items() if name.endswith(("time", "_ns"))}
        found.append(rows)
    assert found[0] == found[1]
    assert "repaired" in {row["status"] for row in found[1]["gaps"]}
