"""Jmux messages as bytes.

Both directions begin with an eight-byte connection header; messages follow, each with a four-byte header whose first byte
names the type. Integers are big-endian. Reserved bits are written as zero and ignored when read; the lowest bit of the first byte
is part of the type's bit pattern, and a session id has seven bits.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import NamedTuple

MAGIC = b"Jmux"
VERSION = 1
CONNECTION_HEADER_LENGTH = 8
MESSAGE_HEADER_LENGTH = 4
# A ration in a connection header counts in units of this many bytes; 0 means that rations are infinite.
RATION_UNIT = 256
MAX_RATION = 0x7FFFFFFF
MAX_LENGTH = 0xFFFF
MAX_SESSIONS = 128
# Set in the reserved byte by clients that would accept an older version than the one they name.
NEGOTIATE = 0x01

HEADER = struct.Struct(">BBH")


class Kind(Enum):
    """The ten message types."""

    NO_OPERATION = 0x00
    SHUTDOWN = 0x02
    PING = 0x04
    PING_ACK = 0x06
    ERROR = 0x08
    INCREMENT_RATION = 0x10
    ABORT = 0x20
    CLOSE = 0x30
    ACKNOWLEDGMENT = 0x40
    DATA = 0x80


# The type of Data, and its flags, in its first byte.
DATA = 0x80
OPEN = 0x10
CLOSE = 0x08
EOF = 0x04
ACK_REQUIRED = 0x02
# Flag of Abort.
PARTIAL = 0x02

CONNECTION_KINDS = frozenset({Kind.NO_OPERATION, Kind.SHUTDOWN, Kind.PING, Kind.PING_ACK, Kind.ERROR})
# The kinds whose 16-bit value is the length of a body.
WITH_BODY = frozenset({Kind.NO_OPERATION, Kind.SHUTDOWN, Kind.ERROR, Kind.ABORT, Kind.DATA})


def _kind_of(byte: int) -> Kind | None:
    """The message type of a first byte; ``None`` when no bit pattern of the specification matches."""
    if byte & 0x01:
        return None
    if byte <= 0x08:
        return Kind(byte)
    if byte & 0xE0 == 0x80:
        return Kind.DATA
    if byte & 0xF0 == 0x10:
        return Kind.INCREMENT_RATION
    if byte & 0xFD == 0x20:
        return Kind.ABORT
    return {0x30: Kind.CLOSE, 0x40: Kind.ACKNOWLEDGMENT}.get(byte)


KINDS = tuple(_kind_of(byte) for byte in range(256))


class ConnectionHeader(NamedTuple):
    """The first eight bytes of either direction; ``initial_ration`` is in bytes, 0 for infinite."""

    version: int
    initial_ration: int
    reserved: int


class Message(NamedTuple):
    """A decoded message header."""

    kind: Kind
    session_id: int
    flags: int
    value: int

    @property
    def increment(self) -> int:
        """Bytes that an IncrementRation adds."""
        return self.value << self.flags


def encode_connection_header(initial_ration: int) -> bytes:
    """Either end's header; ``initial_ration`` in bytes is a multiple of 256, 0 for infinite."""
    return MAGIC + struct.pack(">BHB", VERSION, initial_ration // RATION_UNIT, 0)


def decode_connection_header(data: bytes | bytearray | memoryview) -> ConnectionHeader:
    """The header in the first eight bytes. Raises ``ValueError`` for a wrong magic number."""
    if bytes(data[:4]) != MAGIC:
        raise ValueError(f"bad magic number {bytes(data[:4]).hex()}")
    version, ration, reserved = struct.unpack_from(">BHB", data, 4)
    return ConnectionHeader(version, ration * RATION_UNIT, reserved)


def decode_message(data: bytes | bytearray | memoryview, offset: int = 0) -> Message | None:
    """Decode a message header."""
    if len(data) - offset < MESSAGE_HEADER_LENGTH:
        return None
    first, second, value = HEADER.unpack_from(data, offset)
    kind = KINDS[first]
    if kind is Kind.DATA and second < MAX_SESSIONS:
        return Message(kind, second, first & 0x1E, value)
    if kind is not None and kind in CONNECTION_KINDS:
        return Message(kind, -1, 0, value)
    if kind is None or second >= MAX_SESSIONS:
        raise ValueError(bad_header(data, offset))
    if kind is Kind.CLOSE or kind is Kind.ACKNOWLEDGMENT:
        value = 0  # reserved
    return Message(kind, second, first & 0x0E, value)


def bad_header(data: bytes | bytearray | memoryview, offset: int) -> str:
    """The report of a header that matches no message."""
    return f"bad message header: {bytes(data[offset : offset + 4]).hex().upper()}"


def encode_session(kind: Kind, session_id: int, *, flags: int = 0, body: bytes = b"") -> bytes:
    """Close, Acknowledgment or Abort."""
    return HEADER.pack(kind.value | flags, session_id, len(body)) + body


def encode_connection(kind: Kind, *, cookie: int = 0, body: bytes = b"") -> bytes:
    """NoOperation, Shutdown, Ping, PingAck or Error."""
    return HEADER.pack(kind.value, 0, cookie or len(body)) + body


def largest_increment(amount: int) -> int:
    """The largest increment of at most ``amount`` bytes that one message can carry."""
    shift = _shift(amount)
    return amount >> shift << shift


def encode_increment(session_id: int, amount: int) -> bytes:
    """An IncrementRation of exactly ``amount`` bytes. Raises ``ValueError`` when no shift can express it."""
    shift = _shift(amount)
    if amount <= 0 or amount >> shift << shift != amount:
        raise ValueError(f"an increment of {amount} bytes cannot be written as 16 bits and an even shift")
    return HEADER.pack(Kind.INCREMENT_RATION.value | shift, session_id, amount >> shift)


def _shift(amount: int) -> int:
    """The smallest even shift that brings ``amount`` into 16 bits."""
    shift = 0
    while amount >> shift > MAX_LENGTH:
        shift += 2
    return shift
