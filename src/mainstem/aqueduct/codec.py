"""The encodings under the frames: variable-length integers, byte arrays, header multimaps and positive/negative ranges.

Decoders take ``(data, position, end)`` and return ``(value, next position)``. They raise `Incomplete` where the bytes
end too early, and RemoteProtocolError, with the name of the rule, where the bytes cannot be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mainstem._internal.as_bytes import as_message
from mainstem.aqueduct.limits import MAX_UINT
from mainstem.errors import LocalProtocolError, RemoteProtocolError

Bytes = bytes | bytearray | memoryview
Headers = tuple[tuple[str, bytes], ...]
"""Names and values of connection headers, in order."""

PROTOCOL_ERROR = 1
"""QUIC application close code: a rule of the protocol was broken."""

EXPLICIT_CLOSE = 2
"""QUIC application close code: the application closed the connection."""

SERIALISATION_ERROR = 3
"""QUIC application close code: the two sides have no serialiser in common."""

HANDLER_FAILED = 4
"""QUIC application close code: the program on this side, or this library, failed."""

HANDSHAKE_TIMED_OUT = 5
"""QUIC application close code: the peer's connection headers did not come in time."""

NO_PLACE = 6
"""QUIC application close code: the server has no place for the connection, before its application has had anything of it."""

_MAX_UINT_BYTES = 10


class Incomplete(Exception):
    """The bytes end within a value. ``needed`` is how many more are known to be missing, at least 1."""

    def __init__(self, needed: int = 1) -> None:
        self.needed = needed
        super().__init__(needed)


def violation(message: str, rule: str) -> RemoteProtocolError:
    """Make the error for a rule that the peer broke."""
    return RemoteProtocolError(message, rule=rule, code=PROTOCOL_ERROR)


_SHORT = tuple(bytes((value,)) for value in range(0x80))


def encode_uint(value: int) -> bytes:
    """The canonical encoding: seven bits a byte, lowest first, the high bit set on all bytes but the last."""
    if 0 <= value < 0x80:
        return _SHORT[value]
    if 0x80 <= value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if not 0 <= value <= MAX_UINT:
        raise LocalProtocolError(f"{value} is not an unsigned integer of 64 bits", rule="integer range")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uint(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """One integer. Longer than need be, or more than 64 bits, is a violation."""
    if position >= end:
        raise Incomplete
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    shift = 7
    start = position
    while True:
        position += 1
        if position >= end:
            raise Incomplete
        byte = data[position]
        if position - start == _MAX_UINT_BYTES - 1 and byte != 1:
            raise violation("an integer of more than 64 bits, or longer than need be", "canonical integer")
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0:
                raise violation("an integer encoded in more bytes than necessary", "canonical integer")
            return value, position + 1
        shift += 7


def encode_bytes(value: Bytes) -> bytes:
    """A byte array: its length, then itself."""
    return encode_uint(len(value)) + bytes(value)


def decode_bytes(data: Bytes, position: int, end: int, limit: int, name: str) -> tuple[bytes, int]:
    """A byte array of at most ``limit`` bytes; ``name`` is what the error calls it."""
    length, position = decode_uint(data, position, end)
    if length > limit:
        raise violation(f"{name} of {length} bytes; the limit is {limit}", "size limit")
    stop = position + length
    if stop > end:
        raise Incomplete(stop - end)
    return bytes(data[position:stop]), stop


def as_headers(headers: Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]] | None) -> Headers:
    """Headers as the protocol has them: an ordered multimap of ASCII keys and byte values.

    Text values are encoded as UTF-8. Raises LocalProtocolError for a key that is empty or not ASCII.
    """
    if headers is None:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    out = []
    for key, value in pairs:
        if not key or not key.isascii():
            raise LocalProtocolError(f"header key {key!r}: keys are ASCII and not empty", rule="header key")
        out.append((key, as_message(value)))
    return tuple(out)


def encode_headers(headers: Headers) -> bytes:
    """Header data: one byte array that holds a byte array for each key and each value."""
    return encode_bytes(b"".join(encode_bytes(key.encode("ascii")) + encode_bytes(value) for key, value in headers))


def decode_headers(data: Bytes, position: int, end: int, limit: int) -> tuple[Headers, int]:
    """Header data of at most ``limit`` bytes."""
    body, position = decode_bytes(data, position, end, limit, "header data")
    items = []
    at, stop = 0, len(body)
    try:
        while at < stop:
            item, at = decode_bytes(body, at, stop, MAX_UINT, "a header")
            items.append(item)
    except Incomplete:
        raise violation("header data ends within a byte array", "header data") from None
    if len(items) % 2:
        raise violation(f"header data holds {len(items)} byte arrays, which is odd", "header pairs")
    pairs = []
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not key:
            raise violation("an empty header key", "header key")
        if not key.isascii():
            raise violation(f"header key {key!r} is not ASCII", "header key")
        pairs.append((key.decode("ascii"), value))
    return tuple(pairs), position


def encode_range_data(counts: Sequence[int]) -> bytes:
    """Positive/negative range data from run lengths: positive first, then negative, in turn."""
    return encode_bytes(b"".join(map(encode_uint, counts)))


def decode_range_data(data: Bytes, position: int, end: int, limit: int) -> tuple[tuple[int, ...], int]:
    """Run lengths, positive first. A zero is legal only as the first of several; empty data means no ranges."""
    body, position = decode_bytes(data, position, end, limit, "range data")
    counts: list[int] = []
    at, stop, total = 0, len(body), 0
    try:
        while at < stop:
            count, at = decode_uint(body, at, stop)
            if count == 0 and counts:
                raise violation("a zero within range data", "range data")
            counts.append(count)
            total += count
    except Incomplete:
        raise violation("range data ends within an integer", "range data") from None
    if counts == [0]:
        raise violation("range data of a single zero", "range data")
    if total > MAX_UINT:
        raise violation("range data reaches beyond 64 bits", "range data")
    return tuple(counts), position
