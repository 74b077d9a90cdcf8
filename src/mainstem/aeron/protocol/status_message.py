"""SM: a receiver says how far it is and how much it takes (13.4)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from mainstem._core import layout
from mainstem.aeron.protocol.header import FrameType, Header, check_range, pack, read_control_header, violation

FLAG_SEND_SETUP = layout.SM_FLAG_SEND_SETUP
FLAG_EOS = layout.SM_FLAG_EOS

_FIELDS = struct.Struct("<iiiiiq")
_GROUP_TAG = struct.Struct("<q")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusMessage:
    """Everything before the consumption position was consumed; the window counts from there.

    With ``FLAG_SEND_SETUP`` it asks for a SETUP, and term and window are zero.
    """

    session_id: int
    stream_id: int
    consumption_term_id: int
    consumption_term_offset: int
    receiver_window: int
    receiver_id: int
    group_tag: int | None = None
    flags: int = 0

    @property
    def asks_for_setup(self) -> bool:
        """Whether the sender is to send a SETUP."""
        return bool(self.flags & FLAG_SEND_SETUP)

    @property
    def is_end_of_stream(self) -> bool:
        """Whether the receiver leaves."""
        return bool(self.flags & FLAG_EOS)

    def encode(self) -> bytes:
        """The 36 bytes, or 44 with a group tag."""
        tag = b"" if self.group_tag is None else pack(_GROUP_TAG, "SM", self.group_tag)
        values = (
            self.session_id,
            self.stream_id,
            self.consumption_term_id,
            self.consumption_term_offset,
            self.receiver_window,
            self.receiver_id,
        )
        header = Header(layout.SM_LENGTH + len(tag), 0, self.flags, FrameType.STATUS_MESSAGE)
        return header.encode() + pack(_FIELDS, "SM", *values) + tag

    @classmethod
    def decode(cls, datagram: bytes | memoryview) -> StatusMessage:
        """Reads a datagram. Raises RemoteProtocolError naming the rule that is broken.

        Options of another length than a group tag's are passed over.
        """
        header = read_control_header(datagram, FrameType.STATUS_MESSAGE, layout.SM_LENGTH)
        tag = None
        if header.frame_length == layout.SM_LENGTH_WITH_GROUP_TAG:
            (tag,) = _GROUP_TAG.unpack_from(datagram, layout.SM_GROUP_TAG_OFFSET)
        session_id, stream_id, term_id, term_offset, window, receiver_id = _FIELDS.unpack_from(datagram, 8)
        return cls(
            session_id=session_id,
            stream_id=stream_id,
            consumption_term_id=term_id,
            consumption_term_offset=term_offset,
            receiver_window=window,
            receiver_id=receiver_id,
            group_tag=tag,
            flags=header.flags,
        )

    def check(self, term_length: int) -> None:
        """Raises RemoteProtocolError where offset or window make no sense for a term of that length."""
        check_range(self.consumption_term_offset, 0, term_length, "SM position")
        if not 0 <= self.receiver_window <= term_length // 2:
            raise violation("SM window", f"{self.receiver_window} is not in 0 to {term_length // 2}")
