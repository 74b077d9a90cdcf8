"""SETUP: a sender describes its stream (13.2), and RSP_SETUP: the answer's session (13.7)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from mainstem._core import layout
from mainstem.aeron.protocol.header import (
    UNALIGNED,
    FrameType,
    Header,
    check_range,
    pack,
    read_control_header,
    violation,
)

FLAG_SEND_RESPONSE = layout.SETUP_FLAG_SEND_RESPONSE
FLAG_GROUP = layout.SETUP_FLAG_GROUP

_SETUP = struct.Struct("<iiiiiiii")
_RESPONSE = struct.Struct("<iii")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Active term and offset say where the sender is now; ``ttl`` is the multicast one, 0 for unicast."""

    session_id: int
    stream_id: int
    initial_term_id: int
    active_term_id: int
    term_offset: int
    term_length: int
    mtu: int
    ttl: int = 0
    flags: int = 0

    @property
    def asks_for_response(self) -> bool:
        """Whether the publication waits for a response channel."""
        return bool(self.flags & FLAG_SEND_RESPONSE)

    @property
    def is_group(self) -> bool:
        """Whether the sender has several receivers: multicast or multi-destination."""
        return bool(self.flags & FLAG_GROUP)

    def encode(self) -> bytes:
        """The 40 bytes."""
        values = (
            self.term_offset,
            self.session_id,
            self.stream_id,
            self.initial_term_id,
            self.active_term_id,
            self.term_length,
            self.mtu,
            self.ttl,
        )
        header = Header(layout.SETUP_LENGTH, 0, self.flags, FrameType.SETUP)
        return header.encode() + pack(_SETUP, "SETUP", *values)

    @classmethod
    def decode(cls, datagram: bytes | memoryview) -> Setup:
        """Reads a datagram. Raises RemoteProtocolError naming the rule that is broken; ``check`` looks at the values."""
        header = read_control_header(datagram, FrameType.SETUP, layout.SETUP_LENGTH)
        offset, session_id, stream_id, initial, active, term_length, mtu, ttl = _SETUP.unpack_from(datagram, 8)
        return cls(
            session_id=session_id,
            stream_id=stream_id,
            initial_term_id=initial,
            active_term_id=active,
            term_offset=offset,
            term_length=term_length,
            mtu=mtu,
            ttl=ttl,
            flags=header.flags,
        )

    def check(self) -> None:
        """Raises RemoteProtocolError where no image can be made of these values."""
        length = self.term_length
        if not layout.TERM_MIN_LENGTH <= length <= layout.TERM_MAX_LENGTH or length & (length - 1):
            raise violation("SETUP term length", f"{length} is not a power of two from 64 KiB to 1 GiB")
        check_range(self.term_offset, 0, length, "SETUP position")
        if not layout.MTU_MIN_LENGTH <= self.mtu <= layout.MTU_MAX_LENGTH or self.mtu & UNALIGNED:
            raise violation("SETUP mtu", f"{self.mtu} is not a multiple of 32 from 32 to {layout.MTU_MAX_LENGTH}")
        if (self.active_term_id - self.initial_term_id) & 0x80000000:
            raise violation("SETUP position", f"term {self.active_term_id} lies before {self.initial_term_id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSetup:
    """A receiver names the session of the response stream; session and stream are those of the request."""

    session_id: int
    stream_id: int
    response_session_id: int
    flags: int = 0

    def encode(self) -> bytes:
        """The 20 bytes."""
        values = (self.session_id, self.stream_id, self.response_session_id)
        header = Header(layout.RSP_SETUP_LENGTH, 0, self.flags, FrameType.RESPONSE_SETUP)
        return header.encode() + pack(_RESPONSE, "RSP_SETUP", *values)

    @classmethod
    def decode(cls, datagram: bytes | memoryview) -> ResponseSetup:
        """Reads a datagram. Raises RemoteProtocolError naming the rule that is broken."""
        header = read_control_header(datagram, FrameType.RESPONSE_SETUP, layout.RSP_SETUP_LENGTH)
        session_id, stream_id, response = _RESPONSE.unpack_from(datagram, 8)
        return cls(session_id=session_id, stream_id=stream_id, response_session_id=response, flags=header.flags)
