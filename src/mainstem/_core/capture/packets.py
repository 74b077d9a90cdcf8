"""One captured packet, from its link header to the payload of UDP or TCP: where the payload is, its sender and its receiver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from typing_extensions import Buffer

if not cython.compiled:
    from mainstem._core.capture.layout import *
    from mainstem._core.layout import *
    from mainstem._core.log.columns import Region
    from mainstem._core.memory.plain import *

LINK_NULL = cython.declare(cython.int, 0)
LINK_ETHERNET = cython.declare(cython.int, 1)
LINK_RAW = cython.declare(cython.int, 101)
LINK_LOOP = cython.declare(cython.int, 108)
LINK_COOKED = cython.declare(cython.int, 113)
LINK_IPV4 = cython.declare(cython.int, 228)
LINK_IPV6 = cython.declare(cython.int, 229)
LINK_COOKED_2 = cython.declare(cython.int, 276)
ETHERTYPE_IPV4 = cython.declare(cython.int, 0x0800)
ETHERTYPE_IPV6 = cython.declare(cython.int, 0x86DD)
ETHERTYPE_ETHERNET = cython.declare(cython.int, 0x6558)
ETHERTYPE_MPLS = cython.declare(cython.int, 0x8847)
ETHERTYPE_MPLS_UPSTREAM = cython.declare(cython.int, 0x8848)
ETHERTYPE_PPPOE = cython.declare(cython.int, 0x8864)
ETHERTYPE_PPP = cython.declare(cython.int, 0x880B)
ETHERTYPE_ERSPAN = cython.declare(cython.int, 0x88BE)
ETHERTYPE_ERSPAN_3 = cython.declare(cython.int, 0x22EB)
PPP_IPV4 = cython.declare(cython.int, 0x0021)
PPP_IPV6 = cython.declare(cython.int, 0x0057)
PPP_MPLS = cython.declare(cython.int, 0x0281)
PROTOCOL_ID_IPV4 = cython.declare(cython.int, 4)
PROTOCOL_ID_IPV6 = cython.declare(cython.int, 41)
PROTOCOL_ID_GRE = cython.declare(cython.int, 47)
PROTOCOL_ID_AUTHENTICATION = cython.declare(cython.int, 51)
PORT_VXLAN = cython.declare(cython.int, 4789)
PORT_VXLAN_GPE = cython.declare(cython.int, 4790)
PORT_VXLAN_LINUX = cython.declare(cython.int, 8472)
PORT_GENEVE = cython.declare(cython.int, 6081)
PROTOCOL_ID_TCP = cython.declare(cython.int, 6)
PROTOCOL_ID_UDP = cython.declare(cython.int, 17)
# Consecutive tags and extension headers: more of them is an attack, not a network.
MAX_TAGS = cython.declare(cython.int, 8)
MAX_EXTENSIONS = cython.declare(cython.int, 16)
# Nested packets: a mirrored tunnel in a tunnel has three levels.
MAX_DEPTH = cython.declare(cython.int, 8)


@cython.cclass
class Packet:
    """A parsed captured packet: ``kind`` is ``layout.PACKET_...``.

    UDP and TCP: ``payload`` is where the payload starts in the memory, ``available`` how much of it was captured, ``length``
    how long it was on the wire. PACKET_FRAGMENT: the same for the fragment of an IP packet, with ``fragment_offset``,
    ``more_fragments``, ``fragment_id`` and the inner ``protocol``. ``bucket`` (below FLOW_BUCKETS) is the same for both
    directions of a TCP connection, and for all fragments of one packet.
    """

    kind: readonly[cython.int]
    protocol: readonly[cython.int]
    payload: readonly[cython.longlong]
    available: readonly[cython.longlong]
    length: readonly[cython.longlong]
    source_port: readonly[cython.int]
    destination_port: readonly[cython.int]
    sequence: readonly[cython.longlong]
    acknowledged: readonly[cython.longlong]
    tcp_flags: readonly[cython.int]
    fragment_offset: readonly[cython.longlong]
    more_fragments: readonly[cython.bint]
    fragment_id: readonly[cython.longlong]
    bucket: readonly[cython.int]
    address: cython.longlong
    address_size: readonly[cython.int]
    depth: cython.int

    def __init__(self) -> None:
        self.kind = PACKET_OTHER
        self.protocol = 0
        self.payload = self.available = self.length = 0
        self.source_port = self.destination_port = 0
        self.sequence = self.acknowledged = 0
        self.tcp_flags = 0
        self.fragment_offset = self.fragment_id = 0
        self.more_fragments = False
        self.bucket = 0
        self.address = 0
        self.address_size = 0
        self.depth = 0

    def read(self, source: Buffer, offset: cython.longlong, captured: cython.longlong, link: cython.int) -> int:
        """Parse one packet. Raises IndexError if it is outside the memory."""
        region: Region = Region(source)
        if offset < 0 or captured < 0 or offset > region.capacity - captured:
            raise IndexError(f"a packet of {captured} bytes at {offset} lies outside {region.capacity} bytes")
        self.kind = self.parse(region.base, offset, captured, link)
        return self.kind

    def addresses(self, source: Buffer) -> tuple[bytes, bytes]:
        """Return the addresses of sender and receiver, 16 bytes each."""
        view = memoryview(source)
        size = self.address_size
        first = bytes(view[self.address : self.address + size])
        second = bytes(view[self.address + size : self.address + 2 * size])
        if size == 4:
            mapped = b"\0" * 10 + b"\xff\xff"
            return mapped + first, mapped + second
        return first, second

    def parse(
        self, base: cython.p_uchar, o: cython.longlong, captured: cython.longlong, link: cython.int
    ) -> cython.int:
        end: cython.longlong = o + captured
        self.address_size = 0
        self.bucket = 0
        self.depth = 0
        if link == LINK_ETHERNET:
            return self.ethernet(base, o, end)
        if link == LINK_RAW or link == LINK_IPV4 or link == LINK_IPV6 or link == 12 or link == 14:
            return self.ip(base, o, end)
        if link == LINK_COOKED:
            return self.by_ethertype(base, o + 16, end, be16(base, o + 14)) if captured >= 16 else PACKET_TRUNCATED
        if link == LINK_COOKED_2:
            return self.by_ethertype(base, o + 20, end, be16(base, o)) if captured >= 20 else PACKET_TRUNCATED
        if link == LINK_NULL or link == LINK_LOOP:
            # The family's number differs between systems; the bytes that follow show which IP version it is.
            return self.ip(base, o + 4, end) if captured >= 4 else PACKET_TRUNCATED
        return PACKET_UNKNOWN_LINK

    def ethernet(self, base: cython.p_uchar, o: cython.longlong, end: cython.longlong) -> cython.int:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            return PACKET_MALFORMED
        if end - o < 14:
            return PACKET_TRUNCATED
        return self.by_ethertype(base, o + 14, end, be16(base, o + 12))

    def by_ethertype(
        self, base: cython.p_uchar, o: cython.longlong, end: cython.longlong, kind: cython.int
    ) -> cython.int:
        n: cython.int = 0
        code: cython.int = kind
        at: cython.longlong = o
        while code == 0x8100 or code == 0x88A8 or code == 0x9100:
            if end - at < 4:
                return PACKET_TRUNCATED
            code = be16(base, at + 2)
            at += 4
            n += 1
            if n > MAX_TAGS:
                return PACKET_MALFORMED
        if code == ETHERTYPE_IPV4:
            return self.ipv4(base, at, end)
        if code == ETHERTYPE_IPV6:
            return self.ipv6(base, at, end)
        if code == ETHERTYPE_MPLS or code == ETHERTYPE_MPLS_UPSTREAM:
            return self.mpls(base, at, end)
        if code == ETHERTYPE_PPPOE:
            return self.pppoe(base, at, end)
        return PACKET_OTHER

    def mpls(self, base: cython.p_uchar, o: cython.longlong, end: cython.longlong) -> cython.int:
        """Parse a stack of labels (RFC 3032), and the packet behind it, whose type only its first half byte shows (RFC 4928)."""
        _n: cython.int = 0
        at: cython.longlong = o
        first: cython.int = 0
        for _n in range(MAX_EXTENSIONS):
            if end - at < 4:
                return PACKET_TRUNCATED
            at += 4
            if get8(base, at - 2) & 1:
                break
        else:
            return PACKET_MALFORMED
        if end - at < 1:
            return PACKET_TRUNCATED
        first = get8(base, at) >> 4
        if first == 4 or first == 6:
            return self.ip(base, at, end)
        # Ethernet over MPLS (RFC 4448), with or without a control word: an address may begin with zeros, as the word does.
        if first == 0 and end - at >= 18:
            first = be16(base, at + 16)
            if (
                first == ETHERTYPE_IPV4
                or first == ETHERTYPE_IPV6
                or first == 0x8100
                or first == 0x88A8
                or first == 0x0806
            ):
                at += 4
        return self.ethernet(base, at, end)

    def pppoe(self, base: cython.p_uchar, o: cython.longlong, end: cython.longlong) -> cython.int:
        """Parse a packet of a PPPoE session (RFC 2516)."""
        if end - o < 6:
            return PACKET_TRUNCATED
        if get8(base, o) != 0x11 or get8(base, o + 1) != 0:
            return PACKET_OTHER
        return self.ppp(base, o + 6, min(end, o + 6 + be16(base, o + 4)))

    def ppp(self, base: cython.p_uchar, o: cython.longlong, end: cython.longlong) -> cython.int:
        """Parse PPP without framing (RFC 1661). The protocol may have one byte, and address and control may precede it."""
        at: cython.longlong = o
        code: cython.int = 0
        if end - at >= 2 and be16(base, at) == 0xFF03:
            at += 2
        if end - at < 2:
            return PACKET_TRUNCATED
        code = get8(base, at)
        at += 1
        if not code & 1:
            code = code << 8 | get8(base, at)
            at += 1
        if code == PPP_IPV4 or code == PPP_IPV6:
            return self.ip(base, at, end)
        return self.mpls(base, at, end) if code == PPP_MPLS else PACKET_OTHER

    def gre(self, base: cython.p_uchar, o: cython.longlong, end: cython.longlong) -> cython.int:
        """Parse GRE (RFC 2784, 2890), its form for PPTP (RFC 2637), and mirrored Ethernet (ERSPAN) in it."""
        flags: cython.int = 0
        code: cython.int = 0
        at: cython.longlong = o + 4
        if end - o < 4:
            return PACKET_TRUNCATED
        flags = be16(base, o)
        code = be16(base, o + 2)
        # Source routes and versions above 1 are not decoded.
        if flags & 0x4000 or flags & 7 > 1:
            return PACKET_OTHER
        if flags & 0x8000:
            at += 4
        if flags & 0x2000:
            at += 4
        if flags & 0x1000:
            at += 4
        if flags & 7 == 1 and flags & 0x80:
            at += 4
        if code == ETHERTYPE_ERSPAN:
            # Without a sequence number it is type I, which has no header.
            return self.ethernet(base, at + 8 if flags & 0x1000 else at, end)
        if code == ETHERTYPE_ERSPAN_3:
            if end - at < 12:
                return PACKET_TRUNCATED
            return self.ethernet(base, at + 20 if get8(base, at + 11) & 1 else at + 12, end)
        if code == ETHERTYPE_ETHERNET:
            return self.ethernet(base, at, end)
        if code == ETHERTYPE_PPP:
            return self.ppp(base, at, end) if end > at else PACKET_OTHER
        if at > end:
            return PACKET_TRUNCATED
        return self.by_ethertype(base, at, end, code)

    def ip(self, base: cython.p_uchar, o: cython.longlong, end: cython.longlong) -> cython.int:
        version: cython.int = 0
        self.depth += 1
        if self.depth > MAX_DEPTH:
            return PACKET_MALFORMED
        if end - o < 1:
            return PACKET_TRUNCATED
        version = get8(base, o) >> 4
        if version == 4:
            return self.ipv4(base, o, end)
        return self.ipv6(base, o, end) if version == 6 else PACKET_OTHER

    def ipv4(self, base: cython.p_uchar, o: cython.longlong, end: cython.longlong) -> cython.int:
        header: cython.longlong = 0
        total: cython.longlong = 0
        part: cython.int = 0
        if end - o < 20:
            return PACKET_TRUNCATED
        header = (get8(base, o) & 0x0F) * 4
        total = be16(base, o + 2)
        # A packet that the kernel left for the network card to segment has a length of 0.
        if total == 0:
            total = end - o
        if get8(base, o) >> 4 != 4 or header < 20 or total < header:
            return PACKET_MALFORMED
        if end - o < header:
            return PACKET_TRUNCATED
        end = min(end, o + total)
        self.address = o + 12
        self.address_size = 4
        part = be16(base, o + 6)
        if part & 0x3FFF:
            self.fragment_offset = (part & 0x1FFF) * 8
            self.more_fragments = (part & 0x2000) != 0
            self.fragment_id = be16(base, o + 4)
            return self.fragment(base, o + header, end, total - header, get8(base, o + 9))
        return self.transport(base, o + header, end, total - header, get8(base, o + 9))

    def ipv6(self, base: cython.p_uchar, o: cython.longlong, end: cython.longlong) -> cython.int:
        _n: cython.int = 0
        following: cython.int = 0
        size: cython.longlong = 0
        total: cython.longlong = 0
        at: cython.longlong = o + 40
        last: cython.longlong = 0
        if end - o < 40:
            return PACKET_TRUNCATED
        if get8(base, o) >> 4 != 6:
            return PACKET_MALFORMED
        following = get8(base, o + 6)
        total = be16(base, o + 4)
        if total == 0:
            total = end - at
        last = at + total
        end = min(end, last)
        self.address = o + 8
        self.address_size = 16
        for _n in range(MAX_EXTENSIONS):
            if following == 0 or following == 43 or following == 60 or following == 135 or following == 51:
                if end - at < 8:
                    return PACKET_TRUNCATED if end < last else PACKET_MALFORMED
                size = (get8(base, at + 1) + 2) * 4 if following == 51 else (get8(base, at + 1) + 1) * 8
                following = get8(base, at)
                at += size
                if at > last:
                    return PACKET_MALFORMED
                if at > end:
                    return PACKET_TRUNCATED
            elif following == 44:
                if end - at < 8:
                    return PACKET_TRUNCATED if end < last else PACKET_MALFORMED
                following = get8(base, at)
                self.fragment_offset = be16(base, at + 2) & 0xFFF8
                self.more_fragments = (get8(base, at + 3) & 1) != 0
                self.fragment_id = be32(base, at + 4)
                at += 8
                if self.fragment_offset or self.more_fragments:
                    return self.fragment(base, at, end, last - at, following)
            else:
                return self.transport(base, at, end, last - at, following)
        return PACKET_MALFORMED

    def fragment(
        self,
        base: cython.p_uchar,
        o: cython.longlong,
        end: cython.longlong,
        length: cython.longlong,
        protocol: cython.int,
    ) -> cython.int:
        if (
            protocol != PROTOCOL_ID_UDP
            and protocol != PROTOCOL_ID_TCP
            and protocol != PROTOCOL_ID_GRE
            and protocol != PROTOCOL_ID_IPV4
            and protocol != PROTOCOL_ID_IPV6
        ):
            return PACKET_OTHER
        self.protocol = protocol
        self.payload = o
        self.available = end - o
        self.length = length
        self.source_port = self.destination_port = 0
        self.bucket = cython.cast(
            cython.int, (self.address_hash(base, self.address) + self.fragment_id * 31) & (FLOW_BUCKETS - 1)
        )
        return PACKET_FRAGMENT

    def transport(
        self,
        base: cython.p_uchar,
        o: cython.longlong,
        end: cython.longlong,
        length: cython.longlong,
        protocol: cython.int,
    ) -> cython.int:
        size: cython.longlong = 0
        self.protocol = protocol
        if protocol == PROTOCOL_ID_UDP:
            return self.udp(base, o, end, length)
        if protocol == PROTOCOL_ID_TCP:
            return self.tcp(base, o, end, length)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            return PACKET_MALFORMED
        if protocol == PROTOCOL_ID_GRE:
            return self.gre(base, o, end)
        if protocol == PROTOCOL_ID_IPV4 or protocol == PROTOCOL_ID_IPV6:
            return self.ip(base, o, end)
        if protocol == PROTOCOL_ID_AUTHENTICATION:
            # RFC 4302: the packet behind it is not encrypted. In IPv6 it is an extension header.
            if length < 12:
                return PACKET_MALFORMED
            if end - o < 8:
                return PACKET_TRUNCATED
            size = (get8(base, o + 1) + 2) * 4
            if size > length:
                return PACKET_MALFORMED
            return self.transport(base, o + size, end, length - size, get8(base, o))
        return PACKET_OTHER

    def udp(
        self, base: cython.p_uchar, o: cython.longlong, end: cython.longlong, length: cython.longlong
    ) -> cython.int:
        size: cython.longlong = 0
        if length < 8:
            return PACKET_MALFORMED
        if end - o < 8:
            return PACKET_TRUNCATED
        size = be16(base, o + 4)
        if size == 0:
            size = length
        if size < 8 or size > length:
            return PACKET_MALFORMED
        self.source_port = be16(base, o)
        self.destination_port = be16(base, o + 2)
        self.payload = o + 8
        self.length = size - 8
        self.available = min(end - o, size) - 8
        if self.available >= 8:
            end = min(end, o + size)
            if (
                self.destination_port == PORT_VXLAN
                or self.destination_port == PORT_VXLAN_LINUX
                or self.destination_port == PORT_VXLAN_GPE
            ):
                return self.vxlan(base, o + 8, end)
            if self.destination_port == PORT_GENEVE:
                return self.geneve(base, o + 8, end)
        return PACKET_UDP

    def vxlan(self, base: cython.p_uchar, o: cython.longlong, end: cython.longlong) -> cython.int:
        """Parse VXLAN (RFC 7348), with a group policy, or its generic form (GPE); return PACKET_UDP for anything else.

        A stream may use these ports too: the first four bytes would then be its frame's length.
        """
        flags: cython.longlong = be32(base, o)
        code: cython.int = 0
        if get8(base, o + 7):
            return PACKET_UDP
        # No Aeron frame has a length of 8, or of 16 MiB or more.
        if flags == 0x08000000 or flags == 0x0C000003:
            return self.ethernet(base, o + 8, end)
        if flags == 0x0C000001 or flags == 0x0C000002:
            return self.ip(base, o + 8, end)
        if flags >> 24 == 0x88 and flags & 0x00B70000 == 0 and end - o >= 23:
            # With a policy the word could be a frame's length, so the inner packet decides.
            code = be16(base, o + 20)
            if (
                (code == ETHERTYPE_IPV4 and get8(base, o + 22) >> 4 == 4)
                or (code == ETHERTYPE_IPV6 and get8(base, o + 22) >> 4 == 6)
                or code == 0x8100
                or code == 0x88A8
            ):
                return self.ethernet(base, o + 8, end)
        return PACKET_UDP

    def geneve(self, base: cython.p_uchar, o: cython.longlong, end: cython.longlong) -> cython.int:
        """Parse Geneve (RFC 8926); return PACKET_UDP if it is not: an Aeron frame is never as long as its protocol type implies."""
        first: cython.int = get8(base, o)
        code: cython.int = be16(base, o + 2)
        at: cython.longlong = o + 8 + (first & 0x3F) * 4
        if first >> 6 or get8(base, o + 7):
            return PACKET_UDP
        if code != ETHERTYPE_ETHERNET and code != ETHERTYPE_IPV4 and code != ETHERTYPE_IPV6:
            return PACKET_UDP
        if at > end:
            return PACKET_TRUNCATED
        return self.ethernet(base, at, end) if code == ETHERTYPE_ETHERNET else self.ip(base, at, end)

    def tcp(
        self, base: cython.p_uchar, o: cython.longlong, end: cython.longlong, length: cython.longlong
    ) -> cython.int:
        header: cython.longlong = 0
        if length < 20:
            return PACKET_MALFORMED
        if end - o < 20:
            return PACKET_TRUNCATED
        header = (get8(base, o + 12) >> 4) * 4
        if header < 20 or header > length:
            return PACKET_MALFORMED
        self.source_port = be16(base, o)
        self.destination_port = be16(base, o + 2)
        self.sequence = be32(base, o + 4)
        self.acknowledged = be32(base, o + 8)
        self.tcp_flags = get8(base, o + 13)
        self.payload = o + header
        self.length = length - header
        self.available = max(min(end - o, length) - header, 0)
        if self.address_size:
            self.bucket = cython.cast(
                cython.int,
                (self.address_hash(base, self.address) + (self.source_port + self.destination_port) * 31)
                & (FLOW_BUCKETS - 1),
            )
        return PACKET_TCP

    def address_hash(self, base: cython.p_uchar, o: cython.longlong) -> cython.ulonglong:
        """Return a hash that is the same for both directions."""
        i: cython.int = 0
        total: cython.ulonglong = 0
        while i < 2 * self.address_size:
            total += be32(base, o + i)
            i += 4
        return total ^ (total >> 7) ^ (total >> 16) ^ (total >> 24)

    def put_address(
        self, base: cython.p_uchar, which: cython.int, column: cython.p_uchar, at: cython.longlong
    ) -> cython.void:
        """Copy the sender (0) or receiver (1) as 16 bytes; an IPv4 address becomes an IPv4-mapped IPv6 address."""
        if self.address_size == 16:
            copy_bytes(column, at, base, self.address + which * 16, 16)
        elif self.address_size == 4:
            zero_out(column, at, 10)
            put16(column, at + 10, 0xFFFF)
            copy_bytes(column, at + 12, base, self.address + which * 4, 4)
