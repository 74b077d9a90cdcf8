"""The layouts of Aeron's frames: types, names, lengths and fields (docs/protocols/aeron.md, 13).

The numbers are those in ``_core/layout.py``, which the compiled paths use.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from mainstem._core import layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    Bytes = bytes | bytearray | memoryview

HEADER_LENGTH = layout.FRAME_TERM_OFFSET_OFFSET

_HEADER = Struct("<iBBH")


class FrameType(IntEnum):
    """The frame types. Those of ATS and the extension are reserved, and such frames are refused."""

    PAD = layout.TYPE_PAD
    DATA = layout.TYPE_DATA
    NAK = layout.TYPE_NAK
    STATUS_MESSAGE = layout.TYPE_SM
    ERROR = layout.TYPE_ERR
    SETUP = layout.TYPE_SETUP
    RTTM = layout.TYPE_RTTM
    RESOLUTION = layout.TYPE_RES
    ATS_DATA = layout.TYPE_ATS_DATA
    ATS_SETUP = layout.TYPE_ATS_SETUP
    ATS_STATUS_MESSAGE = layout.TYPE_ATS_SM
    RESPONSE_SETUP = layout.TYPE_RSP_SETUP
    EXTENSION = layout.TYPE_EXT


class FrameLayout(NamedTuple):
    """The fixed part of a frame type: name, minimum length in bytes, and fields after the header."""

    name: str
    length: int
    fields: tuple[str, ...]
    struct: Struct

    def read(self, frame: Bytes) -> dict[str, int]:
        """Return the fields of a frame of at least ``length`` bytes."""
        return dict(zip(self.fields, self.struct.unpack_from(frame), strict=True))


def _layout(name: str, length: int, /, **fields: tuple[int, str]) -> FrameLayout:
    """Create a layout from offsets and formats. Gaps are skipped."""
    form, end = "<", 0
    for offset, code in fields.values():
        form += f"{offset - end}x{code}"
        end = offset + Struct(f"<{code}").size
    assert end <= length, f"the fields of {name} take {end} bytes of {length}"
    return FrameLayout(name, length, tuple(fields), Struct(form))


_I32, _I64 = "i", "q"
_DATA = _layout(
    "DATA",
    layout.DATA_HEADER_LENGTH,
    term_offset=(layout.FRAME_TERM_OFFSET_OFFSET, _I32),
    session_id=(layout.FRAME_SESSION_ID_OFFSET, _I32),
    stream_id=(layout.FRAME_STREAM_ID_OFFSET, _I32),
    term_id=(layout.FRAME_TERM_ID_OFFSET, _I32),
    reserved_value=(layout.FRAME_RESERVED_VALUE_OFFSET, _I64),
)
_SM = _layout(
    "SM",
    layout.SM_LENGTH,
    session_id=(layout.SM_SESSION_ID_OFFSET, _I32),
    stream_id=(layout.SM_STREAM_ID_OFFSET, _I32),
    consumption_term_id=(layout.SM_CONSUMPTION_TERM_ID_OFFSET, _I32),
    consumption_term_offset=(layout.SM_CONSUMPTION_TERM_OFFSET_OFFSET, _I32),
    receiver_window=(layout.SM_RECEIVER_WINDOW_OFFSET, _I32),
    receiver_id=(layout.SM_RECEIVER_ID_OFFSET, _I64),
)
_SETUP = _layout(
    "SETUP",
    layout.SETUP_LENGTH,
    term_offset=(layout.SETUP_TERM_OFFSET_OFFSET, _I32),
    session_id=(layout.SETUP_SESSION_ID_OFFSET, _I32),
    stream_id=(layout.SETUP_STREAM_ID_OFFSET, _I32),
    initial_term_id=(layout.SETUP_INITIAL_TERM_ID_OFFSET, _I32),
    active_term_id=(layout.SETUP_ACTIVE_TERM_ID_OFFSET, _I32),
    term_length=(layout.SETUP_TERM_LENGTH_OFFSET, _I32),
    mtu=(layout.SETUP_MTU_OFFSET, _I32),
    ttl=(layout.SETUP_TTL_OFFSET, _I32),
)

LAYOUTS: Mapping[int, FrameLayout] = {
    FrameType.PAD: _DATA._replace(name="PAD"),
    FrameType.DATA: _DATA,
    FrameType.NAK: _layout(
        "NAK",
        layout.NAK_LENGTH,
        session_id=(layout.NAK_SESSION_ID_OFFSET, _I32),
        stream_id=(layout.NAK_STREAM_ID_OFFSET, _I32),
        term_id=(layout.NAK_TERM_ID_OFFSET, _I32),
        term_offset=(layout.NAK_TERM_OFFSET_OFFSET, _I32),
        length=(layout.NAK_LENGTH_OFFSET, _I32),
    ),
    FrameType.STATUS_MESSAGE: _SM,
    FrameType.ERROR: _layout(
        "ERR",
        layout.ERR_LENGTH,
        session_id=(layout.ERR_SESSION_ID_OFFSET, _I32),
        stream_id=(layout.ERR_STREAM_ID_OFFSET, _I32),
        receiver_id=(layout.ERR_RECEIVER_ID_OFFSET, _I64),
        group_tag=(layout.ERR_GROUP_TAG_OFFSET, _I64),
        error_code=(layout.ERR_CODE_OFFSET, _I32),
        text_length=(layout.ERR_TEXT_LENGTH_OFFSET, _I32),
    ),
    FrameType.SETUP: _SETUP,
    FrameType.RTTM: _layout(
        "RTTM",
        layout.RTTM_LENGTH,
        session_id=(layout.RTTM_SESSION_ID_OFFSET, _I32),
        stream_id=(layout.RTTM_STREAM_ID_OFFSET, _I32),
        echo_timestamp=(layout.RTTM_ECHO_TIMESTAMP_OFFSET, _I64),
        reception_delta=(layout.RTTM_RECEPTION_DELTA_OFFSET, _I64),
        receiver_id=(layout.RTTM_RECEIVER_ID_OFFSET, _I64),
    ),
    FrameType.RESOLUTION: _layout("RES", layout.RES_HEADER_LENGTH),
    FrameType.ATS_DATA: _DATA._replace(name="ATS_DATA"),
    FrameType.ATS_SETUP: _SETUP._replace(name="ATS_SETUP"),
    FrameType.ATS_STATUS_MESSAGE: _SM._replace(name="ATS_SM"),
    FrameType.RESPONSE_SETUP: _layout(
        "RSP_SETUP",
        layout.RSP_SETUP_LENGTH,
        session_id=(layout.RSP_SETUP_SESSION_ID_OFFSET, _I32),
        stream_id=(layout.RSP_SETUP_STREAM_ID_OFFSET, _I32),
        response_session_id=(layout.RSP_SETUP_RESPONSE_SESSION_ID_OFFSET, _I32),
    ),
}


class Header(NamedTuple):
    """The first 8 bytes of every frame."""

    frame_length: int
    version: int
    flags: int
    type: int

    @classmethod
    def read(cls, frame: Bytes) -> Header:
        """Return the header of a frame of 8 bytes or more, without checking it."""
        return cls(*_HEADER.unpack_from(frame))

    def encode(self) -> bytes:
        """Return the 8 bytes. Raises struct.error if a value does not fit."""
        return _HEADER.pack(*self)
