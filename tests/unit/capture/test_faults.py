"""Truncated, corrupt or strange files and packets: rows before and after the problem, and a problem that describes it."""

from __future__ import annotations

import gzip
import io
import os
import struct
import time
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.support import captures as make
from tests.support.captures import rows_of_bytes

from mainstem.capture import index as indexing
from mainstem.capture import read_frames, unpacking
from mainstem.capture.index_store import index_of
from mainstem.capture.planning import FrameSelection, plan, plan_new
from mainstem.capture.reading import read
from mainstem.capture.schema import columns
from mainstem.errors import CaptureError, ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

PACKET = make.link(make.ip(make.udp(make.data_frame(b"high tide"))), make.ETHERNET)
SECTION = make.section() + make.interface(make.ETHERNET)


def kinds(rows: list[dict[str, object]]) -> list[object]:
    return [row["frame_type"] for row in rows]


@pytest.mark.parametrize("cut", [1, 8, 15, 16, 17, 40])
def test_a_pcap_that_ends_within_a_record(tmp_path: Path, cut: int) -> None:
    data = make.pcap([PACKET] * 4)
    rows = rows_of_bytes(tmp_path, data[: len(data) - len(PACKET) - 16 + cut])
    assert kinds(rows) == ["TRUNCATED_FILE", "DATA", "DATA", "DATA"]
    assert rows[0]["packet"] == 3


def test_a_pcapng_that_ends_within_a_block(tmp_path: Path) -> None:
    data = SECTION + b"".join(make.enhanced(PACKET, n) for n in range(3))
    rows = rows_of_bytes(tmp_path, data[:-5])
    assert kinds(rows) == ["TRUNCATED_FILE", "DATA", "DATA"]


@pytest.mark.parametrize(
    "head",
    [b"", b"\xd4\xc3", b"\xd4\xc3\xb2\xa1\x02\x00", b"#!/bin/sh\n", b"\x1f\x8b\x08 packed", b"\n\r\r\n" + bytes(9)],
)
def test_a_non_capture_is_one_problem(tmp_path: Path, head: bytes) -> None:
    assert kinds(rows_of_bytes(tmp_path, head)) == ["UNREADABLE_FILE"]


def test_a_packed_capture_says_how_it_is_packed(tmp_path: Path) -> None:
    assert "gzip" in rows_of_bytes(tmp_path, b"\x1f\x8b\x08\0\0\0\0\0")[0]["text"]
    assert "bzip2" in rows_of_bytes(tmp_path, b"BZh9")[0]["text"]


def pack(data: bytes, how: str) -> bytes:
    return gzip.compress(data) if how == "gzip" else pa.compress(data, codec="zstd", asbytes=True)


