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


_LONG = ("reserved_value", "receiver_id", "group_tag", "echo_timestamp", "reception_delta")
_CODES = {"version": "B", "flags": "B", "type": "H"} | dict.fromkeys(_LONG, "q")


def _layout(name: str, length: int, fields: str, *, prefix: str = "") -> FrameLayout:
    """Create a layout from the offsets in ``_core/layout.py``: fields that ``_CODES`` lacks are int32. Gaps are skipped."""
    names, form, end = fields.split(), "<", 0
    for field in names:
        offset = getattr(layout, f"{prefix or name}_{field.upper()}_OFFSET")
        code = _CODES.get(field, "i")
        form += f"{offset - end}x{code}"
        end = offset + Struct(f"<{code}").size
    assert end <= length, f"the fields of {name} take {end} bytes of {length}"
    return FrameLayout(name, length, tuple(names), Struct(form))


_DATA = _layout(
    "DATA", layout.DATA_HEADER_LENGTH, "term_offset session_id stream_id term_id reserved_value", prefix="FRAME"
)
# The whole header of a DATA or PAD frame.
DATA_HEADER = _layout(
    "DATA",
    layout.DATA_HEADER_LENGTH,
    "length version flags type term_offset session_id stream_id term_id reserved_value",
    prefix="FRAME",
).struct
_SM = _layout(
    "SM",
    layout.SM_LENGTH,
    "session_id stream_id consumption_term_id consumption_term_offset receiver_window receiver_id",
)
_SETUP = _layout(
    "SETUP",
    layout.SETUP_LENGTH,
    "term_offset session_id stream_id initial_term_id active_term_id term_length mtu ttl",
)

LAYOUTS: Mapping[int, FrameLayout] = {
    FrameType.PAD: _DATA._replace(name="PAD"),
    FrameType.DATA: _DATA,
    FrameType.NAK: _layout("NAK", layout.NAK_LENGTH, "session_id stream_id term_id term_offset length"),
    FrameType.STATUS_MESSAGE: _SM,
    FrameType.ERROR: _layout(
        "ERR", layout.ERR_LENGTH, "session_id stream_id receiver_id group_tag error_code text_length"
    ),
    FrameType.SETUP: _SETUP,
    FrameType.RTTM: _layout(
        "RTTM", layout.RTTM_LENGTH, "session_id stream_id echo_timestamp reception_delta receiver_id"
    ),
    FrameType.RESOLUTION: _layout("RES", layout.RES_HEADER_LENGTH, ""),
    FrameType.ATS_DATA: _DATA._replace(name="ATS_DATA"),
    FrameType.ATS_SETUP: _SETUP._replace(name="ATS_SETUP"),
    FrameType.ATS_STATUS_MESSAGE: _SM._replace(name="ATS_SM"),
    FrameType.RESPONSE_SETUP: _layout("RSP_SETUP", layout.RSP_SETUP_LENGTH, "session_id stream_id response_session_id"),
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
