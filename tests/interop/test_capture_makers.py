"""Accounting for captures made by other programs: rows plus counted packets equal the number that Wireshark's tools report.

``MAINSTEM_CAPTURES`` names a directory of captures, such as tcpdump's test captures; ``MAINSTEM_SCAPY_PYTHON`` a Python that has
scapy.
"""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support import captures as make
from tests.support.packet_accounting import accounted
from tests.support.tunnels import WRAPPED

from mainstem.capture import index as indexing
from mainstem.capture.index import build
from mainstem.capture.planning import FrameSelection, plan, plan_new
from mainstem.capture.reading import frames, read

if TYPE_CHECKING:
    from mainstem.capture.chunks import FrameIndex

pytestmark = [pytest.mark.interop, pytest.mark.long]
needs_wireshark = pytest.mark.skipif(
    None in (shutil.which("editcap"), shutil.which("capinfos")), reason="editcap and capinfos are not installed"
)
NAMES = ("packet", "frame_type", "length", "text", "src", "payload")
GUESSED = FrameSelection(names=NAMES, count_skipped=True)
# Names every port, so that everything in a capture is decoded, whatever it is.
NAMED = FrameSelection(
    names=NAMES,
    aeron_ports=tuple(range(1, 1 << 16)),
    bymux_ports=tuple(range(1, 1 << 15)),
    jmux_ports=tuple(range(1 << 15, 1 << 16)),
    count_skipped=True,
)


def rows_of(path: Path, index: FrameIndex, selection: FrameSelection = GUESSED) -> list[dict[str, Any]]:
    return [row for batch in frames(str(path), selection, index) for row in batch.to_pylist()]


