"""The wire format: integers, byte arrays, headers, ranges, channel ids, and the ten frames made of them.

A frame is a type byte followed by the fields of that type. Frames follow one another without further framing. Here a frame is a
tuple of its type and its value:

    VERSION_TAG          the version string
    CONNECTION_CONTROL   the headers, as pairs of key and value
    CHANNEL_CONTROL      the channel whose control stream this is
    MESSAGE              channel, number, attached channels, payload
    SENT_UNRELIABLE      how many more messages of this channel were sent in datagrams
    ACK_RELIABLE         run lengths from the lowest number not yet acknowledged: acknowledged, not yet, acknowledged, ...
    ACK_NACK_UNRELIABLE  run lengths from where the last one ended: acknowledged, given up forever, acknowledged, ...
    FINISH_SENDER        how many reliable messages the channel carried in total
    CLOSE_RECEIVER       run lengths as in ACK_RELIABLE; whatever is not acknowledged by then never will be
    CLOSED_CHANNEL_LOST  a channel that was lost in transit after its minter had closed it

`engine` checks where each frame is allowed. Decoders take ``(data, position, end)`` and return ``(value, next position)``. They
raise `Incomplete` if the bytes end too early, and RemoteProtocolError with the name of the rule if the bytes are malformed.

A channel id is a 64-bit integer. Bit 0 is 0 if messages flow to the server, 1 if they flow to the client. Bit 1 is 0 if the
client minted the id, 1 if the server did. Bit 2 is 1 for a oneshot. The other 61 bits are the index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mainstem._core.aqueduct.run_writer import RunReader, message_head
from mainstem._internal.validation import as_message
from mainstem.aqueduct.limits import DEFAULT_LIMITS, MAX_UINT, MAX_VERSION_LENGTH, Limits
from mainstem.errors import LocalProtocolError, RemoteProtocolError

Bytes = bytes | bytearray | memoryview
Headers = tuple[tuple[str, bytes], ...]
"""Names and values of connection headers, in order."""
Frame = tuple[int, Any]

VERSION_TAG = 239
CONNECTION_CONTROL = 1
CHANNEL_CONTROL = 2
MESSAGE = 3
SENT_UNRELIABLE = 4
ACK_RELIABLE = 5
ACK_NACK_UNRELIABLE = 6
FINISH_SENDER = 7
CLOSE_RECEIVER = 8
CLOSED_CHANNEL_LOST = 9

RESET_CANCELLED = 1
"""Reset code for a cancelled sender."""

RESET_LOST = 2
"""Reset code for a half that was lost in transit, or for a control stream whose channel does not exist."""

# QUIC application close codes.
PROTOCOL_ERROR = 1
EXPLICIT_CLOSE = 2
SERIALIZATION_ERROR = 3
HANDLER_FAILED = 4
HANDSHAKE_TIMED_OUT = 5
NO_PLACE = 6

ENTRYPOINT = 0
"""The entrypoint channel, from the client to the server. It is not minted; it exists from the start."""

TO_CLIENT = 1
MINTED_BY_SERVER = 2
ONESHOT = 4
SPACE_MASK = 7
INDEX_SHIFT = 3


class Incomplete(Exception):
    """The bytes end within a value. ``needed`` is how many more bytes are known to be missing, at least 1."""

    def __init__(self, needed: int = 1) -> None:
        self.needed = needed
        super().__init__(needed)


def protocol_error(rule: str, message: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, rule=rule, code=PROTOCOL_ERROR)


def describe(channel_id: int) -> str:
    """Return an id as text: ``to-server/client-minted/oneshot#12``."""
    if channel_id == ENTRYPOINT:
        return "entrypoint"
    direction = "to-client" if channel_id & TO_CLIENT else "to-server"
    minter = "server-minted" if channel_id & MINTED_BY_SERVER else "client-minted"
    kind = "/oneshot" if channel_id & ONESHOT else ""
    return f"{direction}/{minter}{kind}#{channel_id >> INDEX_SHIFT}"


# Integers and byte arrays.

_SHORT = tuple(bytes((value,)) for value in range(0x80))


def encode_uint(value: int) -> bytes:
    """Encode an integer canonically: seven bits per byte, lowest first, with the high bit set on all bytes but the last."""
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
    """Decode an integer, which must have at most 64 bits and be encoded in as few bytes as possible."""
    if position >= end:
        raise Incomplete
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        if position >= end:
            raise Incomplete
        byte = data[position]
        # The tenth byte holds the last of the 64 bits.
        if byte == 0 or (shift == 63 and byte != 1):
            raise protocol_error(
                "canonical integer", "an integer of more than 64 bits, or in more bytes than necessary"
            )
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7


def encode_bytes(value: Bytes) -> bytes:
    return encode_uint(len(value)) + bytes(value)


