"""Captures: whatever a file contains, the reader reads it to its end and creates no row from bytes outside a packet."""

from __future__ import annotations

import gzip
import struct

from scratch import folder

from mainstem.capture.index import build
from mainstem.capture.planning import FrameSelection
from mainstem.capture.reading import frames
from mainstem.capture.schema import columns

WANTED = [
    FrameSelection(
        names=tuple(column.name for column in columns(payload=True)), bymux_ports=(9000,), jmux_ports=(9001,)
    ),
    FrameSelection(
        names=("packet", "frame_type", "text"), aeron_ports=(1, 40123), jmux_ports=(9000,), count_skipped=True
    ),
]


def _ip(content: bytes, protocol: int, part: int = 0) -> bytes:
    return struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(content), 1, part, 64, protocol, 0, 1, 2) + content


def _ip6(content: bytes, protocol: int) -> bytes:
    return struct.pack(">IHBB", 6 << 28, len(content), protocol, 64) + bytes(15) + b"\1" + bytes(15) + b"\2" + content


def _pcap(*packets: bytes, link: int = 101) -> bytes:
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    return head + b"".join(struct.pack("<IIII", 1, 2, len(p), len(p)) + p for p in packets)


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", 12 + len(body))
    return struct.pack("<I", kind) + length + body + length


_UDP = struct.pack(">HHHH", 1, 40123, 40, 0) + struct.pack("<iBBHiiiiq", 32, 0, 0xC0, 1, 0, 1, 2, 3, 4)
_TCP = struct.pack(">HHIIBBHHH", 5, 9000, 1, 0, 0x50, 2, 0, 0, 0) + b"\x30\x00\x20\x00\x02hi"
SEEDS = [
    _pcap(_ip(_UDP, 17), _ip(_TCP, 6), _ip(_UDP, 17)),
    _pcap(_ip(_UDP[:16], 17, 0x2000), _ip(_UDP[16:], 17, 2), _ip(_TCP[:24], 6, 0x2000), _ip(_TCP[24:], 6, 3)),
    _block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    + _block(1, struct.pack("<HHI", 101, 0, 0))
    + _block(6, struct.pack("<IIIII", 0, 0, 9, 60, 60) + _ip(_UDP, 17))
    + _block(3, struct.pack("<I", 60) + _ip(_UDP, 17)),
]
_INNER = bytes(12) + b"\x08\0" + _ip(_UDP, 17)
_VXLAN = struct.pack(">HHHH", 1, 4789, 16 + len(_INNER), 0) + struct.pack(">II", 0x08000000, 0) + _INNER
SEEDS += [
    _pcap(
        _ip(_VXLAN, 17),
        _ip(b"\x10\0\x88\xbe" + bytes(12) + _INNER, 47),
        _ip(struct.pack(">HH", 0, 0x6558) + _INNER, 47),
    ),
    _pcap(_ip(struct.pack(">HHI", 0, 0x8847, 0x100) + _ip(_TCP, 6), 47), _ip(_ip(_UDP, 17), 4)),
    gzip.compress(_pcap(_ip(_UDP, 17), _ip(_TCP, 6))),
]
_ETHERNET = bytes(12)
_PPP = b"\x11\0\0\1" + struct.pack(">H", 2 + len(_ip(_UDP, 17))) + b"\0\x21" + _ip(_UDP, 17)
_GENEVE = struct.pack(">HHHH", 1, 6081, 20 + len(_INNER), 0) + struct.pack(">BBHII", 1, 0, 0x6558, 0x500, 7) + _INNER
_GPE = struct.pack(">HHHH", 1, 4790, 16 + len(_ip(_UDP, 17)), 0) + struct.pack(">II", 0x0C000001, 0) + _ip(_UDP, 17)
# Every link type, and everything that can precede an IP packet.
SEEDS += [
    _pcap(
        _ETHERNET + b"\x08\0" + _ip(_UDP, 17),
        _ETHERNET + b"\x81\0\0\5\x88\xa8\0\6\x86\xdd" + _ip6(_UDP, 17),
        _ETHERNET + b"\x88\x47\0\0\x10\x40\0\0\x21\x40" + _ip(_UDP, 17),
        _ETHERNET + b"\x88\x64" + _PPP,
        _ETHERNET + struct.pack(">H", 60) + b"\xaa\xaa\3\0\0\0\x08\0" + _ip(_UDP, 17),
        link=1,
    ),
    _pcap(_ip(_GENEVE, 17), _ip(_GPE, 17), _ip6(_ip6(_UDP, 17), 41), _ip6(b"\x11\0\0\0\0\0\0\0" + _UDP, 60), link=101),
    _pcap(bytes(14) + b"\x08\0" + _ip(_UDP, 17), bytes(14) + b"\x86\xdd" + _ip6(_TCP, 6), link=113),
    _pcap(b"\x08\0" + bytes(18) + _ip(_UDP, 17), link=276),
    _pcap(b"\2\0\0\0" + _ip(_UDP, 17), b"\x1e\0\0\0" + _ip6(_UDP, 17), link=0),
    _pcap(b"\0\0\0\2" + _ip(_TCP, 6), link=108),
    _pcap(_ip(_UDP, 17), link=228),
    _pcap(_ip6(b"\x11\0\0\1\0\0\0\5" + _UDP[:16], 44), _ip6(b"\x11\0\0\x10\0\0\0\5" + _UDP[16:], 44), link=229),
    _block(0x0A0D0D0A, struct.pack(">IHHq", 0x1A2B3C4D, 1, 0, -1)).replace(b"\x1c\0\0\0", b"\0\0\0\x1c"),
]
_PATH = str(folder() / "capture.pcap")


def target(data: bytes) -> None:
    """Process one input."""
    with open(_PATH, "wb") as file:
        file.write(data)
    index = build(_PATH)
    assert index.end >= 0
    assert index.end <= len(data) or (index.format is not None and index.format.packed)
    for wanted in WANTED:
        for batch in frames(_PATH, wanted, index):
            batch.validate(full=True)
