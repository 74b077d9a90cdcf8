"""Reassembles IP packets from fragments (RFC 791, 8200); if fragments overlap, the first copy of a byte is kept."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem._core.capture.packets import Packet

LINK_RAW = 101
TIMEOUT_NS = 30_000_000_000  # how long a host waits for missing fragments (RFC 791: 15 s; Linux: 30 s)
MAX_OPEN = 4096  # incomplete packets at a time; more of them means loss, not delay
MAX_LENGTH = 65535  # bytes of one packet: no fragment ends beyond this
_IPV4_MAPPED = b"\0" * 10 + b"\xff\xff"

Key = tuple[bytes, int, int]


@dataclass
class Partial:
    number: int
    time_ns: int
    owned: bool = True
    parts: dict[int, bytes] = field(default_factory=dict)
    total: int | None = None
    held: int = 0

    def add(self, offset: int, data: bytes, *, last: bool) -> bytes | None:
        if last:
            self.total = offset + len(data)
        if offset not in self.parts or len(self.parts[offset]) < len(data):
            self.parts[offset] = data
        self.held += len(data)
        if self.total is None or self.held < self.total:
            return None
        out = bytearray()
        for start in sorted(self.parts):
            if start > len(out):
                return None
            out += self.parts[start][len(out) - start :]
        return bytes(out[: self.total]) if len(out) >= self.total else None


class Fragments:
    def __init__(self) -> None:
        self._open: dict[Key, Partial] = {}
        self._replaced: list[Partial] = []

    def add(
        self, packet: Packet, data: bytes, addresses: bytes, number: int, time_ns: int, *, owned: bool = True
    ) -> bytes | None:
        """Add a fragment; return the whole packet with a new IP header once it is complete."""
        key = (addresses, packet.fragment_id, packet.protocol)
        whole_length = packet.fragment_offset + packet.length
        if len(data) < packet.length or whole_length > MAX_LENGTH or (packet.more_fragments and packet.length % 8):
            return None
        partial = self._open.get(key)
        if partial is not None and partial.parts.get(packet.fragment_offset, data) != data:
            # Other bytes at the same offset: the identification is being reused, and the earlier packet cannot be completed.
            self._replaced.append(self._open.pop(key))
            partial = None
        if partial is None:
            partial = self._open[key] = Partial(number, time_ns, owned)
        content = partial.add(packet.fragment_offset, data, last=not packet.more_fragments)
        if content is None:
            return None
        del self._open[key]
        return _header(addresses, packet.protocol, len(content)) + content

    def expired(self, now_ns: int) -> Iterator[Partial]:
        """Remove and yield the packets that can no longer be completed."""
        while self._replaced:
            yield self._replaced.pop()
        while self._open:
            key = next(iter(self._open))
            partial = self._open[key]
            if now_ns - partial.time_ns < TIMEOUT_NS and len(self._open) <= MAX_OPEN:
                return
            yield self._open.pop(key)

    def rest(self) -> Iterator[Partial]:
        yield from self._open.values()
        self._open.clear()


def _header(addresses: bytes, protocol: int, length: int) -> bytes:
    if addresses.startswith(_IPV4_MAPPED):
        # If the total does not fit, write 0, which means "to the end".
        total = length + 20 if length + 20 <= MAX_LENGTH else 0
        return struct.pack(">BBHHHBBH", 0x45, 0, total, 0, 0, 64, protocol, 0) + addresses[12:16] + addresses[28:32]
    return struct.pack(">IHBB", 0x60000000, length, protocol, 64) + addresses
