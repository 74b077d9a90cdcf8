"""Recognizes a capture by its first bytes: pcap of either byte order and resolution, pcapng, Aqueduct's trace."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from mainstem._core.capture.records import RecordWalk
from mainstem.errors import CaptureError

PCAP_HEADER_LENGTH = 24
HEAD_LENGTH = PCAP_HEADER_LENGTH
_PCAP = {  # first four bytes: (byte order, nanoseconds)
    b"\xd4\xc3\xb2\xa1": ("<", False),
    b"\xa1\xb2\xc3\xd4": (">", False),
    b"\x4d\x3c\xb2\xa1": ("<", True),
    b"\xa1\xb2\x3c\x4d": (">", True),
}
_PCAPNG = b"\x0a\x0d\x0d\x0a"
_ORDERS = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
_TRACE = b'{"t":'  # the start of a FrameLog line
_PACKED = {b"\xfd7": "xz", b"BZ": "bzip2", b"\x04\x22": "lz4"}


@dataclass(frozen=True)
class Section:
    """The state needed to read from the middle of a file: the byte order and, for pcapng, the interfaces so far.

    An interface is (link type, if_tsresol, if_tsoffset in seconds, snapshot length).
    """

    swapped: bool
    interfaces: tuple[tuple[int, int, int, int], ...] = ()


@dataclass(frozen=True)
class Format:
    """A kind of capture. ``start`` is where its records begin, ``section`` the state there, ``packed`` the file's compression."""

    blocks: bool
    section: Section
    nanoseconds: bool = False
    link: int = -1
    snaplen: int = 0
    start: int = 0
    name: str = field(default="", compare=False)
    packed: str = ""

    def walk(self, section: Section) -> RecordWalk:
        """Return a walk that steps through records in the state ``section``."""
        walk = RecordWalk(self.blocks)
        self.enter(walk, section)
        return walk

    def enter(self, walk: RecordWalk, section: Section) -> None:
        if not self.blocks:
            walk.set_records(section.swapped, self.nanoseconds, self.link, self.snaplen)
            return
        walk.set_section(section.swapped)
        for interface in section.interfaces:
            walk.add_interface(*interface)


def section_of(walk: RecordWalk) -> Section:
    return Section(walk.swapped, tuple(walk.interface_at(i) for i in range(walk.interfaces)))


def recognize(head: bytes) -> Format:
    """Return the format of a file that begins with ``head`` (24 bytes, or fewer in a short file). Raises CaptureError."""
    if head[:4] == _PCAPNG and len(head) >= 12:
        order = _ORDERS.get(head[8:12])
        if order is None:
            raise CaptureError("a pcapng file whose first section has no byte order")
        return Format(True, Section(order == ">"), name="pcapng")
    if head[:4] in _PCAP and len(head) >= PCAP_HEADER_LENGTH:
        order, nanoseconds = _PCAP[head[:4]]
        snaplen, link = struct.unpack_from(order + "II", head, 16)
        # The upper half of the link type describes checksums at the end of each packet, which are not decoded.
        section = Section(order == ">")
        return Format(False, section, nanoseconds, link & 0xFFFF, snaplen, PCAP_HEADER_LENGTH, name="pcap")
    if head[:4] in _PCAP or head[:4] == _PCAPNG:
        raise CaptureError(f"a capture that ends within its header, after {len(head)} bytes")
    if head.startswith(_TRACE):
        return Format(False, Section(False), name="aqueduct")
    if packed := _PACKED.get(head[:2]):
        raise CaptureError(f"packed with {packed}: unpack it first, or pack it with gzip or zstd")
    raise CaptureError(f"neither pcap, pcapng nor a trace of Aqueduct: it begins with {head[:4].hex() or 'nothing'}")
