"""IP fragments are reassembled in any order, for both IP versions, UDP and TCP."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest
from tests.support import captures as make
from tests.support.captures import rows_of_bytes
from tests.support.packet_accounting import accounted

from mainstem.capture import index as indexing
from mainstem.capture.planning import FrameSelection, plan
from mainstem.capture.reading import read

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("packet", "frame_type", "length", "text")
ADDRESSES = [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")]


def cut(content: bytes, size: int, *, source: str, to: str, number: int, protocol: int = 17) -> list[bytes]:
    """Return the fragments of an IP packet; ``size`` is a multiple of 8."""
    return [
        make.link(
            make.ip(
                content[at : at + size],
                source=source,
                to=to,
                fragment=at,
                more=at + size < len(content),
                number=number,
                protocol=protocol,
            ),
            make.ETHERNET,
        )
        for at in range(0, len(content), size)
    ]


@pytest.mark.parametrize(("source", "to"), ADDRESSES)
@pytest.mark.parametrize("seed", range(5))
def test_fragments_in_any_order_with_repeats(tmp_path: Path, source: str, to: str, seed: int) -> None:
    rng = random.Random(seed)
    packets: list[bytes] = []
    for n in range(20):
        datagram = make.udp(make.data_frame(bytes([n]) * 3000, at=n * 3040 & ~31))
        packets += cut(datagram, rng.choice([8, 512, 1480]), source=source, to=to, number=n)
    packets += rng.sample(packets, 5)
    rng.shuffle(packets)
    rows = rows_of_bytes(tmp_path, make.pcap(packets))
    frames = [row for row in rows if row["protocol"] == "aeron"]
    assert sorted(row["payload"][0] for row in frames) == list(range(20))
    assert all(len(row["payload"]) == 3000 for row in frames)
    assert {(row["src"], row["src_port"], row["dst_port"]) for row in frames} == {(source, 40001, 40123)}


def test_a_missing_fragment_is_reported_without_inventing_data(tmp_path: Path) -> None:
    parts = cut(make.udp(make.data_frame(bytes(3000))), 1480, source="10.0.0.1", to="10.0.0.2", number=9)
    rows = rows_of_bytes(tmp_path, make.pcap([parts[0], parts[2]]))
    assert [row["frame_type"] for row in rows] == ["LOST_FRAGMENT"]
    assert "2 fragments" in rows[0]["text"]


def test_a_tcp_segment_in_fragments_takes_its_place_in_the_stream(tmp_path: Path) -> None:
    data = b"".join(bytes([0x20, n, 7]) + b"payload" for n in range(90))
    address = {"source": "10.0.0.1", "to": "10.0.0.2"}
    packets = [make.link(make.ip(make.tcp(sequence=0, to=9000, flags=make.TCP_SYN), protocol=6), make.ETHERNET)]
    for at in (0, 300, 600):
        packets += cut(make.tcp(data[at : at + 300], sequence=1 + at, to=9000), 160, number=at, protocol=6, **address)
    rows = rows_of_bytes(tmp_path, make.pcap(packets), bymux_ports=(9000,))
    assert [row["mux_stream_id"] for row in rows if row["protocol"] == "bymux"] == list(range(90))


def test_fragments_that_wait_are_limited(tmp_path: Path) -> None:
    datagram = make.udp(make.data_frame(bytes(100)))
    packets = [cut(datagram, 64, source="10.0.0.1", to="10.0.0.2", number=n)[0] for n in range(6000)]
    rows = rows_of_bytes(tmp_path, make.pcap(packets))
    assert [row["frame_type"] for row in rows] == ["LOST_FRAGMENT"] * 6000


def test_an_id_reused_after_a_loss_does_not_mix_packets(tmp_path: Path) -> None:
    first, second = (make.udp(make.data_frame(bytes([n]) * 3000, at=n * 3040 & ~31)) for n in (1, 2))
    ends = {"source": "10.0.0.1", "to": "10.0.0.2", "number": 7}
    packets = cut(first, 1480, **ends)[:2] + cut(second, 1480, **ends)
    rows = rows_of_bytes(tmp_path, make.pcap(packets))
    assert [row["frame_type"] for row in rows] == ["LOST_FRAGMENT", "DATA"]
    assert rows[1]["payload"] == bytes([2]) * 3000


TUNNELS = {
    "gre": (lambda p: struct.pack(">HH", 0, 0x0800) + p, 47),
    "erspan": (lambda p: struct.pack(">HHI", 0x1000, 0x88BE, 1) + bytes(8) + make.link(p, make.ETHERNET), 47),
    "ip in ip": (lambda p: p, 4),
    "vxlan": (lambda p: make.udp(struct.pack(">II", 0x08000000, 0) + make.link(p, make.ETHERNET), to=4789), 17),
}


@pytest.mark.parametrize(("source", "to"), ADDRESSES)
@pytest.mark.parametrize("tunnel", TUNNELS)
def test_a_tunnels_packet_that_was_cut_is_put_together(tmp_path: Path, tunnel: str, source: str, to: str) -> None:
    wrap, protocol = TUNNELS[tunnel]
    packets: list[bytes] = []
    for n in range(9):
        inner = make.ip(
            make.udp(make.data_frame(bytes([n]) * 1400, at=n * 1440)), source="192.168.7.1", to="192.168.7.2"
        )
        packets += cut(wrap(inner), 712, source=source, to=to, number=n, protocol=protocol)
    random.Random(tunnel).shuffle(packets)
    rows = rows_of_bytes(tmp_path, make.pcap(packets), count_skipped=True)
    frames = [row for row in rows if row["protocol"] == "aeron"]
    assert sorted(row["payload"][0] for row in frames) == list(range(9))
    assert {(row["src"], row["dst"], row["frame_type"]) for row in frames} == {("192.168.7.1", "192.168.7.2", "DATA")}
    assert accounted(rows) == len(packets)


@pytest.mark.parametrize("tunnel", TUNNELS)
def test_tcp_in_a_tunnels_packet_that_was_cut_is_counted_in_any_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tunnel: str
) -> None:
    wrap, protocol = TUNNELS[tunnel]
    packets = [make.link(make.ip(make.tcp(flags=make.TCP_SYN, source=n), protocol=6), make.ETHERNET) for n in range(9)]
    for n in range(20):
        inner = make.ip(
            make.tcp(bytes(300), sequence=n * 300, source=n), source="192.168.7.1", to="192.168.7.2", protocol=6
        )
        packets += cut(wrap(inner), 128, source="10.0.0.1", to="10.0.0.2", number=n, protocol=protocol)
    path = tmp_path / "tunnel.pcap"
    path.write_bytes(make.pcap(packets))
    monkeypatch.setattr(indexing, "CHUNK_BYTES", 1000)
    index = indexing.build(str(path))
    for ports in ((9000,), ()):
        selection = FrameSelection(names=NAMES, bymux_ports=ports, count_skipped=True)
        for size in (1, 1 << 20):
            parts = plan(str(path), index, selection, part_bytes=size)
            rows = [row for part in parts for batch in read(part, selection) for row in batch.to_pylist()]
            assert accounted(rows) == len(packets)
            assert sum(row["frame_type"] == "OPEN" for row in rows) == (9 if ports else 0)
            assert (
                sum(row["length"] for row in rows if row["text"] == "IP fragments that completed no packet")
                == len(packets) - 9
            )
