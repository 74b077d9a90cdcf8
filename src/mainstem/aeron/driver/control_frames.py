"""The control frames that the sender and the receiver decide about, read and written as plain structures."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from mainstem._core import layout

_HEADER = Struct("<iBBH")
_STATUS = Struct("<8xiiiiiq")
_TAG = Struct("<q")
_SETUP = Struct("<8xiiiiiiii")
_ERROR = Struct("<8xiiqqii")
_RTTM = Struct("<8xiiqqq")
_RESPONSE_SETUP = Struct("<8xiii")
# The fields alone, for writing.
_STATUS_BODY = Struct("<iiiiiq")
_ERROR_BODY = Struct("<iiqqii")
_RTTM_BODY = Struct("<iiqqq")
_RESPONSE_SETUP_BODY = Struct("<iii")


class StatusMessage(NamedTuple):
    """What a receiver has consumed and may be sent. ``group_tag`` is None where the frame has none."""

    session_id: int
    stream_id: int
    term_id: int
    term_offset: int
    window: int
    receiver_id: int
    group_tag: int | None
    flags: int
    option_length: int


class Setup(NamedTuple):
    """Where a stream is now."""

    term_offset: int
    session_id: int
    stream_id: int
    initial_term_id: int
    active_term_id: int
    term_length: int
    mtu: int
    ttl: int
    flags: int


class ErrorFrame(NamedTuple):
    """Why a receiver does not want a stream."""

    session_id: int
    stream_id: int
    receiver_id: int
    group_tag: int | None
    code: int
    text: str


class RoundTrip(NamedTuple):
    """A measurement of the round trip, or its answer."""

    session_id: int
    stream_id: int
    echo_timestamp: int
    reception_delta: int
    receiver_id: int
    is_request: bool


class ResponseSetupFrame(NamedTuple):
    """Which session answers a request stream."""

    session_id: int
    stream_id: int
    response_session_id: int


def frame_type(frame: bytes) -> int:
    """The type of a frame of eight bytes or more."""
    return int(_HEADER.unpack_from(frame)[3])


def read_status(frame: bytes) -> StatusMessage:
    """A status message of 36 bytes or more."""
    length, _, flags, _ = _HEADER.unpack_from(frame)
    option = min(length, len(frame)) - layout.SM_LENGTH
    tag = _TAG.unpack_from(frame, layout.SM_GROUP_TAG_OFFSET)[0] if option >= _TAG.size else None
    return StatusMessage._make((*_STATUS.unpack_from(frame), tag, flags, option))


def read_setup(frame: bytes) -> Setup:
    """A SETUP frame of 40 bytes."""
    return Setup._make((*_SETUP.unpack_from(frame), frame[layout.FRAME_FLAGS_OFFSET]))


def read_error(frame: bytes) -> ErrorFrame:
    """An ERR frame whose text length was checked."""
    session_id, stream_id, receiver_id, tag, code, length = _ERROR.unpack_from(frame)
    has_tag = frame[layout.FRAME_FLAGS_OFFSET] & layout.ERR_FLAG_GROUP_TAG
    text = frame[layout.ERR_TEXT_OFFSET : layout.ERR_TEXT_OFFSET + length].decode("utf-8", "replace")
    return ErrorFrame(session_id, stream_id, receiver_id, tag if has_tag else None, code, text)


def read_round_trip(frame: bytes) -> RoundTrip:
    """An RTTM frame of 40 bytes."""
    is_request = bool(frame[layout.FRAME_FLAGS_OFFSET] & layout.RTTM_FLAG_REPLY)
    return RoundTrip._make((*_RTTM.unpack_from(frame), is_request))


def read_response_setup(frame: bytes) -> ResponseSetupFrame:
    """An RSP_SETUP frame of 20 bytes."""
    return ResponseSetupFrame(*_RESPONSE_SETUP.unpack_from(frame))


def eliciting_status(session_id: int, stream_id: int, *, receiver_id: int, group_tag: int | None) -> bytes:
    """A status message that asks for a SETUP: everything else in it is zero (behaviour, 13.4)."""
    length = layout.SM_LENGTH if group_tag is None else layout.SM_LENGTH_WITH_GROUP_TAG
    body = _STATUS_BODY.pack(session_id, stream_id, 0, 0, 0, receiver_id)
    tail = b"" if group_tag is None else _TAG.pack(group_tag)
    return _HEADER.pack(length, 0, layout.SM_FLAG_SEND_SETUP, layout.TYPE_SM) + body + tail


def error_frame(
    session_id: int, stream_id: int, *, receiver_id: int, group_tag: int | None, code: int, text: str
) -> bytes:
    """An ERR frame; the text is cut at 1023 bytes."""
    data = text.encode()[: layout.ERR_MAX_TEXT_LENGTH]
    flags = 0 if group_tag is None else layout.ERR_FLAG_GROUP_TAG
    tag = -1 if group_tag is None else group_tag
    body = _ERROR_BODY.pack(session_id, stream_id, receiver_id, tag, code, len(data))
    return _HEADER.pack(layout.ERR_LENGTH + len(data), 0, flags, layout.TYPE_ERR) + body + data


def round_trip_frame(measure: RoundTrip) -> bytes:
    """An RTTM frame."""
    flags = layout.RTTM_FLAG_REPLY if measure.is_request else 0
    return _HEADER.pack(layout.RTTM_LENGTH, 0, flags, layout.TYPE_RTTM) + _RTTM_BODY.pack(*measure[:5])


def response_setup_frame(session_id: int, stream_id: int, response_session_id: int) -> bytes:
    """An RSP_SETUP frame."""
    header = _HEADER.pack(layout.RSP_SETUP_LENGTH, 0, 0, layout.TYPE_RSP_SETUP)
    return header + _RESPONSE_SETUP_BODY.pack(session_id, stream_id, response_session_id)
