"""Encode and decode bymux packets (docs/protocols/bymux.md, 2).

A header byte holds the type in its three highest bits, the global flag below them, and two widths of two bits each. A width
code ``w`` means ``2 ** w`` bytes. Integers are big-endian. The encoder writes the smallest width; the decoder accepts every
width. Bits that a packet does not use are written as zero and ignored when read.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

INFINITE = 2**64 - 1
MAX_FINITE_CREDIT = 2**64 - 2
MAX_STREAM_ID = 2**64 - 1
GLOBAL_BIT = 0x10
# A bit of a stream's Close that the specification leaves unused. It marks the data before it as incomplete
# (docs/protocols/bymux.md, 10).
ABORT_BIT = 0x01


class Packet(IntEnum):
    """The six packet types. The value is the three highest bits of the header byte."""

    CREDIT = 0
    WRITE = 1
    PING = 2
    PONG = 3
    CLOSE = 4
    STOP_READ = 5


class Header(NamedTuple):
    """A decoded packet header."""

    packet: Packet
    is_global: bool
    stream_id: int
    amount: int
    length: int


def _shape(byte: int) -> tuple[Packet, bool, int, int] | None:
    """Return the type, global flag, id width and amount width of a header byte; ``None`` for the undefined types 6 and 7."""
    if byte >> 5 > Packet.STOP_READ:
        return None
    packet = Packet(byte >> 5)
    is_global = bool(byte & GLOBAL_BIT)
    first, second = 1 << (byte >> 2 & 3), 1 << (byte & 3)
    if is_global:
        if packet is Packet.WRITE:
            return packet, True, second, 0
        return packet, True, 0, second if packet is Packet.CREDIT else 0
    return packet, False, first, second if packet <= Packet.WRITE else 0


SHAPES = tuple(_shape(byte) for byte in range(256))
# The length of a header by its first byte; 0 if the type is undefined.
HEADER_LENGTHS = tuple(1 + shape[2] + shape[3] if shape else 0 for shape in SHAPES)


def decode_header(data: bytes | bytearray | memoryview, offset: int = 0) -> Header | None:
    """Decode a packet header (docs/protocols/bymux.md, 2); return ``None`` if it is incomplete."""
    if offset >= len(data):
        return None
    shape = SHAPES[data[offset]]
    if shape is None:
        raise ValueError(f"packet type {data[offset] >> 5} is undefined")
    packet, is_global, id_width, amount_width = shape
    middle = offset + 1 + id_width
    end = middle + amount_width
    if end > len(data):
        return None
    stream_id = int.from_bytes(data[offset + 1 : middle], "big") if id_width else -1
    return Header(packet, is_global, stream_id, int.from_bytes(data[middle:end], "big"), end - offset)


def _width(value: int) -> int:
    """Return the width code of the smallest field that can hold ``value``."""
    if value < 1 << 8:
        return 0
    if value < 1 << 16:
        return 1
    return 2 if value < 1 << 32 else 3


def encode_stream(packet: Packet, stream_id: int, amount: int | None = None) -> bytes:
    """Encode a packet of a stream. Only Credit and Write have an ``amount``; a Write's body follows."""
    if amount is None:
        if stream_id < 256:
            return bytes((packet << 5, stream_id))
        width = _width(stream_id)
        return bytes((packet << 5 | width << 2,)) + stream_id.to_bytes(1 << width, "big")
    if stream_id < 256 and amount < 65536:
        if amount < 256:
            return bytes((packet << 5, stream_id, amount))
        return bytes((packet << 5 | 1, stream_id, amount >> 8, amount & 255))
    width, amount_width = _width(stream_id), _width(amount)
    return b"%c%b%b" % (
        packet << 5 | width << 2 | amount_width,
        stream_id.to_bytes(1 << width, "big"),
        amount.to_bytes(1 << amount_width, "big"),
    )


def encode_global(packet: Packet, value: int | None = None) -> bytes:
    """Encode a global packet. The value is the amount for Credit and the id to create for Write; others have none."""
    if value is None:
        return bytes((packet << 5 | GLOBAL_BIT,))
    width = _width(value)
    return bytes((packet << 5 | GLOBAL_BIT | width,)) + value.to_bytes(1 << width, "big")
