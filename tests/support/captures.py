"""Handmade captures: packets of every link type, in files of every format."""

from __future__ import annotations

import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from mainstem.aeron.protocol.frames import Data, Nak
from mainstem.capture.index import build
from mainstem.capture.planning import FrameSelection
from mainstem.capture.reading import frames
from mainstem.capture.schema import columns

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ETHERNET, RAW, NULL, LOOP, COOKED, COOKED_2 = 1, 101, 0, 108, 113, 276
TCP_FIN, TCP_SYN, TCP_RST, TCP_ACK = 1, 2, 4, 16
START_NS = 1_700_000_000_123_456_789
NAMES = tuple(column.name for column in columns(payload=True))


def data_frame(payload: bytes = b"tide", *, session: int = 7, stream: int = 1001, term: int = 3, at: int = 64) -> bytes:
    """Return a DATA frame, padded to its alignment."""
    header = {"session_id": session, "stream_id": stream, "term_id": term, "term_offset": at}
    return Data(**header, reserved_value=42, payload=payload).encode()


def nak_frame(*, session: int = 7, stream: int = 1001, term: int = 3, at: int = 64, length: int = 96) -> bytes:
    return Nak(session_id=session, stream_id=stream, term_id=term, term_offset=at, length=length).encode()


def udp(payload: bytes, *, source: int = 40001, to: int = 40123) -> bytes:
    return struct.pack(">HHHH", source, to, 8 + len(payload), 0) + payload


def tcp(
    payload: bytes = b"", *, source: int = 50000, to: int = 9000, sequence: int = 0, flags: int = TCP_ACK, ack: int = 0
) -> bytes:
    head = struct.pack(">HHIIBBHHH", source, to, sequence & 0xFFFFFFFF, ack & 0xFFFFFFFF, 0x50, flags, 65535, 0, 0)
    return head + payload


def ip(
    content: bytes,
    *,
    source: str = "10.0.0.1",
    to: str = "10.0.0.2",
    protocol: int = 17,
    fragment: int = 0,
    more: bool = False,
    number: int = 1,
) -> bytes:
    """Return an IP packet of the same version as its addresses; ``fragment`` is the offset in bytes."""
    a, b = ip_address(source), ip_address(to)
    if a.version == 4:
        part = fragment // 8 | (0x2000 if more else 0)
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(content), number, part, 64, protocol, 0)
        return head + a.packed + b.packed + content
    if fragment or more:
        content = struct.pack(">BBHI", protocol, 0, fragment | int(more), number) + content
        protocol = 44
    return struct.pack(">IHBB", 6 << 28, len(content), protocol, 64) + a.packed + b.packed + content


def link(packet: bytes, kind: int, *, tags: tuple[int, ...] = ()) -> bytes:
    """Return the packet with a link header in front; ``tags`` are the ethertypes of VLAN tags, outermost first."""
    ethertype = 0x0800 if packet[0] >> 4 == 4 else 0x86DD
    codes = [*tags, ethertype]
    rest = b"".join(struct.pack(">HH", 5, code) for code in codes[1:])
    if kind == ETHERNET:
        return bytes(12) + struct.pack(">H", codes[0]) + rest + packet
    if kind == COOKED:
        return bytes(14) + struct.pack(">H", codes[0]) + rest + packet
    if kind == COOKED_2:
        return struct.pack(">H", codes[0]) + bytes(18) + rest + packet
    if kind == NULL:
        return struct.pack("<I", 2 if ethertype == 0x0800 else 30) + packet
    if kind == LOOP:
        return struct.pack(">I", 2 if ethertype == 0x0800 else 24) + packet
    return packet


def pcap(
    packets: Iterable[bytes],
    *,
    kind: int = ETHERNET,
    order: str = "<",
    nanoseconds: bool = False,
    snaplen: int = 262144,
) -> bytes:
    """Return a pcap file with one packet per millisecond; packets longer than ``snaplen`` are truncated."""
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    head = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, kind)
    records = (
        pcap_record(packet, n, order=order, nanoseconds=nanoseconds, snaplen=snaplen)
        for n, packet in enumerate(packets)
    )
    return head + b"".join(records)


def pcap_record(packet: bytes, n: int, *, order: str = "<", nanoseconds: bool = False, snaplen: int = 262144) -> bytes:
    time_ns = START_NS + n * 1_000_000
    part = time_ns % 1_000_000_000 // (1 if nanoseconds else 1000)
    kept = packet[:snaplen]
    return struct.pack(order + "IIII", time_ns // 1_000_000_000, part, len(kept), len(packet)) + kept


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", 12 + len(body))
    return struct.pack(order + "I", kind) + length + body + length


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(kind: int, *, order: str = "<", resolution: int | None = None, offset_s: int | None = None) -> bytes:
    options = b""
    if resolution is not None:
        options += struct.pack(order + "HHB3x", 9, 1, resolution)
    if offset_s is not None:
        options += struct.pack(order + "HHq", 14, 8, offset_s)
    return block(1, struct.pack(order + "HHI", kind, 0, 0) + options + (bytes(4) if options else b""), order)


def enhanced(packet: bytes, ticks: int, *, number: int = 0, order: str = "<") -> bytes:
    head = struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(packet), len(packet))
    return block(6, head + packet, order)


def old_packet(packet: bytes, ticks: int, *, number: int = 0, order: str = "<") -> bytes:
    head = struct.pack(order + "HHIIII", number, 0, ticks >> 32, ticks & 0xFFFFFFFF, len(packet), len(packet))
    return block(2, head + packet, order)


def simple(packet: bytes, *, order: str = "<") -> bytes:
    return block(3, struct.pack(order + "I", len(packet)) + packet, order)


def rows_of(path: Path, **wanted: Any) -> list[dict[str, Any]]:
    """Return every row of a capture, without its null values."""
    names = wanted.pop("names", NAMES)
    index = build(str(path))
    found = [
        row for batch in frames(str(path), FrameSelection(names=names, **wanted), index) for row in batch.to_pylist()
    ]
    return [{key: value for key, value in row.items() if value is not None} for row in found]


def rows_of_bytes(tmp_path: Path, data: bytes, **wanted: Any) -> list[dict[str, Any]]:
    """Return the rows of a capture file that has these bytes."""
    path = tmp_path / "capture.pcap"
    path.write_bytes(data)
    return rows_of(path, **wanted)


def loss() -> bytes:
    """Return three frames of a stream: the second was lost, requested with a NAK and retransmitted."""
    sent = [data_frame(at=at, payload=bytes(64)) for at in (0, 96, 192)]
    here, there = {"source": 40001, "to": 20361}, {"source": 20361, "to": 40001}
    request = ip(udp(nak_frame(at=96, length=96), **there), source="10.0.0.2", to="10.0.0.1")
    data = [ip(udp(frame, **here)) for frame in sent]
    return pcap([link(packet, ETHERNET) for packet in (data[0], data[2], request, data[1])])
