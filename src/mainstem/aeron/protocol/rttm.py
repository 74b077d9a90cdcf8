"""RTTM: measures the round trip, in either direction (13.6)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from mainstem._core import layout
from mainstem.aeron.protocol.header import FrameType, Header, pack, read_control_header

FLAG_REPLY = layout.RTTM_FLAG_REPLY

_FIELDS = struct.Struct("<iiqqq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rttm:
    """``echo_timestamp`` is the requester's clock in nanoseconds; ``reception_delta`` how long the answer took to leave."""

    session_id: int
    stream_id: int
    echo_timestamp: int
    reception_delta: int = 0
    receiver_id: int
    flags: int = 0

    @property
    def asks_for_reply(self) -> bool:
        """Whether this is a request."""
        return bool(self.flags & FLAG_REPLY)

    def reply(self, reception_delta: int = 0) -> Rttm:
        """The answer to this request."""
        return replace(self, flags=0, reception_delta=reception_delta)

    def encode(self) -> bytes:
        """The 40 bytes."""
        values = (self.session_id, self.stream_id, self.echo_timestamp, self.reception_delta, self.receiver_id)
        return Header(layout.RTTM_LENGTH, 0, self.flags, FrameType.RTTM).encode() + pack(_FIELDS, "RTTM", *values)

    @classmethod
    def decode(cls, datagram: bytes | memoryview) -> Rttm:
        """Reads a datagram. Raises RemoteProtocolError naming the rule that is broken."""
        header = read_control_header(datagram, FrameType.RTTM, layout.RTTM_LENGTH)
        session_id, stream_id, echo, delta, receiver_id = _FIELDS.unpack_from(datagram, 8)
        return cls(
            session_id=session_id,
            stream_id=stream_id,
            echo_timestamp=echo,
            reception_delta=delta,
            receiver_id=receiver_id,
            flags=header.flags,
        )
