"""What every frame begins with: length, version, flags and type in 8 bytes."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from mainstem._core import layout
from mainstem.errors import LocalProtocolError, RemoteProtocolError

HEADER_LENGTH = 8
VERSION = 0
UNALIGNED = layout.FRAME_ALIGNMENT - 1

_HEADER = struct.Struct("<iBBH")


class FrameType(IntEnum):
    """The type ids. Those of the encrypted transport, and the extension, are reserved: such frames are refused."""

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


class Header(NamedTuple):
    """The first 8 bytes of a frame."""

    frame_length: int
    version: int
    flags: int
    type: int

    def encode(self) -> bytes:
        """The 8 bytes."""
        return _HEADER.pack(*self)


def violation(rule: str, message: str) -> RemoteProtocolError:
    """The error for a frame that breaks ``rule``."""
    return RemoteProtocolError(f"{rule}: {message}", rule=rule)


def read_header(data: bytes | memoryview) -> Header:
    """The header at the start of a datagram. Raises RemoteProtocolError where it breaks the rules of every frame."""
    if len(data) < HEADER_LENGTH:
        raise violation("datagram length", f"{len(data)} bytes are fewer than a frame header's {HEADER_LENGTH}")
    header = Header(*_HEADER.unpack_from(data))
    if header.frame_length < 0:
        raise violation("frame length", f"{header.frame_length} is negative")
    if header.version != VERSION:
        raise violation("version", f"{header.version} is not {VERSION}")
    return header


def read_control_header(data: bytes | memoryview, type_id: FrameType, size: int) -> Header:
    """The header of a control frame of at least ``size`` bytes, which a datagram holds alone."""
    header = read_header(data)
    if header.type != type_id:
        raise violation("frame type", f"{header.type:#x} is not {type_id.name}")
    if len(data) < size:
        raise violation("datagram length", f"{len(data)} bytes are fewer than {type_id.name}'s {size}")
    if header.frame_length > len(data):
        raise violation("frame length", f"{header.frame_length} exceeds the datagram of {len(data)}")
    return header


def pack(layout_of: struct.Struct, name: str, *values: int) -> bytes:
    """Packs the fields of a frame. Raises LocalProtocolError where a value does not fit."""
    try:
        return layout_of.pack(*values)
    except struct.error as error:
        raise LocalProtocolError(f"{name}: {error}", rule="field range") from None


def check_range(term_offset: int, length: int, term_length: int, rule: str) -> None:
    """Whether ``length`` bytes from an aligned offset lie in a term. Raises RemoteProtocolError."""
    if not 0 <= term_offset < term_length:
        raise violation(rule, f"term offset {term_offset} is not in a term of {term_length}")
    if term_offset & UNALIGNED:
        raise violation(rule, f"term offset {term_offset} is not a multiple of {layout.FRAME_ALIGNMENT}")
    if length < 0 or term_offset + length > term_length:
        raise violation(rule, f"{length} bytes from term offset {term_offset} leave a term of {term_length}")
