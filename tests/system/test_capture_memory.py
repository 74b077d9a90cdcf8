"""Reading a capture takes a constant amount of memory, whatever the capture's size."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.harness.make_capture import make

pytestmark = [pytest.mark.system, pytest.mark.long]

ROOT = Path(__file__).parents[2]
# How much more memory a larger file may take: far below its size, but above what an allocator keeps.
SLACK_KIB = 24 << 10
READ = """
import re, sys
from pathlib import Path
from mainstem.capture.index import build
from mainstem.capture.planning import FrameSelection
from mainstem.capture.reading import frames
from mainstem.capture.schema import columns
names = tuple(column.name for column in columns(payload=True))
rows = 0
for batch in frames(sys.argv[1], FrameSelection(names=names, bymux_ports=(9000,)), build(sys.argv[1])):
    rows += batch.num_rows
# Not `ru_maxrss`: a process begins with its parent's peak.
print(rows, re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def reading(path: Path) -> tuple[int, int]:
    """Return the number of rows in a file, and the peak memory in KiB of a process that read it."""
    command = [sys.executable, "-c", READ, str(path)]
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin"}
    output = subprocess.run(command, capture_output=True, check=True, text=True, env=environment).stdout
    rows, peak = output.split()
    return int(rows), int(peak)


def test_five_times_the_capture_takes_the_same_memory(tmp_path: Path) -> None:
    small, large = tmp_path / "small.pcap", tmp_path / "large.pcap"
    make(small, 16 << 20, mux=True)
    make(large, 80 << 20, mux=True)
    few, usual = reading(small)
    many, peak = reading(large)
    assert many == pytest.approx(5 * few, rel=0.01)
    assert peak < usual + SLACK_KIB


@pytest.mark.parametrize("record", [0, 0x7FFFFFFF], ids=["empty packets", "a packet of 2 GiB"])
def test_a_compressed_file_that_becomes_huge_takes_the_same_memory(tmp_path: Path, record: int) -> None:
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + struct.pack("<IIII", 0, 0, record, record)
    peaks = []
    for size in (8 << 20, 24 << 20):
        path = tmp_path / f"{size}.pcap.gz"
        path.write_bytes(gzip.compress(head + bytes(size)))
        assert path.stat().st_size < size // 500
        peaks.append(reading(path)[1])
    assert peaks[1] < peaks[0] + (12 << 10)  # in KiB: less than the 16 MiB that the file has more
