"""Encode and decode Jmux messages.

Each direction begins with an eight-byte connection header. Messages follow, each with a four-byte header whose first byte
determines the type. Integers are big-endian. Reserved bits are written as zero and ignored when read. The lowest bit of the first
byte is part of the type's bit pattern, and a session id has seven bits.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import NamedTuple

MAGIC = b"Jmux"
VERSION = 1
CONNECTION_HEADER_LENGTH = 8
MESSAGE_HEADER_LENGTH = 4
# The unit, in bytes, of the ration in a connection header; 0 means that rations are infinite.
RATION_UNIT = 256
MAX_RATION = 0x7FFFFFFF
MAX_LENGTH = 0xFFFF
MAX_SESSIONS = 128
# Clients set this in the reserved byte if they accept older versions than the one they name.
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


# The type and flags of Data in its first byte.
DATA = 0x80
OPEN = 0x10
CLOSE = 0x08
EOF = 0x04
ACK_REQUIRED = 0x02
# The flag of Abort.
PARTIAL = 0x02

CONNECTION_KINDS = frozenset({Kind.NO_OPERATION, Kind.SHUTDOWN, Kind.PING, Kind.PING_ACK, Kind.ERROR})
# The kinds whose 16-bit value is the length of a body.
WITH_BODY = frozenset({Kind.NO_OPERATION, Kind.SHUTDOWN, Kind.ERROR, Kind.ABORT, Kind.DATA})


def _kind_of(byte: int) -> Kind | None:
    """Return the message type of a first byte; ``None`` if it matches no bit pattern of the specification."""
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
    """The first eight bytes of either direction. ``initial_ration`` is in bytes; 0 means infinite."""

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
        """The number of bytes that an IncrementRation adds."""
        return self.value << self.flags


def encode_connection_header(initial_ration: int) -> bytes:
    """Encode either end's header. ``initial_ration`` is in bytes, a multiple of 256; 0 means infinite."""
    return MAGIC + struct.pack(">BHB", VERSION, initial_ration // RATION_UNIT, 0)


def decode_connection_header(data: bytes | bytearray | memoryview) -> ConnectionHeader:
    """Decode the header in the first eight bytes. Raises ``ValueError`` if the magic number is wrong."""
    if bytes(data[:4]) != MAGIC:
        raise ValueError(f"bad magic number {bytes(data[:4]).hex()}")
    version, ration, reserved = struct.unpack_from(">BHB", data, 4)
    return ConnectionHeader(version, ration * RATION_UNIT, reserved)


def decode_message(data: bytes | bytearray | memoryview, offset: int = 0) -> Message | None:
    """Decode a message header; return ``None`` if it is incomplete. Raises ``ValueError`` if it is invalid."""
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
    return f"bad message header: {bytes(data[offset : offset + 4]).hex().upper()}"


def encode_session(kind: Kind, session_id: int, *, flags: int = 0, body: bytes = b"") -> bytes:
    """Encode a Close, Acknowledgment or Abort."""
    return HEADER.pack(kind.value | flags, session_id, len(body)) + body


def encode_connection(kind: Kind, *, cookie: int = 0, body: bytes = b"") -> bytes:
    """Encode a NoOperation, Shutdown, Ping, PingAck or Error."""
    return HEADER.pack(kind.value, 0, cookie or len(body)) + body


def largest_increment(amount: int) -> int:
    """Return the largest increment of at most ``amount`` bytes that one message can carry."""
    shift = _shift(amount)
    return amount >> shift << shift


def encode_increment(session_id: int, amount: int) -> bytes:
    """Encode an IncrementRation of exactly ``amount`` bytes. Raises ``ValueError`` if no shift can express it."""
    shift = _shift(amount)
    if amount <= 0 or amount >> shift << shift != amount:
        raise ValueError(f"an increment of {amount} bytes cannot be written as 16 bits and an even shift")
    return HEADER.pack(Kind.INCREMENT_RATION.value | shift, session_id, amount >> shift)


def _shift(amount: int) -> int:
    """Return the smallest even shift that makes ``amount`` fit into 16 bits."""
    shift = 0
    while amount >> shift > MAX_LENGTH:
        shift += 2
    return shift
