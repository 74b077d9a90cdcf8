"""Every file format, link type and address format: the same frame is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support import captures as make
from tests.support.captures import rows_of_bytes

if TYPE_CHECKING:
    from pathlib import Path

PACKET = make.ip(make.udp(make.data_frame(b"high tide")))
PACKET_6 = make.ip(make.udp(make.data_frame(b"high tide")), source="2001:db8::1", to="2001:db8::2")


def check(row: dict[str, object]) -> None:
    assert row["protocol"] == "aeron"
    assert row["frame_type"] == "DATA"
    assert (row["session_id"], row["stream_id"], row["term_id"], row["term_offset"]) == (7, 1001, 3, 64)
    assert row["payload"] == b"high tide"
    assert row["length"] == 9
    assert row["frame_length"] == 41
    assert row["reserved_value"] == 42
    assert (row["src_port"], row["dst_port"]) == (40001, 40123)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nanoseconds", [False, True])
def test_pcap_of_both_byte_orders_and_resolutions(tmp_path: Path, order: str, nanoseconds: bool) -> None:
    packets = [make.link(PACKET, make.ETHERNET)] * 3
    rows = rows_of_bytes(tmp_path, make.pcap(packets, order=order, nanoseconds=nanoseconds))
    assert [row["packet"] for row in rows] == [1, 2, 3]
    for n, row in enumerate(rows):
        check(row)
        exact = make.START_NS + n * 1_000_000
        assert row["time_ns"] == (exact if nanoseconds else exact // 1000 * 1000)
        assert row["time"].timestamp() == pytest.approx(exact / 1e9, abs=1e-5)


@pytest.mark.parametrize("kind", [make.ETHERNET, make.RAW, make.NULL, make.LOOP, make.COOKED, make.COOKED_2])
@pytest.mark.parametrize("packet", [PACKET, PACKET_6])
def test_every_link_type(tmp_path: Path, kind: int, packet: bytes) -> None:
    rows = rows_of_bytes(tmp_path, make.pcap([make.link(packet, kind)], kind=kind))
    check(rows[0])
    expected = ("10.0.0.1", "10.0.0.2") if packet is PACKET else ("2001:db8::1", "2001:db8::2")
    assert (rows[0]["src"], rows[0]["dst"]) == expected
    assert len(rows) == 1


@pytest.mark.parametrize("tags", [(0x8100,), (0x88A8, 0x8100), (0x9100, 0x8100, 0x8100)])
@pytest.mark.parametrize("kind", [make.ETHERNET, make.COOKED, make.COOKED_2])
def test_vlan_tags_one_and_several(tmp_path: Path, kind: int, tags: tuple[int, ...]) -> None:
    rows = rows_of_bytes(tmp_path, make.pcap([make.link(PACKET, kind, tags=tags)], kind=kind))
    check(rows[0])


def test_ipv6_extension_headers_are_stepped_over(tmp_path: Path) -> None:
    datagram = make.udp(make.data_frame(b"high tide"))
    options = bytes([60, 0]) + bytes(6) + bytes([43, 1]) + bytes(14) + bytes([17, 0]) + bytes(6)
    packet = bytearray(make.ip(options + datagram, source="::1", to="::2"))
    packet[6] = 0  # hop-by-hop, then destination options, then routing
    check(rows_of_bytes(tmp_path, make.pcap([make.link(bytes(packet), make.ETHERNET)]))[0])


def test_the_padding_of_a_short_ethernet_frame_is_not_payload(tmp_path: Path) -> None:
    short = make.link(make.ip(make.udp(make.nak_frame())), make.ETHERNET) + bytes(20)
    rows = rows_of_bytes(tmp_path, make.pcap([short]))
    assert [(row["frame_type"], row["datagram_length"], row["nak_length"]) for row in rows] == [("NAK", 28, 96)]


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_blocks_sections_interfaces_and_resolutions(tmp_path: Path, order: str) -> None:
    ethernet = make.link(PACKET, make.ETHERNET)
    us = make.START_NS // 1000
    data = (
        make.section(order)
        + make.interface(make.ETHERNET, order=order)
        + make.interface(make.RAW, order=order, resolution=9)
        + make.enhanced(ethernet, us, order=order)
        + make.enhanced(PACKET, make.START_NS, number=1, order=order)
        + make.block(0x0BAD, b"a block of an unknown type", order)
        + make.old_packet(ethernet, us, order=order)
        + make.simple(ethernet, order=order)
        # A second section with the opposite byte order, whose first interface has another link type and a 2**-20 s resolution.
        + make.section("<" if order == ">" else ">")
        + make.interface(make.COOKED, order="<" if order == ">" else ">", resolution=0x80 | 20, offset_s=1_000_000_000)
        + make.enhanced(
            make.link(PACKET_6, make.COOKED), (700_000_000 << 20) + (1 << 19), order="<" if order == ">" else ">"
        )
    )
    rows = rows_of_bytes(tmp_path, data)
    for row in rows:
        check(row)
    times = [row.get("time_ns") for row in rows]
    assert times == [us * 1000, make.START_NS, us * 1000, None, 1_700_000_000_500_000_000]
    assert [row["packet"] for row in rows] == [1, 2, 3, 4, 5]


def test_an_unknown_link_type_is_reported_once(tmp_path: Path) -> None:
    rows = rows_of_bytes(tmp_path, make.pcap([b"radio waves"] * 5, kind=105))
    assert [(row["protocol"], row["frame_type"]) for row in rows] == [("problem", "UNSUPPORTED_LINK")]
    assert "105" in rows[0]["text"]


def test_several_frames_of_a_datagram_are_numbered(tmp_path: Path) -> None:
    datagram = b"".join(make.data_frame(b"x" * n, at=n * 64) for n in range(4))
    rows = rows_of_bytes(tmp_path, make.pcap([make.link(make.ip(make.udp(datagram)), make.ETHERNET)]))
    assert [(row["frame_index"], row["length"], row["term_offset"]) for row in rows] == [
        (0, 0, 0),
        (1, 1, 64),
        (2, 2, 128),
        (3, 3, 192),
    ]