def accounts(path: Path, index: FrameIndex) -> set[int]:
    """Return the packet totals (in rows or counted) when read whole, in parts, and as a stream, with either selection."""
    file, out = str(path), set()
    for selection in (GUESSED, NAMED):
        out.add(accounted(rows_of(path, index, selection)))
        parts = plan(file, index, selection, part_bytes=20_000)
        out.add(accounted(row for part in parts for batch in read(part, selection) for row in batch.to_pylist()))
        ends = [0, *(chunk.end for chunk in index.chunks)]
        cuts = sorted({0, ends[len(ends) // 3], ends[len(ends) // 2], index.end})
        spans = itertools.pairwise(cuts)
        new = (part for begin, end in spans for part in plan_new(file, index, selection, begin, end, part_bytes=20_000))
        out.add(accounted(row for part in new for batch in read(part, selection) for row in batch.to_pylist()))
    return out


def packets_by_capinfos(path: Path) -> int | None:
    """Return the number of packets, or None if Wireshark does not read the file's type or link type."""
    command = ["capinfos", "-c", "-M", "-T", "-r", "-m", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    count = text.rpartition(",")[2]
    return int(count) if count.isdecimal() else None


@needs_wireshark
def test_every_capture_of_a_directory_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = os.environ.get("MAINSTEM_CAPTURES")
    if not directory:
        pytest.skip("MAINSTEM_CAPTURES names no directory of captures")
    monkeypatch.setattr(indexing, "CHUNK_BYTES", 5000)
    faults, read_at_all = [], 0
    for path in sorted(each for each in Path(directory).rglob("*") if each.is_file()):
        index = build(str(path))
        count = packets_by_capinfos(path) if index.format is not None else None
        if index.format is None or index.format.name == "aqueduct":
            continue
        read_at_all += 1
        if not {index.packets} == accounts(path, index) == {index.packets if count is None else count}:
            faults.append(f"{path}: {index.packets} packets, {count} by capinfos")
    assert faults == []
    assert read_at_all


@pytest.fixture(scope="module")
def packets() -> list[bytes]:
    """Return each encapsulation around an Aeron frame, and packets without a frame."""
    inner = make.ip(make.udp(make.data_frame(b"tide" * 20)))
    others = [
        bytes(12) + b"\x08\x06" + bytes(28),
        make.link(make.ip(make.tcp(b"x" * 50, to=81), protocol=6), make.ETHERNET),
        make.link(make.ip(bytes(60), protocol=1), make.ETHERNET),
        make.link(make.ip(make.udp(bytes(64)), source="fe80::1", to="fe80::2"), make.ETHERNET),
    ]
    return [packet for wrap in WRAPPED.values() for packet in (wrap(inner), *others)]


@pytest.fixture
def source(tmp_path: Path, packets: list[bytes]) -> Path:
    path = tmp_path / "source.pcap"
    path.write_bytes(make.pcap(packets))
    return path


def edited(source: Path, name: str, *options: str) -> Path:
    out = source.with_name(name)
    result = subprocess.run(["editcap", *options, source, out], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return out


@needs_wireshark
@pytest.mark.parametrize("form", ["pcap", "nsecpcap", "pcapng"])
@pytest.mark.parametrize("pack", [None, gzip.compress, lambda data: pa.Codec("zstd").compress(data, asbytes=True)])
@pytest.mark.parametrize("snapshot", [None, 14, 40, 68, 96])
def test_a_file_of_each_form_cut_and_packed_adds_up(
    source: Path, packets: list[bytes], form: str, pack: Any, snapshot: int | None
) -> None:
    path = edited(source, f"edited.{form}", "-F", form, *(() if snapshot is None else ("-s", str(snapshot))))
    assert packets_by_capinfos(path) == len(packets)
    if pack is not None:
        path.write_bytes(pack(path.read_bytes()))
    index = build(str(path))
    assert accounts(path, index) == {index.packets} == {len(packets)}
    rows = rows_of(path, index)
    assert not {row["frame_type"] for row in rows} & {"TRUNCATED_FILE", "CORRUPT_FILE", "UNREADABLE_FILE"}
    if snapshot is None:
        assert [row["payload"] for row in rows if row["frame_type"] == "DATA"] == [b"tide" * 20] * len(WRAPPED)


def listed(option: str) -> list[str]:
    """Return what editcap supports: file formats (-F) or encapsulations (-T)."""
    if shutil.which("editcap") is None:
        return []
    result = subprocess.run(["editcap", option], capture_output=True, text=True, check=False)
    lines = (result.stdout + result.stderr).splitlines()
    return [line.split(" - ")[0].strip() for line in lines if " - " in line]


@needs_wireshark
def test_a_file_of_each_encapsulation_adds_up(source: Path, packets: list[bytes]) -> None:
    checked = 0
    for form in ("pcap", "pcapng"):
        for link in listed("-T"):
            path = source.with_name("linked")
            path.unlink(missing_ok=True)
            command = ["editcap", "-F", form, "-T", link, source, path]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                continue  # the format has no number for this encapsulation
            index = build(str(path))
            assert accounts(path, index) == {index.packets} == {packets_by_capinfos(path)}, link
            # A capture of systemd's journal consists of entries.
            assert index.packets == len(packets) or link == "sdjournal", link
            checked += 1
    assert checked > 100


@needs_wireshark
def test_a_file_of_another_form_is_a_problem_and_adds_up(source: Path) -> None:
    checked = 0
    for form in listed("-F"):
        path = source.with_name("formed")
        path.unlink(missing_ok=True)
        command = ["editcap", "-F", form, source, path]
        if subprocess.run(command, capture_output=True, check=False).returncode or "pcapng" in form:
            continue
        index = build(str(path))
        assert accounts(path, index) == {index.packets}, form
        kinds = {row["frame_type"] for row in rows_of(path, index)}
        # Some formats start with pcap's magic number and continue with different records.
        assert form in ("pcap", "nsecpcap") or kinds & {"UNREADABLE_FILE", "CORRUPT_FILE"}, form
        checked += 1
    assert checked > 10


def test_packets_built_by_scapy_are_read(tmp_path: Path) -> None:
    python = os.environ.get("MAINSTEM_SCAPY_PYTHON", sys.executable if importlib.util.find_spec("scapy") else "")
    if not python:
        pytest.skip("MAINSTEM_SCAPY_PYTHON names no Python with scapy")
    # Remove this Python's paths, since the other Python may be a different version.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, Path(__file__).with_name("end_scapy.py"), tmp_path]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    facts = json.loads(result.stdout)
    assert len(facts) > 50
    for name, (count, carrying) in facts.items():
        index = build(str(tmp_path / name))
        assert accounts(tmp_path / name, index) == {index.packets} == {count}, name
        rows = [row for row in rows_of(tmp_path / name, index) if row["frame_type"] == "DATA"]
        assert len(rows) == carrying, name
        assert {row["src"] for row in rows} <= {"192.168.7.1", "fe80::7:1"}, name
