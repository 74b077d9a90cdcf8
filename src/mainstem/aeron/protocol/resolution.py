"""RES: drivers tell one another names and addresses (13.8)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from mainstem._core import layout
from mainstem.aeron.protocol.header import FrameType, Header, pack, read_control_header, violation
from mainstem.errors import LocalProtocolError

FLAG_SELF = layout.RES_FLAG_SELF
TYPE_IPV4 = 1
TYPE_IPV6 = 2
ENTRY_ALIGNMENT = 8
ADDRESS_LENGTHS = {TYPE_IPV4: 4, TYPE_IPV6: 16}
MAX_NAME_LENGTH = 255  # what a host name may have

_ENTRY = struct.Struct("<bBHi")
_NAME_LENGTH = struct.Struct("<h")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionEntry:
    """A driver's name, its address and port, and how many milliseconds ago it was heard of.

    ``is_self`` marks the sender's own entry.
    """

    name: str
    address: IPv4Address | IPv6Address
    port: int
    age_ms: int = 0
    is_self: bool = False

    def encode(self) -> bytes:
        """The entry, padded to a multiple of 8. Raises LocalProtocolError when the name is too long."""
        name = self.name.encode("utf-8", "surrogateescape")
        if len(name) > MAX_NAME_LENGTH:
            raise LocalProtocolError(f"RES: name of {len(name)} bytes exceeds {MAX_NAME_LENGTH}", rule="RES name")
        kind = TYPE_IPV4 if self.address.version == 4 else TYPE_IPV6
        flags = FLAG_SELF if self.is_self else 0
        head = pack(_ENTRY, "RES", kind, flags, self.port, self.age_ms)
        data = head + self.address.packed + _NAME_LENGTH.pack(len(name)) + name
        return data + bytes(-len(data) % ENTRY_ALIGNMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The entries of one datagram."""

    entries: tuple[ResolutionEntry, ...]
    flags: int = 0

    def encode(self) -> bytes:
        """Header and entries."""
        body = b"".join(entry.encode() for entry in self.entries)
        return Header(layout.RES_HEADER_LENGTH + len(body), 0, self.flags, FrameType.RESOLUTION).encode() + body

    @classmethod
    def decode(cls, datagram: bytes | memoryview) -> Resolution:
        """Reads a datagram. Raises RemoteProtocolError naming the rule that is broken."""
        header = read_control_header(datagram, FrameType.RESOLUTION, layout.RES_HEADER_LENGTH)
        entries = []
        at = layout.RES_HEADER_LENGTH
        while at < header.frame_length:
            entry, at = _decode_entry(datagram, at, header.frame_length)
            entries.append(entry)
        return cls(entries=tuple(entries), flags=header.flags)


def _decode_entry(datagram: bytes | memoryview, at: int, end: int) -> tuple[ResolutionEntry, int]:
    """The entry at an offset, and where the next one begins."""
    if at + _ENTRY.size > end:
        raise violation("RES entry", f"{end - at} bytes are left for an entry")
    kind, flags, port, age_ms = _ENTRY.unpack_from(datagram, at)
    if kind not in ADDRESS_LENGTHS:
        raise violation("RES address type", f"{kind} is neither 1 (IPv4) nor 2 (IPv6)")
    address_at = at + _ENTRY.size
    name_length_at = address_at + ADDRESS_LENGTHS[kind]
    name_at = name_length_at + _NAME_LENGTH.size
    if name_at > end:
        raise violation("RES entry", f"{end - at} bytes are left for an entry")
    (length,) = _NAME_LENGTH.unpack_from(datagram, name_length_at)
    if not 0 <= length <= MAX_NAME_LENGTH or name_at + length > end:
        raise violation("RES name", f"length {length} is not in 0 to {MAX_NAME_LENGTH}, or leaves the frame")
    name = bytes(datagram[name_at : name_at + length]).decode("utf-8", "surrogateescape")
    address = ip_address(bytes(datagram[address_at:name_length_at]))
    entry = ResolutionEntry(name=name, address=address, port=port, age_ms=age_ms, is_self=bool(flags & FLAG_SELF))
    size = name_at + length - at
    return entry, at + size + -size % ENTRY_ALIGNMENT