def decode_bytes(data: Bytes, position: int, end: int, limit: int, name: str) -> tuple[bytes, int]:
    """Decode a byte array of at most ``limit`` bytes. Errors refer to it by ``name``."""
    length, position = decode_uint(data, position, end)
    if length > limit:
        raise protocol_error("size limit", f"{name} of {length} bytes; the limit is {limit}")
    stop = position + length
    if stop > end:
        raise Incomplete(stop - end)
    return bytes(data[position:stop]), stop


def _decode_uints(body: bytes, rule: str, text: str) -> tuple[int, ...]:
    out = []
    at, stop = 0, len(body)
    try:
        while at < stop:
            value, at = decode_uint(body, at, stop)
            out.append(value)
    except Incomplete:
        raise protocol_error(rule, text) from None
    return tuple(out)


# Headers and ranges.


def as_headers(headers: Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]] | None) -> Headers:
    """Return headers in the protocol's form, an ordered multimap of ASCII keys and byte values.

    Text values are encoded as UTF-8. Raises LocalProtocolError for a key that is empty or not ASCII.
    """
    if headers is None:
        return ()
    out = []
    for key, value in headers.items() if isinstance(headers, Mapping) else headers:
        if not key or not key.isascii():
            raise LocalProtocolError(f"header key {key!r} must be ASCII and not empty", rule="header key")
        out.append((key, as_message(value)))
    return tuple(out)


def encode_headers(headers: Headers) -> bytes:
    """Encode headers as one byte array that holds a byte array for each key and each value."""
    return encode_bytes(b"".join(encode_bytes(key.encode("ascii")) + encode_bytes(value) for key, value in headers))


def decode_headers(data: Bytes, position: int, end: int, limits: Limits) -> tuple[Headers, int]:
    body, position = decode_bytes(data, position, end, limits.max_header_bytes, "header data")
    items = []
    at, stop = 0, len(body)
    try:
        while at < stop:
            item, at = decode_bytes(body, at, stop, MAX_UINT, "a header")
            items.append(item)
    except Incomplete:
        raise protocol_error("header data", "header data ends within a byte array") from None
    if len(items) % 2:
        raise protocol_error("header pairs", f"header data holds {len(items)} byte arrays, which is odd")
    keys = items[::2]
    for key in keys:
        if not key or not key.isascii():
            raise protocol_error("header key", f"header key {key!r} is empty or not ASCII")
    return tuple((key.decode("ascii"), value) for key, value in zip(keys, items[1::2], strict=True)), position


def encode_range_data(counts: Sequence[int]) -> bytes:
    """Encode run lengths, alternately positive and negative, positive first."""
    return encode_bytes(b"".join(map(encode_uint, counts)))


def decode_range_data(data: Bytes, position: int, end: int, limits: Limits) -> tuple[tuple[int, ...], int]:
    """Decode run lengths, positive first. Only the first of several can be zero; empty data means no ranges."""
    body, position = decode_bytes(data, position, end, limits.max_range_bytes, "range data")
    counts = _decode_uints(body, "range data", "range data ends within an integer")
    if 0 in counts[1:] or counts == (0,):
        raise protocol_error("range data", "a zero within range data, or alone in it")
    if sum(counts) > MAX_UINT:
        raise protocol_error("range data", "range data reaches beyond 64 bits")
    return counts, position


# Frames.

_READER = RunReader()
"""Decodes complete frames of the common types. `decode_frame` decodes any frame and reports what is wrong with it."""

VERSION = b"0.0.0-AFTER"
_MAGIC = bytes((80, 95, 166, 96, 15, 64, 142)) + b"AQUEDUCT"
VERSION_BYTES = bytes((VERSION_TAG,)) + _MAGIC + encode_bytes(VERSION)


def _encode_message(value: tuple[int, int, Sequence[int], Bytes]) -> bytes:
    channel_id, number, attachments, payload = value
    return message_head(encode_uint(channel_id), number, tuple(attachments), len(payload)) + bytes(payload)


def _decode_message(
    data: Bytes, position: int, end: int, limits: Limits
) -> tuple[tuple[int, int, tuple[int, ...], bytes], int]:
    channel_id, position = decode_uint(data, position, end)
    number, position = decode_uint(data, position, end)
    size, position = decode_uint(data, position, end)
    attachments: tuple[int, ...] = ()
    if size:
        # An id is at most ten bytes, so this limits how many bytes are buffered.
        if size > 10 * limits.max_attachments:
            raise protocol_error("attachment limit", f"{size} bytes of attachments")
        stop = position + size
        if stop > end:
            raise Incomplete(stop - end)
        attachments = _decode_uints(bytes(data[position:stop]), "attachments", "attachments end within an id")
        if len(attachments) > limits.max_attachments:
            text = f"{len(attachments)} attachments; the limit is {limits.max_attachments}"
            raise protocol_error("attachment limit", text)
        position = stop
    payload, position = decode_bytes(data, position, end, limits.max_payload, "a payload")
    return (channel_id, number, attachments, payload), position


def _encode_version(version: bytes) -> bytes:
    return _MAGIC + encode_bytes(version)


