"""NAK: a receiver asks for a stretch of the stream again (13.3)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from mainstem._core import layout
from mainstem.aeron.protocol.header import FrameType, Header, check_range, pack, read_control_header

_FIELDS = struct.Struct("<iiiii")


@dataclass(frozen=True, slots=True, kw_only=True)
class Nak:
    """``length`` bytes of the term from ``term_offset`` on, headers and alignment included."""

    session_id: int
    stream_id: int
    term_id: int
    term_offset: int
    length: int
    flags: int = 0

    def encode(self) -> bytes:
        """The 28 bytes."""
        values = (self.session_id, self.stream_id, self.term_id, self.term_offset, self.length)
        return Header(layout.NAK_LENGTH, 0, self.flags, FrameType.NAK).encode() + pack(_FIELDS, "NAK", *values)

    @classmethod
    def decode(cls, datagram: bytes | memoryview) -> Nak:
        """Reads a datagram. Raises RemoteProtocolError naming the rule that is broken."""
        header = read_control_header(datagram, FrameType.NAK, layout.NAK_LENGTH)
        session_id, stream_id, term_id, term_offset, length = _FIELDS.unpack_from(datagram, 8)
        return cls(
            session_id=session_id,
            stream_id=stream_id,
            term_id=term_id,
            term_offset=term_offset,
            length=length,
            flags=header.flags,
        )

    def check(self, term_length: int) -> None:
        """Raises RemoteProtocolError where the stretch does not lie in a term of that length."""
        check_range(self.term_offset, self.length, term_length, "NAK range")
