"""The codec of Aeron's frames (docs/protocols/aeron.md, 13).

Theory of operation
-------------------
A datagram contains either one control frame, or DATA and PAD frames of one stream back to back. Every frame begins with the same
8 bytes: length, version, flags, type. ``layouts.LAYOUTS`` has the fields of each type. The offsets come from ``_core/layout.py``,
which the compiled paths also use.

The compiled paths (``_core/driver/send_path``, ``receive_path``; for captures ``_core/capture/aeron_frames``, whose columns are
those of ``capture/schema``) read every datagram in place, check it, count malformed ones, and handle DATA, NAK and ordinary
status messages themselves. This module reads and writes the rare frames that they pass to Python, the frames that Python sends
(requests for a SETUP, ERR, RTTM, RSP_SETUP), the resolver's RES frames, and the frames of the event log
(``driver/event_log/frame_text``). Both accept the same datagrams and read the same fields.
``tests/unit/aeron/protocol/test_compiled_agrees.py`` compares them and lists the deliberate differences.

There are three steps, which callers combine:

- ``read`` unpacks fields and only checks that the bytes exist. It is for frames that a compiled path has already checked (and may
  have truncated to 1088 bytes), and for the event log.
- ``decode`` and ``decode_datagram`` check everything that can be checked without knowing the stream, then read. They raise
  RemoteProtocolError, whose ``rule`` names the broken rule.
- ``check`` compares the values with the stream's term length and first term.

Frames are immutable. If a frame was canonical (no options after a status message, no bytes after the frame), ``encode`` of the
decoded frame returns the same bytes. Lengths and offsets are in bytes. Text is UTF-8. Invalid UTF-8 is replaced in the text of an
ERR frame, which is for people, and preserved in the name of a RES frame, which is forwarded to other drivers.
"""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Self

from mainstem._core import layout
from mainstem._internal.frozen import frozen, replaced
from mainstem.aeron.logbuffer import align_frame
from mainstem.aeron.protocol.layouts import HEADER_LENGTH, LAYOUTS, FrameType, Header
from mainstem.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem.aeron.protocol.layouts import Bytes

VERSION = 0
UNALIGNED = layout.FRAME_ALIGNMENT - 1
MAX_NAME_LENGTH = 255  # of a host name, in bytes
NO_GROUP_TAG = -1

_GROUP_TAG = Struct("<q")
_ENTRY = Struct("<bBHi")  # address type, flags, port, age in milliseconds
_NAME_LENGTH = Struct("<h")
_ENTRY_ALIGNMENT = 8
_ADDRESS_LENGTHS = {1: 4, 2: 16}  # of IPv4 and IPv6


def before_beginning(term_id: int, initial_term_id: int) -> bool:
    """Return whether a term is before the stream's first term. Term ids wrap at 32 bits."""
    return bool((term_id - initial_term_id) & 0x80000000)


