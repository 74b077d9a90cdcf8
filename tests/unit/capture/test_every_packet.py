"""Each packet of a capture is in a row or counted, whatever its content, its encapsulation and the chunk boundaries."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import captures as make
from tests.support.case_selection import long_after
from tests.support.packet_accounting import accounted
from tests.support.tunnels import WRAPPED, ethernet, framed

from mainstem.capture import index as indexing
from mainstem.capture import read_frames
from mainstem.capture.planning import FrameSelection, plan, plan_new
from mainstem.capture.reading import read

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("packet", "frame_type", "length", "text")
INNER = {"source": "192.168.7.1", "to": "192.168.7.2"}


@pytest.mark.parametrize("addresses", [INNER, {"source": "fe80::7:1", "to": "fe80::7:2"}], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("wrapping", WRAPPED)
def test_frames_in_tunnels_are_rows_with_the_addresses_inside(
    tmp_path: Path, wrapping: str, addresses: dict[str, str]
) -> None:
    wrap = WRAPPED[wrapping]
    packets = [
        wrap(make.ip(make.udp(make.data_frame(b"tide" * 10)), **addresses)),
        wrap(make.ip(make.tcp(flags=make.TCP_SYN), **addresses, protocol=6)),
    ]
    rows = make.rows_of_bytes(tmp_path, make.pcap(packets), bymux_ports=(9000,))
    assert [(row["frame_type"], row["src"], row["dst"]) for row in rows] == [
        ("DATA", addresses["source"], addresses["to"]),
        ("OPEN", addresses["source"], addresses["to"]),
    ]
    assert rows[0]["payload"] == b"tide" * 10


@pytest.mark.parametrize("port", [4789, 4790, 8472, 6081])
def test_a_stream_on_the_port_of_a_tunnel_is_a_stream(tmp_path: Path, port: int) -> None:
    sizes = [0, 90, 104, 1376, 8000, 0x8856]
    packets = [ethernet(make.ip(make.udp(make.data_frame(bytes(size), term=0x0008_0045), to=port))) for size in sizes]
    packets += [ethernet(make.ip(make.udp(make.nak_frame(), to=port)))]
    rows = make.rows_of_bytes(tmp_path, make.pcap(packets))
    assert [row["frame_type"] for row in rows] == ["DATA"] * len(sizes) + ["NAK"]


def test_a_tunnel_in_a_tunnel_without_end_is_malformed(tmp_path: Path) -> None:
    packet = make.ip(make.udp(make.data_frame()))
    for _ in range(60):
        packet = make.ip(packet, protocol=4)
    (row,) = make.rows_of_bytes(tmp_path, make.pcap([ethernet(packet)]))
    assert row["frame_type"] == "MALFORMED_PACKET"


def test_frames_captured_only_in_part_are_recognized_on_any_port(tmp_path: Path) -> None:
    datagrams = [make.data_frame(bytes(size)) for size in (0, 1, 90, 1300)] + [make.data_frame(bytes(100)) * 3]
    datagrams += [make.nak_frame(), b"something else" * 20]
    packets = [ethernet(make.ip(make.udp(datagram))) for datagram in datagrams]
    path = tmp_path / "cut.pcap"
    path.write_bytes(make.pcap(packets, snaplen=80))
    rows = [row for batch in read_frames(str(path), NAMES) for row in batch.to_pylist()]
    assert [row["packet"] for row in rows if row["frame_type"] == "DATA"] == [1, 2, 3, 4, 5]
    assert [row["length"] for row in rows if row["frame_type"] == "DATA"] == [0, 1, 90, 1300, 100]
    assert [row["packet"] for row in rows if row["frame_type"] == "TRUNCATED_PACKET"] == [5]
    assert [row["packet"] for row in rows if row["frame_type"] == "NAK"] == [6]
    assert rows[-1] == {"packet": 7, "frame_type": "PASSED_OVER", "length": 1, "text": "UDP without Aeron's frames"}


@pytest.mark.parametrize("nanoseconds", [False, True])
@pytest.mark.parametrize("part", [1_000_000, 999_999_999, 1_000_000_000, (1 << 32) - 1])
def test_an_invalid_time_is_null_and_reading_continues(tmp_path: Path, part: int, nanoseconds: bool) -> None:
    packet = ethernet(make.ip(make.udp(make.data_frame())))
    whole = make.pcap([packet] * 3, nanoseconds=nanoseconds)
    at = 24 + 16 + len(packet) + 4
    rows = make.rows_of_bytes(tmp_path, whole[:at] + struct.pack("<I", part) + whole[at + 4 :])
    assert [row["frame_type"] for row in rows] == ["DATA"] * 3
    known = part < (1_000_000_000 if nanoseconds else 1_000_000)
    assert ["time_ns" in row for row in rows] == [True, known, True]
    assert ["time" in row for row in rows] == [True, known, True]


def test_a_heartbeat_is_described_as_a_heartbeat(tmp_path: Path) -> None:
    heartbeat = bytes(4) + make.data_frame(b"")[4:]
    rows = make.rows_of_bytes(
        tmp_path, make.pcap([ethernet(make.ip(make.udp(data))) for data in (heartbeat, make.data_frame(b""))])
    )
    assert [(row["frame_type"], row["frame_length"], row["length"], row.get("text")) for row in rows] == [
        ("DATA", 0, 0, "heartbeat"),
        ("DATA", 32, 0, None),
    ]


def any_packets(rng: random.Random) -> list[bytes]:
    """Return packets of every kind, some encapsulated, in any order that a network can produce."""
    packets: list[bytes] = []
    sequence = 0
    for number in range(rng.randrange(1, 60)):
        kind = rng.randrange(14)
        if kind < 3:
            inner = make.ip(make.udp(make.data_frame(bytes(rng.randrange(200))) * rng.randrange(1, 4)))
        elif kind == 3:
            inner = make.ip(make.udp(rng.randbytes(rng.randrange(100))))
        elif kind == 4:
            inner = make.ip(rng.randbytes(20), protocol=1)
        elif kind == 5:
            packets.append(framed(0x0806, bytes(28)))
            continue
        elif kind == 6:
            inner = make.ip(make.tcp(b"other", to=81), protocol=6)
        elif kind < 10:
            data = rng.randbytes(rng.randrange(3))
            flags = make.TCP_SYN if rng.random() < 0.1 else make.TCP_ACK
            inner = make.ip(make.tcp(data, sequence=sequence, flags=flags), protocol=6)
            sequence += len(data) + rng.choice([0, 0, 0, 5, -1])
        elif kind == 10:
            inner = rng.randbytes(rng.randrange(60))
        else:
            protocol, content = 17, make.udp(make.data_frame(bytes(150)))
            if rng.random() < 0.4:
                protocol, content = 6, make.tcp(bytes(150), to=rng.choice([81, 9000]))
            pieces = [(at, content[at : at + 64]) for at in range(0, len(content), 64)]
            parts = [
                make.ip(data, fragment=at, more=at + 64 < len(content), number=number, protocol=protocol)
                for at, data in pieces
            ]
            rng.shuffle(parts)
            packets += [ethernet(part) for part in parts if rng.random() < 0.9]
            continue
        wrap = rng.choice(list(WRAPPED.values())) if inner and rng.random() < 0.3 else ethernet
        packets.append(wrap(inner) if inner else b"")
    return packets


@pytest.mark.parametrize("seed", long_after(10, range(60)))
def test_every_packet_is_in_a_row_or_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    packets = any_packets(rng)
    path = tmp_path / "any.pcap"
    path.write_bytes(make.pcap(packets, snaplen=rng.choice([20, 50, 68, 80, 96, 262144, 262144, 262144])))
    chunk, size = rng.choice([100, 600, 1 << 20]), rng.choice([1, 500, 1 << 20])
    monkeypatch.setattr(indexing, "CHUNK_BYTES", chunk)
    found = indexing.build(str(path))
    for aeron, tcp in ((None, (9000,)), (None, ()), ((40123,), (9000,)), ((), (9000,))):
        selection = FrameSelection(names=NAMES, aeron_ports=aeron, bymux_ports=tcp, count_skipped=True)
        parts = plan(str(path), found, selection, part_bytes=size)
        rows = [row for part in parts for row in rows_of(part, selection)]
        assert accounted(rows) == len(packets)
        middle = rng.choice([0, *(each.end for each in found.chunks)])
        streamed = [
            row
            for begin, end in ((0, middle), (middle, found.end))
            for part in plan_new(str(path), found, selection, begin, end, part_bytes=size)
            for row in rows_of(part, selection)
        ]
        assert accounted(streamed) == len(packets)
        for whole in (rows, streamed):
            passed = [row["packet"] for row in whole if row["frame_type"] == "PASSED_OVER"]
            assert len(passed) == len(set(passed)), "a row of PASSED_OVER is not named by its packet"


def rows_of(part: Any, selection: FrameSelection) -> list[dict[str, Any]]:
    return [row for batch in read(part, selection) for row in batch.to_pylist()]


def test_a_counted_fragment_is_subtracted_if_its_packet_is_lost_later(
    tmp_path: Path,
) -> None:
    half = make.ip(make.udp(make.data_frame(bytes(150)))[:64], more=True, number=9)
    late = make.ip(make.udp(make.data_frame(bytes(150)))[:64], more=True, number=10)
    path = tmp_path / "late.pcap"
    path.write_bytes(make.pcap([ethernet(half)]) + make.pcap_record(ethernet(late), 40_000))
    found = indexing.build(str(path))
    selection = FrameSelection(names=NAMES, count_skipped=True)
    middle = 24 + 16 + len(ethernet(half))
    first, second = (
        [row for part in plan_new(str(path), found, selection, begin, end) for row in rows_of(part, selection)]
        for begin, end in ((0, middle), (middle, found.end))
    )
    passed = {"frame_type": "PASSED_OVER", "text": "IP fragments that completed no packet"}
    assert first == [passed | {"packet": 1, "length": 1}]
    # The second fragment is counted, and the first is no longer counted.
    assert [(row["packet"], row["frame_type"]) for row in second] == [(1, "LOST_FRAGMENT")]
    assert accounted(first + second) == 2
    # A packet that is completed late has its own row; the fragment that remains is the one to remove.
    datagram = make.udp(make.data_frame(bytes(150)))
    begun, ended = (
        make.link(make.ip(data, fragment=at, more=more, number=11), make.ETHERNET)
        for data, at, more in ((datagram[:64], 0, True), (datagram[64:], 64, False))
    )
    records = [make.pcap_record(packet, n) for packet, n in ((ethernet(half), 0), (begun, 20_000), (ended, 40_000))]
    path.write_bytes(make.pcap([]) + b"".join(records))
    found, middle = indexing.build(str(path)), 24 + len(records[0] + records[1])
    first, second = (
        [row for part in plan_new(str(path), found, selection, begin, end) for row in rows_of(part, selection)]
        for begin, end in ((0, middle), (middle, found.end))
    )
    assert first == [passed | {"packet": 2, "length": 2}]
    assert [(row["packet"], row["frame_type"]) for row in second[:2]] == [(1, "LOST_FRAGMENT"), (3, "DATA")]
    assert second[2:] == [passed | {"packet": 3, "length": -1}]
    assert accounted(first + second) == 3


@pytest.mark.parametrize(
    ("packets", "text", "length", "last"),
    [
        ([framed(0x0806, bytes(28))] * 3, "not IP", 3, 3),
        ([ethernet(make.ip(bytes(20), protocol=1))] * 2, "of another IP protocol than UDP or TCP", 2, 2),
        ([ethernet(make.ip(make.tcp(b"x", to=81), protocol=6))], "TCP of other ports", 1, 1),
        ([ethernet(make.ip(make.udp(b"x" * 40)))] * 2 + [b""], "UDP without Aeron's frames", 2, 2),
    ],
)
def test_a_reason_has_its_number_of_packets_and_the_last_of_them(
    tmp_path: Path, packets: list[bytes], text: str, length: int, last: int
) -> None:
    path = tmp_path / "some.pcap"
    path.write_bytes(make.pcap(packets))
    rows = [row for batch in read_frames(str(path), NAMES) for row in batch.to_pylist()]
    passed = [row for row in rows if row["frame_type"] == "PASSED_OVER"]
    assert passed == [{"packet": last, "frame_type": "PASSED_OVER", "length": length, "text": text}]
