"""DATA and PAD frames, and heartbeats: what carries the stream (13.1)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from mainstem._core import layout
from mainstem.aeron.protocol.header import UNALIGNED, FrameType, Header, check_range, pack, read_header, violation
from mainstem.errors import LocalProtocolError

FLAG_BEGIN = layout.FLAG_BEGIN
FLAG_END = layout.FLAG_END
FLAG_UNFRAGMENTED = layout.FLAG_UNFRAGMENTED
FLAG_EOS = layout.FLAG_EOS
FLAG_REVOKED = layout.FLAG_REVOKED

_FIELDS = struct.Struct("<iiiiq")


def align(length: int) -> int:
    """The room that a frame of that length takes in a term and on the wire."""
    return (length + UNALIGNED) & ~UNALIGNED


@dataclass(frozen=True, slots=True, kw_only=True)
class _StreamFrame:
    """Where in which stream: the fields that all three kinds share."""

    session_id: int
    stream_id: int
    term_id: int
    term_offset: int
    flags: int = FLAG_UNFRAGMENTED
    reserved_value: int = 0

    def _encode(self, frame_length: int, type_id: FrameType) -> bytes:
        values = (self.term_offset, self.session_id, self.stream_id, self.term_id, self.reserved_value)
        fields = pack(_FIELDS, type(self).__name__, *values)
        return Header(frame_length, 0, self.flags, type_id).encode() + fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Data(_StreamFrame):
    """A message or a fragment of one."""

    payload: bytes = b""

    @property
    def frame_length(self) -> int:
        """Header and payload, in bytes."""
        return layout.DATA_HEADER_LENGTH + len(self.payload)

    @property
    def aligned_length(self) -> int:
        """How far the frame moves the stream."""
        return align(self.frame_length)

    def encode(self) -> bytes:
        """The frame as it goes on the wire: padded with zeros to a multiple of 32."""
        return (self._encode(self.frame_length, FrameType.DATA) + self.payload).ljust(self.aligned_length, b"\0")

    def check(self, term_length: int) -> None:
        """Raises RemoteProtocolError where the frame does not lie in a term of that length."""
        check_range(self.term_offset, self.aligned_length, term_length, "term range")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pad(_StreamFrame):
    """A stretch of the term without messages; only its header is transmitted, last in the datagram."""

    frame_length: int

    @property
    def aligned_length(self) -> int:
        """How far the frame moves the stream."""
        return align(self.frame_length)

    def encode(self) -> bytes:
        """The 32 bytes of the header."""
        if self.frame_length < layout.DATA_HEADER_LENGTH:
            raise LocalProtocolError(f"padding of {self.frame_length} bytes is below 32", rule="frame length")
        return self._encode(self.frame_length, FrameType.PAD)

    def check(self, term_length: int) -> None:
        """Raises RemoteProtocolError where the padding does not lie in a term of that length."""
        check_range(self.term_offset, self.aligned_length, term_length, "term range")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(_StreamFrame):
    """Says where the sender is while it has nothing to send: a DATA frame of length 0, alone in its datagram."""

    @property
    def is_end_of_stream(self) -> bool:
        """Whether the stream ends at this position."""
        return bool(self.flags & FLAG_EOS)

    @property
    def is_revoked(self) -> bool:
        """Whether the publication was revoked: what is not received yet will not come."""
        return bool(self.flags & FLAG_REVOKED)

    @property
    def aligned_length(self) -> int:
        """A heartbeat does not move the stream."""
        return 0

    def encode(self) -> bytes:
        """The 32 bytes."""
        return self._encode(0, FrameType.DATA)

    def check(self, term_length: int) -> None:
        """Raises RemoteProtocolError where the position does not lie in a term; its end is one that a sender reaches."""
        if self.term_offset != term_length:
            check_range(self.term_offset, 0, term_length, "term range")


StreamFrame = Data | Pad | Heartbeat


def decode_stream_frames(datagram: bytes | memoryview) -> list[StreamFrame]:
    """All frames of a datagram that begins with DATA or PAD.

    They follow one another without a gap, in the datagram and in the term, and belong to one stream. Raises
    RemoteProtocolError naming the rule that is broken.
    """
    if len(datagram) < layout.DATA_HEADER_LENGTH or len(datagram) & UNALIGNED:
        raise violation("datagram length", f"{len(datagram)} bytes are not a multiple of 32 and at least 32")
    found: list[StreamFrame] = []
    at = 0
    while at < len(datagram):
        frame = _decode_one(datagram, at)
        if found:
            _check_follows(found[-1], frame)
        found.append(frame)
        at += frame.aligned_length if isinstance(frame, Data) else layout.DATA_HEADER_LENGTH
        if not isinstance(frame, Data) and at < len(datagram):
            raise violation("last frame", f"{len(datagram) - at} bytes follow a {type(frame).__name__.lower()}")
    return found


def _decode_one(datagram: bytes | memoryview, at: int) -> StreamFrame:
    rest = memoryview(datagram)[at:]
    header = read_header(rest)
    if header.type not in (FrameType.DATA, FrameType.PAD):
        raise violation("frame type", f"{header.type:#x} stands among DATA and PAD")
    if len(rest) < layout.DATA_HEADER_LENGTH:
        raise violation("datagram length", f"{len(rest)} bytes are left for a header of 32")
    term_offset, session_id, stream_id, term_id, reserved_value = _FIELDS.unpack_from(rest, 8)
    if term_offset < 0 or term_offset & UNALIGNED:
        raise violation("term offset", f"{term_offset} is negative or not a multiple of 32")
    length = header.frame_length
    is_heartbeat = header.type == FrameType.DATA and length == 0
    if not is_heartbeat and length < layout.DATA_HEADER_LENGTH:
        raise violation("frame length", f"{length} is below the header's 32")
    if is_heartbeat and at:
        raise violation("heartbeat", "a frame length of 0 stands behind other frames")
    if header.type == FrameType.DATA and align(length) > len(rest):
        raise violation("frame length", f"{length} exceeds the {len(rest)} bytes that are left")
    where = {
        "session_id": session_id,
        "stream_id": stream_id,
        "term_id": term_id,
        "term_offset": term_offset,
        "flags": header.flags,
        "reserved_value": reserved_value,
    }
    if header.type == FrameType.PAD:
        return Pad(**where, frame_length=length)
    if is_heartbeat:
        return Heartbeat(**where)
    return Data(**where, payload=bytes(rest[layout.DATA_HEADER_LENGTH : length]))


def _check_follows(before: StreamFrame, frame: StreamFrame) -> None:
    expected = before.term_offset + before.aligned_length
    if frame.term_offset != expected:
        raise violation("contiguous frames", f"term offset {frame.term_offset} follows where {expected} should")
    for name in ("session_id", "stream_id", "term_id"):
        if getattr(frame, name) != getattr(before, name):
            raise violation("one stream", f"{name} changes from {getattr(before, name)} to {getattr(frame, name)}")
