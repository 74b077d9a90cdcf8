"""ERR: a receiver refuses the stream and says why (13.5)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from mainstem._core import layout
from mainstem.aeron.protocol.header import FrameType, Header, pack, read_control_header, violation
from mainstem.errors import LocalProtocolError

FLAG_GROUP_TAG = layout.ERR_FLAG_GROUP_TAG
NO_GROUP_TAG = -1
MAX_TEXT_LENGTH = layout.ERR_MAX_TEXT_LENGTH

_FIELDS = struct.Struct("<iiqqii")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFrame:
    """``error_code`` is one of the driver's (13 for a rejected image); ``text`` is at most 1023 bytes."""

    session_id: int
    stream_id: int
    receiver_id: int
    error_code: int
    text: str = ""
    group_tag: int | None = None
    flags: int = 0

    def encode(self) -> bytes:
        """The 40 bytes and the text. Raises LocalProtocolError when the text is too long."""
        data = self.text.encode("utf-8", "surrogateescape")
        if len(data) > MAX_TEXT_LENGTH:
            raise LocalProtocolError(f"ERR: text of {len(data)} bytes exceeds {MAX_TEXT_LENGTH}", rule="ERR text")
        flags = self.flags & ~FLAG_GROUP_TAG | (0 if self.group_tag is None else FLAG_GROUP_TAG)
        tag = NO_GROUP_TAG if self.group_tag is None else self.group_tag
        values = (self.session_id, self.stream_id, self.receiver_id, tag, self.error_code, len(data))
        header = Header(layout.ERR_LENGTH + len(data), 0, flags, FrameType.ERROR)
        return header.encode() + pack(_FIELDS, "ERR", *values) + data

    @classmethod
    def decode(cls, datagram: bytes | memoryview) -> ErrorFrame:
        """Reads a datagram. Raises RemoteProtocolError naming the rule that is broken."""
        header = read_control_header(datagram, FrameType.ERROR, layout.ERR_LENGTH)
        session_id, stream_id, receiver_id, tag, code, length = _FIELDS.unpack_from(datagram, 8)
        if not 0 <= length <= MAX_TEXT_LENGTH or layout.ERR_TEXT_OFFSET + length > len(datagram):
            raise violation("ERR text", f"length {length} is not in 0 to {MAX_TEXT_LENGTH}, or leaves the datagram")
        text = bytes(datagram[layout.ERR_TEXT_OFFSET : layout.ERR_TEXT_OFFSET + length])
        return cls(
            session_id=session_id,
            stream_id=stream_id,
            receiver_id=receiver_id,
            error_code=code,
            text=text.decode("utf-8", "surrogateescape"),
            group_tag=tag if header.flags & FLAG_GROUP_TAG else None,
            flags=header.flags,
        )