@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_a_packed_capture_is_read_by_one_task_as_it_is_unpacked(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    syn = make.link(make.ip(make.tcp(flags=make.TCP_SYN), protocol=6), make.ETHERNET)
    data = make.pcap([PACKET, syn] * 300)
    expected = rows_of_bytes(tmp_path, data, bymux_ports=(9000,))
    monkeypatch.setattr(indexing, "CHUNK_BYTES", 4096)
    path = tmp_path / "packed.pcap.gz"
    path.write_bytes(pack(data, how))
    selection = FrameSelection(names=("packet",), bymux_ports=(9000,))
    index = index_of(str(path))
    assert len(index.chunks) > 5
    assert index_of(str(path)) == index
    assert len(plan(str(path), index, selection, part_bytes=1000, min_parts=7)) == 1
    assert make.rows_of(path, bymux_ports=(9000,)) == [{**row, "file": str(path)} for row in expected]
    halves = [
        row
        for begin, end in ((0, index.chunks[2].end), (index.chunks[2].end, index.end))
        for part in plan_new(str(path), index, selection, begin, end)
        for batch in read(part, selection)
        for row in batch.to_pylist()
    ]
    assert sorted(row["packet"] for row in halves) == sorted(row["packet"] for row in expected)


@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_a_packed_capture_that_is_cut_or_damaged_is_read_up_to_there(tmp_path: Path, how: str) -> None:
    packets = [make.link(make.ip(make.udp(make.data_frame(os.urandom(900)))), make.ETHERNET) for _ in range(400)]
    packed = pack(make.pcap(packets), how)
    rows = rows_of_bytes(tmp_path, packed[: len(packed) // 2])
    assert kinds(rows)[0] == "TRUNCATED_FILE"
    assert how in rows[0]["text"]
    assert len(rows) > 50
    assert set(kinds(rows)[1:]) == {"DATA"}


def test_a_corrupt_record_in_a_packed_capture_is_skipped(tmp_path: Path) -> None:
    records = [make.pcap_record(PACKET, n) for n in range(40)]
    bad = b"\xff" * 16 + records[20][16:]
    data = make.pcap([]) + b"".join([*records[:20], bad, *records[21:]])
    assert kinds(rows_of_bytes(tmp_path, pack(data, "gzip"))) == ["CORRUPT_FILE"] + ["DATA"] * 39


def test_reading_continues_after_a_corrupt_pcap_record(tmp_path: Path) -> None:
    records = [make.pcap_record(PACKET, n) for n in range(40)]
    bad = b"\xff" * 16 + records[20][16:]
    rows = rows_of_bytes(tmp_path, make.pcap([]) + b"".join([*records[:20], bad, *records[21:]]))
    assert kinds(rows) == ["CORRUPT_FILE"] + ["DATA"] * 39
    assert rows[0]["packet"] == 20


def test_reading_continues_after_a_corrupt_pcapng_block(tmp_path: Path) -> None:
    blocks = [make.enhanced(PACKET, n) for n in range(40)]
    bad = blocks[20][:4] + b"\xff\xff\xff\x7f" + blocks[20][8:]
    rows = rows_of_bytes(tmp_path, SECTION + b"".join([*blocks[:20], bad, *blocks[21:]]))
    assert kinds(rows) == ["CORRUPT_FILE"] + ["DATA"] * 39


def test_a_corrupt_end_is_reported(tmp_path: Path) -> None:
    rows = rows_of_bytes(tmp_path, make.pcap([PACKET] * 3) + b"\xff" * 100)
    assert kinds(rows) == ["CORRUPT_FILE", "DATA", "DATA", "DATA"]


def test_a_short_capture_length_keeps_headers_and_says_what_is_missing(tmp_path: Path) -> None:
    datagram = make.data_frame(b"x" * 100) + make.data_frame(b"y" * 100, at=224)
    packet = make.link(make.ip(make.udp(datagram)), make.ETHERNET)
    rows = rows_of_bytes(tmp_path, make.pcap([packet], snaplen=96))
    assert kinds(rows) == ["DATA", "TRUNCATED_PACKET"]
    assert rows[0]["length"] == 100
    assert rows[0]["datagram_length"] == len(datagram)
    assert rows[0]["payload"] == b"x" * (96 - 14 - 20 - 8 - 32)


def test_a_packet_without_its_whole_headers_is_a_problem(tmp_path: Path) -> None:
    rows = rows_of_bytes(tmp_path, make.pcap([PACKET], snaplen=30))
    assert kinds(rows) == ["TRUNCATED_PACKET"]


def test_headers_that_contradict_one_another_are_a_problem(tmp_path: Path) -> None:
    bad = bytearray(PACKET)
    bad[14 + 20 + 4 : 14 + 20 + 6] = b"\xff\xff"  # UDP claims more bytes than the IP packet has
    assert kinds(rows_of_bytes(tmp_path, make.pcap([bytes(bad)]))) == ["MALFORMED_PACKET"]


BAD_FRAMES = [
    b"short",
    b"\x20\0\0\0\1\0\1\0" + bytes(24),  # version 1
    b"\x20\0\0\0\0\0\x0f\0" + bytes(24),  # an unknown type
    b"\xff\xff\xff\xff\0\0\1\0" + bytes(24),  # a negative length
    b"\x1c\0\0\0\0\0\2\0" + bytes(8),  # too short for a NAK
    b"\0\1\0\0\0\0\1\0" + bytes(24),  # longer than its datagram
]


@pytest.mark.parametrize("frame", BAD_FRAMES)
def test_non_frames_are_problems_only_on_named_ports(tmp_path: Path, frame: bytes) -> None:
    data = make.pcap([make.link(make.ip(make.udp(frame)), make.ETHERNET)])
    rows = rows_of_bytes(tmp_path, data, aeron_ports=(40123,))
    assert kinds(rows) == ["MALFORMED_FRAME"]
    assert rows[0]["text"]
    assert rows_of_bytes(tmp_path, data) == []
    assert rows_of_bytes(tmp_path, data, aeron_ports=(1,)) == []


def test_other_traffic_is_not_mistaken_for_aeron(tmp_path: Path) -> None:
    dns = bytes.fromhex("a1b20100000100000000000003777777076578616d706c6503636f6d0000010001")
    quic = bytes.fromhex("c300000001088394c8f03e5157080000449e") + b"\x5a" * 1182
    packets = [make.link(make.ip(make.udp(body)), make.ETHERNET) for body in (dns, quic, bytes(64), b"\x00" * 1024)]
    assert rows_of_bytes(tmp_path, make.pcap(packets)) == []


def test_batches_of_a_directory_without_spark(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(make.pcap([PACKET] * 2))
    (tmp_path / "b.pcap").write_bytes(make.pcap([PACKET])[:-1])
    found = [row for batch in read_frames(str(tmp_path), ["packet", "frame_type"]) for row in batch.to_pylist()]
    assert [(row["packet"], row["frame_type"]) for row in found] == [(1, "DATA"), (2, "DATA"), (0, "TRUNCATED_FILE")]
    assert next(read_frames(str(tmp_path / "a.pcap"))).num_columns == len(columns())
    with pytest.raises(ConfigurationError, match="no column 'depth'"):
        next(read_frames(str(tmp_path), ["depth"]))
    with pytest.raises(CaptureError, match="no capture"):
        next(read_frames(str(tmp_path / "none")))


def empty_blocks(count: int) -> bytes:
    """Return the shortest possible blocks, without packets."""
    return struct.pack("<III", 11, 12, 12) * count


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(empty_blocks(1), id="blocks to the end"),
        pytest.param(empty_blocks(63) + b"\xff" * 13, id="runs of blocks, too short to be believed"),
        pytest.param(empty_blocks(65) + b"\xff" * 13, id="runs of blocks, just long enough"),
        pytest.param(b"\xff" * 12, id="nothing"),
    ],
)
def test_searching_a_corrupt_capture_takes_linear_time(tmp_path: Path, run: bytes) -> None:
    path = tmp_path / "hostile.pcapng"
    path.write_bytes(SECTION + b"\xff" * 16 + run * ((2 << 20) // len(run)) + b"\0" * 12)
    begin = time.process_time()
    index = indexing.build(str(path))
    # This takes a tenth of a second; a search that started over for each block would take minutes.
    assert time.process_time() - begin < 20
    assert index.all_problems


@pytest.mark.parametrize("packed", [False, True])
def test_each_byte_of_a_capture_with_many_faults_is_read_about_once(
    tmp_path: Path, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = b"".join(make.enhanced(PACKET, n) for n in range(8)) + b"\xff" * 4
    data = SECTION + run * 2000
    path = tmp_path / "faults.pcapng"
    path.write_bytes(gzip.compress(data) if packed else data)
    count = 0

    class Counting(io.RawIOBase):
        def __init__(self, file: IO[bytes]) -> None:
            self._file = file

        def read(self, size: int = -1) -> bytes:
            nonlocal count
            piece = self._file.read(size)
            count += len(piece)
            return piece

        def seek(self, offset: int, whence: int = 0) -> int:
            assert not packed or offset >= self._file.tell() or offset == 0
            return self._file.seek(offset, whence)

        def close(self) -> None:
            self._file.close()
            super().close()

    def opened(name: str, how: str = "") -> Counting:
        return Counting(unpacking.open_capture(name, how))

    monkeypatch.setattr(indexing, "open_capture", opened)
    monkeypatch.setattr(indexing, "PRINT_BYTES", 0)
    index = indexing.build(str(path))
    assert index.packets == 16_000
    assert len(index.problems) == 1999
    assert count <= 2 * len(data)
