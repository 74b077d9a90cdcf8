"""Packets in tunnels: every supported encapsulation, each as a function from an IP packet to a link-layer frame."""

from __future__ import annotations

import struct

from tests.support import captures as make


def ethernet(packet: bytes) -> bytes:
    return make.link(packet, make.ETHERNET)


def framed(ethertype: int, content: bytes) -> bytes:
    return bytes(12) + struct.pack(">H", ethertype) + content


def gre(content: bytes, ethertype: int, *, flags: int = 0, optional: bytes = b"") -> bytes:
    return ethernet(make.ip(struct.pack(">HH", flags, ethertype) + optional + content, protocol=47))


def labels(*, count: int = 3) -> bytes:
    return b"".join(struct.pack(">I", 99 << 12 | int(i == count - 1) << 8 | 64) for i in range(count))


def vxlan(content: bytes, port: int = 4789, flags: int = 0x08000000) -> bytes:
    return make.ip(make.udp(struct.pack(">II", flags, 77 << 8) + content, to=port))


def geneve(content: bytes, ethertype: int, *, options: bytes = b"") -> bytes:
    return ethernet(
        make.ip(make.udp(struct.pack(">BBHI", len(options) // 4, 0, ethertype, 77 << 8) + options + content, to=6081))
    )


def authenticated(packet: bytes) -> bytes:
    """Return an IPv4 or IPv6 packet with an authentication header before its content."""
    at, kind = (20, 9) if packet[0] >> 4 == 4 else (40, 6)
    head = bytearray(packet[:at].ljust(at, b"\0"))
    following, head[kind] = head[kind], 51
    added = struct.pack(">BBHII", following, 4, 0, 9, 1) + bytes(12)
    size = struct.unpack_from(">H", head, 2 if at == 20 else 4)[0] + len(added)
    struct.pack_into(">H", head, 2 if at == 20 else 4, size)
    return bytes(head) + added + packet[at:]


WRAPPED = {
    "vxlan": lambda p: ethernet(vxlan(ethernet(p))),
    "vxlan on the port that Linux had": lambda p: ethernet(vxlan(make.link(p, make.ETHERNET, tags=(0x8100,)), 8472)),
    "vxlan with a group policy": lambda p: ethernet(vxlan(ethernet(p), flags=0x8848012C)),
    "vxlan's generic form": lambda p: ethernet(vxlan(ethernet(p), 4790, flags=0x0C000003)),
    "ip in vxlan's generic form": lambda p: ethernet(
        vxlan(p, 4790, flags=0x0C000001 if p[0] >> 4 == 4 else 0x0C000002)
    ),
    "geneve": lambda p: geneve(ethernet(p), 0x6558),
    "geneve with options": lambda p: geneve(ethernet(p), 0x6558, options=bytes(24)),
    "ip in geneve": lambda p: geneve(p, 0x0800 if p[0] >> 4 == 4 else 0x86DD),
    "authentication header": lambda p: ethernet(authenticated(p)),
    "gre": lambda p: gre(p, 0x0800 if p[0] >> 4 == 4 else 0x86DD),
    "gre with checksum, key and sequence": lambda p: gre(
        p, 0x0800 if p[0] >> 4 == 4 else 0x86DD, flags=0xB000, optional=bytes(12)
    ),
    "gre over IPv6": lambda p: ethernet(
        make.ip(struct.pack(">HH", 0, 0x6558) + ethernet(p), source="fe80::1", to="fe80::2", protocol=47)
    ),
    "pptp": lambda p: gre((b"\x21" if p[0] >> 4 == 4 else b"\x00\x57") + p, 0x880B, flags=0x3081, optional=bytes(12)),
    "erspan I": lambda p: gre(ethernet(p), 0x88BE),
    "erspan II": lambda p: gre(ethernet(p), 0x88BE, flags=0x1000, optional=bytes(4) + bytes(8)),
    "erspan III": lambda p: gre(ethernet(p), 0x22EB, flags=0x1000, optional=bytes(4) + bytes(12)),
    "erspan III with a subheader": lambda p: gre(
        ethernet(p), 0x22EB, flags=0x1000, optional=bytes(4) + bytes(11) + b"\x01" + bytes(8)
    ),
    "mpls": lambda p: framed(0x8847, labels() + p),
    "ethernet over mpls": lambda p: framed(0x8847, labels(count=1) + ethernet(p)),
    "ethernet over mpls with a control word": lambda p: framed(0x8847, labels() + bytes(4) + ethernet(p)),
    "pppoe": lambda p: framed(
        0x8864,
        struct.pack(">BBHHH", 0x11, 0, 7, len(p) + 2, 0x0021 if p[0] >> 4 == 4 else 0x0057) + p + b"trailer",
    ),
    "ip in ip": lambda p: ethernet(make.ip(p, protocol=4 if p[0] >> 4 == 4 else 41)),
    "vxlan in gre in mpls": lambda p: framed(
        0x8847, labels() + make.ip(struct.pack(">HH", 0, 0x0800) + vxlan(ethernet(p)), protocol=47)
    ),
}