def _decode_version(data: Bytes, position: int, end: int, _: Limits) -> tuple[bytes, int]:
    have = bytes(data[position : min(end, position + len(_MAGIC))])
    if not _MAGIC.startswith(have):
        text = "a Version frame with other magic bytes: the peer does not speak Aqueduct"
        raise protocol_error("version magic", text)
    if len(have) < len(_MAGIC):
        # Ask for one byte only: the next one may already be wrong.
        raise Incomplete
    version, position = decode_bytes(data, position + len(_MAGIC), end, MAX_VERSION_LENGTH, "a version")
    if version != VERSION:
        raise protocol_error("version", f"version {version!r}; this side speaks {VERSION!r}")
    return version, position


def _decode_integer(data: Bytes, position: int, end: int, _: Limits) -> tuple[int, int]:
    return decode_uint(data, position, end)


class FrameType(NamedTuple):
    """A frame's name, and the functions that encode and decode its value."""

    name: str
    encode: Callable[[Any], bytes]
    decode: Callable[[Bytes, int, int, Limits], tuple[Any, int]]


FRAME_TYPES = {
    VERSION_TAG: FrameType("Version", _encode_version, _decode_version),
    CONNECTION_CONTROL: FrameType("ConnectionControl", encode_headers, decode_headers),
    CHANNEL_CONTROL: FrameType("ChannelControl", encode_uint, _decode_integer),
    MESSAGE: FrameType("Message", _encode_message, _decode_message),
    SENT_UNRELIABLE: FrameType("SentUnreliable", encode_uint, _decode_integer),
    ACK_RELIABLE: FrameType("AckReliable", encode_range_data, decode_range_data),
    ACK_NACK_UNRELIABLE: FrameType("AckNackUnreliable", encode_range_data, decode_range_data),
    FINISH_SENDER: FrameType("FinishSender", encode_uint, _decode_integer),
    CLOSE_RECEIVER: FrameType("CloseReceiver", encode_range_data, decode_range_data),
    CLOSED_CHANNEL_LOST: FrameType("ClosedChannelLost", encode_uint, _decode_integer),
}
RANGE_FRAMES = (ACK_RELIABLE, ACK_NACK_UNRELIABLE, CLOSE_RECEIVER)


def frame_type(tag: int) -> FrameType:
    """Return a type of frames. Raises RemoteProtocolError if it is unknown."""
    found = FRAME_TYPES.get(tag)
    if found is None:
        raise protocol_error("frame type", f"unknown frame type {tag}")
    return found


def encode_frame(tag: int, value: Any) -> bytes:
    return bytes((tag,)) + FRAME_TYPES[tag].encode(value)


def decode_frame(data: Bytes, position: int, end: int, limits: Limits = DEFAULT_LIMITS) -> tuple[Frame, int]:
    """Decode the frame at ``position``; return it and where the next one starts."""
    if position >= end:
        raise Incomplete
    tag = data[position]
    value, position = frame_type(tag).decode(data, position + 1, end, limits)
    return (tag, value), position


@dataclass(slots=True, eq=False)
class FrameReader:
    """A reader that takes the bytes of one stream as they arrive and returns complete frames.

    A frame that spans many pieces is joined once, when its last byte has arrived, so reading takes linear time.
    """

    limits: Limits = DEFAULT_LIMITS
    data: bytes = b""
    position: int = 0
    pieces: list[bytes] = field(default_factory=list)
    pieces_size: int = 0
    needed: int = 0

    def feed(self, data: bytes) -> None:
        if self.position == len(self.data) and not self.pieces:
            self.data = data
            self.position = 0
        else:
            self.pieces.append(data)
            self.pieces_size += len(data)

    def next_frame(self) -> Frame | None:
        """Take and return the next complete frame, or None if there is none yet. Raises RemoteProtocolError."""
        if self.pieces:
            if self.pieces_size < self.needed:
                return None
            self.data = b"".join((memoryview(self.data)[self.position :], *self.pieces))
            self.position = 0
            self.pieces.clear()
            self.pieces_size = 0
        elif self.position == len(self.data) or self.needed:
            return None
        self.needed = 0
        limits = self.limits
        found: Any = _READER.frame(
            self.data, self.position, limits.max_payload, limits.max_attachments, limits.max_range_bytes
        )
        if found is not None:
            self.position = found[1]
            return found[0]  # type: ignore[no-any-return]
        try:
            frame, self.position = decode_frame(self.data, self.position, len(self.data), limits)
        except Incomplete as incomplete:
            self.needed = incomplete.needed
            return None
        return frame

    def next_tag(self) -> int | None:
        """Return the type of the next frame, or None if its first byte has not arrived yet. Raises RemoteProtocolError."""
        if self.position < len(self.data):
            tag = self.data[self.position]
        elif self.pieces:
            tag = self.pieces[0][0]
        else:
            return None
        frame_type(tag)
        return tag

    @property
    def buffered(self) -> int:
        """The number of bytes that were fed but not yet taken as frames."""
        return len(self.data) - self.position + self.pieces_size

    def clear(self) -> None:
        self.data = b""
        self.position = self.pieces_size = self.needed = 0
        self.pieces.clear()