def protocol_error(rule: str, message: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{rule}: {message}", rule=rule)


def check_header(frame: Bytes) -> Header:
    """Return a frame's header. Raises RemoteProtocolError if it breaks a rule that applies to every frame."""
    if len(frame) < HEADER_LENGTH:
        raise protocol_error("datagram length", f"{len(frame)} bytes are fewer than a frame header's {HEADER_LENGTH}")
    header = Header.read(frame)
    if header.frame_length < 0:
        raise protocol_error("frame length", f"{header.frame_length} is negative")
    if header.version != VERSION:
        raise protocol_error("version", f"{header.version} is not {VERSION}")
    return header


def check_range(term_offset: int, length: int, term_length: int, rule: str) -> None:
    """Raise RemoteProtocolError unless the offset is aligned and the ``length`` bytes from there are within a term."""
    if not 0 <= term_offset < term_length:
        raise protocol_error(rule, f"term offset {term_offset} is not in a term of {term_length}")
    if term_offset & UNALIGNED:
        raise protocol_error(rule, f"term offset {term_offset} is not a multiple of {layout.FRAME_ALIGNMENT}")
    if length < 0 or term_offset + length > term_length:
        raise protocol_error(rule, f"{length} bytes from term offset {term_offset} leave a term of {term_length}")


def check_term(term_id: int, initial_term_id: int | None, rule: str) -> None:
    """Raise RemoteProtocolError if a term is before the stream's first term. Pass None if the first term is unknown."""
    if initial_term_id is not None and before_beginning(term_id, initial_term_id):
        raise protocol_error(rule, f"term {term_id} is before the initial term {initial_term_id}")


@frozen
class Frame:
    type: ClassVar[FrameType]
    flags: int = 0

    @classmethod
    def read(cls, frame: Bytes) -> Self:
        return cls(flags=frame[layout.FRAME_FLAGS_OFFSET], **LAYOUTS[cls.type].read(frame))

    def pack(self, frame_length: int, *, flags: int | None = None, **values: int) -> bytes:
        """Return the header and fixed part as bytes. ``values`` are the fields that are not attributes.

        Raises LocalProtocolError if a value does not fit its field.
        """
        name, _, fields, form = LAYOUTS[self.type]
        try:
            header = Header(frame_length, VERSION, self.flags if flags is None else flags, self.type).encode()
            body = form.pack(*(values[each] if each in values else getattr(self, each) for each in fields))
        except struct.error as error:
            raise LocalProtocolError(f"{name}: {error}", rule="field range") from None
        return header + body[HEADER_LENGTH:]


@frozen
class StreamFrame(Frame):
    """A frame with a position in a stream (docs/protocols/aeron.md, 13.1)."""

    session_id: int
    stream_id: int
    term_id: int
    term_offset: int
    flags: int = layout.FLAG_UNFRAGMENTED
    reserved_value: int = 0

    @property
    def aligned_length(self) -> int:
        """How many bytes the frame advances the stream."""
        raise NotImplementedError

    def encode(self) -> bytes:
        raise NotImplementedError

    def check(self, term_length: int) -> None:
        """Raise RemoteProtocolError unless the frame is within a term of this length."""
        check_range(self.term_offset, self.aligned_length, term_length, "term range")


@frozen
class Data(StreamFrame):
    type: ClassVar[FrameType] = FrameType.DATA
    payload: bytes = b""

    @property
    def frame_length(self) -> int:
        return layout.DATA_HEADER_LENGTH + len(self.payload)

    @property
    def aligned_length(self) -> int:
        return align_frame(self.frame_length)

    def encode(self) -> bytes:
        """Return the bytes on the wire, padded with zeros to a multiple of 32."""
        return (self.pack(self.frame_length) + self.payload).ljust(self.aligned_length, b"\0")


@frozen
class Pad(StreamFrame):
    """A range of the term without messages. Only its header is sent."""

    type: ClassVar[FrameType] = FrameType.PAD
    frame_length: int

    @property
    def aligned_length(self) -> int:
        return align_frame(self.frame_length)

    def encode(self) -> bytes:
        """Return the 32 bytes of the header. Raises LocalProtocolError if the frame's length is smaller."""
        if self.frame_length < layout.DATA_HEADER_LENGTH:
            raise LocalProtocolError(f"padding of {self.frame_length} bytes is below 32", rule="frame length")
        return self.pack(self.frame_length)


@frozen
class Heartbeat(StreamFrame):
    """The position of a sender that has no data: a frame of length 0, alone in its datagram."""

    type: ClassVar[FrameType] = FrameType.DATA

    @property
    def is_end_of_stream(self) -> bool:
        return bool(self.flags & layout.FLAG_EOS)

    @property
    def is_revoked(self) -> bool:
        """Whether the publication was revoked, which means that the rest of the stream will not arrive."""
        return bool(self.flags & layout.FLAG_REVOKED)

    @property
    def aligned_length(self) -> int:
        return 0

    def encode(self) -> bytes:
        return self.pack(0)


@frozen
class ControlFrame(Frame):
    """A frame that is the only one in its datagram."""

    @classmethod
    def decode(cls, datagram: Bytes) -> Self:
        """Decode a datagram. Raises RemoteProtocolError, whose ``rule`` names the broken rule."""
        header, (name, length, _, _) = check_header(datagram), LAYOUTS[cls.type]
        if header.type != cls.type:
            raise protocol_error("frame type", f"{header.type:#x} is not {name}")
        if len(datagram) < length:
            raise protocol_error("datagram length", f"{len(datagram)} bytes are fewer than {name}'s {length}")
        if header.frame_length > len(datagram):
            raise protocol_error("frame length", f"{header.frame_length} exceeds the datagram of {len(datagram)}")
        cls.check_bytes(datagram, header)
        return cls.read(datagram)

    @classmethod
    def check_bytes(cls, datagram: Bytes, header: Header) -> None:
        """Check rules that the layout does not express. Raises RemoteProtocolError."""

    def encode(self) -> bytes:
        return self.pack(LAYOUTS[self.type].length)


@frozen
class Nak(ControlFrame):
    """A receiver's request for ``length`` bytes of the term from ``term_offset``, including headers and alignment (13.3)."""

    type: ClassVar[FrameType] = FrameType.NAK
    session_id: int
    stream_id: int
    term_id: int
    term_offset: int
    length: int

    def check(self, term_length: int, initial_term_id: int | None = None) -> None:
        """Raise RemoteProtocolError unless the range is within a term of the stream."""
        check_range(self.term_offset, self.length, term_length, "NAK range")
        check_term(self.term_id, initial_term_id, "NAK range")


@frozen
class StatusMessage(ControlFrame):
    """A receiver's consumption position and the window after it (13.4).

    With SM_FLAG_SEND_SETUP it requests a SETUP, and the term and window are zero. ``group_tag`` can be None. Options after it are
    skipped.
    """

    type: ClassVar[FrameType] = FrameType.STATUS_MESSAGE
    session_id: int
    stream_id: int
    consumption_term_id: int = 0
    consumption_term_offset: int = 0
    receiver_window: int = 0
    receiver_id: int
    group_tag: int | None = None

    @property
    def requests_setup(self) -> bool:
        return bool(self.flags & layout.SM_FLAG_SEND_SETUP)

    @property
    def is_end_of_stream(self) -> bool:
        return bool(self.flags & layout.SM_FLAG_EOS)

    @staticmethod
    def options_length(frame: Bytes) -> int:
        """Return how many bytes follow the fixed part of a status message: 8 for a group tag."""
        return min(Header.read(frame).frame_length, len(frame)) - layout.SM_LENGTH

    @classmethod
    def read(cls, frame: Bytes) -> Self:
        tag = None
        if cls.options_length(frame) >= _GROUP_TAG.size:
            (tag,) = _GROUP_TAG.unpack_from(frame, layout.SM_GROUP_TAG_OFFSET)
        return cls(
            flags=frame[layout.FRAME_FLAGS_OFFSET], group_tag=tag, **LAYOUTS[FrameType.STATUS_MESSAGE].read(frame)
        )

    def encode(self) -> bytes:
        """Return the 36 bytes, or 44 with a group tag."""
        if self.group_tag is None:
            return self.pack(layout.SM_LENGTH)
        try:
            tag = _GROUP_TAG.pack(self.group_tag)
        except struct.error as error:
            raise LocalProtocolError(f"SM: {error}", rule="field range") from None
        return self.pack(layout.SM_LENGTH_WITH_GROUP_TAG) + tag

    @classmethod
    def check_bytes(cls, datagram: Bytes, header: Header) -> None:  # noqa: ARG003
        """Check the rules that apply regardless of the term length. Raises RemoteProtocolError."""
        values = LAYOUTS[FrameType.STATUS_MESSAGE].read(datagram)
        offset, window = values["consumption_term_offset"], values["receiver_window"]
        if offset < 0 or offset & UNALIGNED:
            raise protocol_error("SM position", f"term offset {offset} is negative or not a multiple of 32")
        if window < 0:
            raise protocol_error("SM window", f"{window} is negative")

    def check(self, term_length: int, initial_term_id: int | None = None) -> None:
        """Raise RemoteProtocolError if position or window is impossible in the stream. A SETUP request has neither and passes."""
        if self.requests_setup:
            return
        check_range(self.consumption_term_offset, 0, term_length, "SM position")
        if not 0 <= self.receiver_window <= term_length // 2:
            raise protocol_error("SM window", f"{self.receiver_window} is not in 0 to {term_length // 2}")
        check_term(self.consumption_term_id, initial_term_id, "SM position")


@frozen
class ErrorFrame(ControlFrame):
    """A receiver's refusal of the stream (13.5), with a code (13 for a rejected image) and a text. ``group_tag`` can be None."""

    type: ClassVar[FrameType] = FrameType.ERROR
    session_id: int
    stream_id: int
    receiver_id: int
    error_code: int
    text: str = ""
    group_tag: int | None = None

    @staticmethod
    def cut(text: str) -> str:
        """Return the longest prefix of a text that fits in the frame as UTF-8."""
        return text.encode("utf-8", "surrogateescape")[: layout.ERR_MAX_TEXT_LENGTH].decode(errors="ignore")

    @classmethod
    def check_bytes(cls, datagram: Bytes, header: Header) -> None:  # noqa: ARG003
        """Raise RemoteProtocolError unless the text is inside the datagram."""
        length = LAYOUTS[cls.type].read(datagram)["text_length"]
        if not 0 <= length <= layout.ERR_MAX_TEXT_LENGTH or layout.ERR_TEXT_OFFSET + length > len(datagram):
            limit = layout.ERR_MAX_TEXT_LENGTH
            raise protocol_error("ERR text", f"length {length} is not in 0 to {limit}, or leaves the datagram")

    @classmethod
    def read(cls, frame: Bytes) -> Self:
        """Read an ERR frame from bytes that have been checked. A text that extends beyond them is truncated."""
        values = LAYOUTS[cls.type].read(frame)
        flags, tag = frame[layout.FRAME_FLAGS_OFFSET], values.pop("group_tag")
        end = layout.ERR_TEXT_OFFSET + max(0, values.pop("text_length"))
        text = bytes(frame[layout.ERR_TEXT_OFFSET : end]).decode("utf-8", "replace")
        return cls(flags=flags, group_tag=tag if flags & layout.ERR_FLAG_GROUP_TAG else None, text=text, **values)

    def encode(self) -> bytes:
        """Return the 40 bytes and the text. Raises LocalProtocolError if the text has more than 1023 bytes."""
        data = self.text.encode()
        if len(data) > layout.ERR_MAX_TEXT_LENGTH:
            limit = layout.ERR_MAX_TEXT_LENGTH
            raise LocalProtocolError(f"ERR: text of {len(data)} bytes exceeds {limit}", rule="ERR text")
        announced = 0 if self.group_tag is None else layout.ERR_FLAG_GROUP_TAG
        fixed = self.pack(
            layout.ERR_LENGTH + len(data),
            flags=self.flags & ~layout.ERR_FLAG_GROUP_TAG | announced,
            group_tag=NO_GROUP_TAG if self.group_tag is None else self.group_tag,
            text_length=len(data),
        )
        return fixed + data


@frozen
class Setup(ControlFrame):
    """A sender's description of its stream and its current position in it (13.2). ``ttl`` is 0 for unicast."""

    type: ClassVar[FrameType] = FrameType.SETUP
    session_id: int
    stream_id: int
    initial_term_id: int
    active_term_id: int
    term_offset: int
    term_length: int
    mtu: int
    ttl: int = 0

    @property
    def requests_response(self) -> bool:
        return bool(self.flags & layout.SETUP_FLAG_SEND_RESPONSE)

    @property
    def is_group(self) -> bool:
        """Whether the sender may have several receivers."""
        return bool(self.flags & layout.SETUP_FLAG_GROUP)

    def check(self) -> None:
        """Raise RemoteProtocolError if no image can be created from these values."""
        length = self.term_length
        if not layout.TERM_MIN_LENGTH <= length <= layout.TERM_MAX_LENGTH or length & (length - 1):
            raise protocol_error("SETUP term length", f"{length} is not a power of two from 64 KiB to 1 GiB")
        check_range(self.term_offset, 0, length, "SETUP position")
        if not layout.DATA_HEADER_LENGTH <= self.mtu <= layout.MTU_MAX_LENGTH or self.mtu & UNALIGNED:
            raise protocol_error("SETUP mtu", f"{self.mtu} is not a multiple of 32 from 32 to {layout.MTU_MAX_LENGTH}")
        check_term(self.active_term_id, self.initial_term_id, "SETUP position")


@frozen
class ResponseSetup(ControlFrame):
    """A receiver's announcement of the response stream's session (13.7). The session and stream are those of the request."""

    type: ClassVar[FrameType] = FrameType.RESPONSE_SETUP
    session_id: int
    stream_id: int
    response_session_id: int


@frozen
class Rttm(ControlFrame):
    """A round-trip measurement, in either direction (13.6).

    ``echo_timestamp`` is from the requester's clock, and ``reception_delta`` is the responder's delay, in nanoseconds.
    """

    type: ClassVar[FrameType] = FrameType.RTTM
    session_id: int
    stream_id: int
    echo_timestamp: int
    reception_delta: int = 0
    receiver_id: int

    @property
    def is_request(self) -> bool:
        return bool(self.flags & layout.RTTM_FLAG_REPLY)

    def reply(self, reception_delta: int = 0) -> Rttm:
        return replaced(self, flags=0, reception_delta=reception_delta)


@frozen
class ResolutionEntry:
    """A driver's name, address, port and age in milliseconds. ``is_self`` marks the sender's own entry."""

    name: str
    address: IPv4Address | IPv6Address
    port: int
    age_ms: int = 0
    is_self: bool = False

    def encode(self) -> bytes:
        """Return the entry's bytes, padded to a multiple of 8. Raises LocalProtocolError if the name is too long."""
        name = self.name.encode("utf-8", "surrogateescape")
        if len(name) > MAX_NAME_LENGTH:
            raise LocalProtocolError(f"RES: name of {len(name)} bytes exceeds {MAX_NAME_LENGTH}", rule="RES name")
        kind = 1 if self.address.version == 4 else 2
        try:
            head = _ENTRY.pack(kind, layout.RES_FLAG_SELF if self.is_self else 0, self.port, self.age_ms)
        except struct.error as error:
            raise LocalProtocolError(f"RES: {error}", rule="field range") from None
        data = head + self.address.packed + _NAME_LENGTH.pack(len(name)) + name
        return data + bytes(-len(data) % _ENTRY_ALIGNMENT)

    @classmethod
    def decode(cls, datagram: Bytes, at: int, end: int) -> tuple[ResolutionEntry, int]:
        """Return the entry at an offset and the offset of the next one. Raises RemoteProtocolError if it extends beyond ``end``."""
        if at + _ENTRY.size > end:
            raise protocol_error("RES entry", f"{end - at} bytes are left for an entry")
        kind, flags, port, age_ms = _ENTRY.unpack_from(datagram, at)
        if kind not in _ADDRESS_LENGTHS:
            raise protocol_error("RES address type", f"{kind} is neither 1 (IPv4) nor 2 (IPv6)")
        address_at = at + _ENTRY.size
        name_length_at = address_at + _ADDRESS_LENGTHS[kind]
        name_at = name_length_at + _NAME_LENGTH.size
        if name_at > end:
            raise protocol_error("RES entry", f"{end - at} bytes are left for an entry")
        (length,) = _NAME_LENGTH.unpack_from(datagram, name_length_at)
        if not 0 <= length <= MAX_NAME_LENGTH or name_at + length > end:
            raise protocol_error("RES name", f"length {length} is not in 0 to {MAX_NAME_LENGTH}, or leaves the frame")
        name = bytes(datagram[name_at : name_at + length]).decode("utf-8", "surrogateescape")
        address = ip_address(bytes(datagram[address_at:name_length_at]))
        is_self = bool(flags & layout.RES_FLAG_SELF)
        size = name_at + length - at
        entry = cls(name=name, address=address, port=port, age_ms=age_ms, is_self=is_self)
        return entry, at + size + -size % _ENTRY_ALIGNMENT


@frozen
class Resolution(ControlFrame):
    """Names and addresses of drivers (13.8). These frames go to the resolver's own socket."""

    type: ClassVar[FrameType] = FrameType.RESOLUTION
    entries: tuple[ResolutionEntry, ...]

    @classmethod
    def read(cls, frame: Bytes) -> Self:
        header = Header.read(frame)
        entries, at = [], layout.RES_HEADER_LENGTH
        while at < header.frame_length:
            entry, at = ResolutionEntry.decode(frame, at, header.frame_length)
            entries.append(entry)
        return cls(entries=tuple(entries), flags=header.flags)

    def encode(self) -> bytes:
        body = b"".join(entry.encode() for entry in self.entries)
        return self.pack(layout.RES_HEADER_LENGTH + len(body)) + body


CONTROL_FRAMES: Mapping[int, type[ControlFrame]] = {
    each.type: each for each in (Nak, StatusMessage, ErrorFrame, Setup, Rttm, Resolution, ResponseSetup)
}


def decode_datagram(datagram: Bytes) -> list[Frame]:
    """Return the frames of a datagram, in order.

    Raises RemoteProtocolError, whose ``rule`` names the broken rule. Each frame's ``check`` covers the rules that depend on the
    stream.
    """
    header = check_header(datagram)
    if header.type in (FrameType.DATA, FrameType.PAD):
        return list(_decode_stream_frames(datagram))
    control = CONTROL_FRAMES.get(header.type)
    if control is None:
        raise protocol_error("frame type", f"{header.type:#x} is not known")
    return [control.decode(datagram)]


def _decode_stream_frames(datagram: Bytes) -> list[StreamFrame]:
    """Return the frames of a datagram that begins with DATA or PAD. They must be contiguous and belong to one stream."""
    if len(datagram) < layout.DATA_HEADER_LENGTH or len(datagram) & UNALIGNED:
        raise protocol_error("datagram length", f"{len(datagram)} bytes are not a multiple of 32 and at least 32")
    frames: list[StreamFrame] = []
    at = 0
    while at < len(datagram):
        frame = _decode_stream_frame(memoryview(datagram)[at:], is_first=at == 0)
        if frames:
            _check_follows(frames[-1], frame)
        frames.append(frame)
        at += layout.DATA_HEADER_LENGTH if isinstance(frame, Heartbeat) else frame.aligned_length
        if isinstance(frame, Heartbeat) and at < len(datagram):
            raise protocol_error("last frame", f"{len(datagram) - at} bytes follow a heartbeat")
    return frames


def _decode_stream_frame(rest: memoryview, *, is_first: bool) -> StreamFrame:
    """Return the first frame in the rest of a datagram. The rest's length is a multiple of 32."""
    header = check_header(rest)
    if header.type not in (FrameType.DATA, FrameType.PAD):
        raise protocol_error("frame type", f"{header.type:#x} is among DATA and PAD")
    values, length = LAYOUTS[FrameType.DATA].read(rest), header.frame_length
    offset = values["term_offset"]
    if offset < 0 or offset & UNALIGNED:
        raise protocol_error("term offset", f"{offset} is negative or not a multiple of 32")
    if length == 0 and is_first:
        return Heartbeat(flags=header.flags, **values)
    if length == 0 and header.type == FrameType.DATA:
        raise protocol_error("heartbeat", "a frame length of 0 follows other frames")
    if length < layout.DATA_HEADER_LENGTH:
        raise protocol_error("frame length", f"{length} is below the header's 32")
    if header.type == FrameType.PAD:
        return Pad(flags=header.flags, frame_length=length, **values)
    if align_frame(length) > len(rest):
        raise protocol_error("frame length", f"{length} exceeds the {len(rest)} bytes that are left")
    return Data(flags=header.flags, payload=bytes(rest[layout.DATA_HEADER_LENGTH : length]), **values)


def _check_follows(before: StreamFrame, frame: StreamFrame) -> None:
    expected = before.term_offset + before.aligned_length
    if frame.term_offset != expected:
        raise protocol_error("contiguous frames", f"term offset {frame.term_offset} follows where {expected} should")
    for name in ("session_id", "stream_id", "term_id"):
        if getattr(frame, name) != getattr(before, name):
            raise protocol_error("one stream", f"{name} changes from {getattr(before, name)} to {getattr(frame, name)}")
