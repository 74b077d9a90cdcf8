"""The ten frames: what each holds, how it is encoded, and the reader that takes them from a stream piece by piece.

A frame is one type byte and the fields of that type; frames follow one another without further framing. Where a frame may
stand (which stream, which direction, which place in it) is checked by `streams`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.aqueduct.codec import (
    Bytes,
    Headers,
    Incomplete,
    decode_bytes,
    decode_headers,
    decode_range_data,
    decode_uint,
    encode_bytes,
    encode_headers,
    encode_range_data,
    encode_uint,
    violation,
)
from mainstem.aqueduct.limits import DEFAULT_LIMITS, MAX_VERSION_LENGTH, Limits

if TYPE_CHECKING:
    from mainstem._core.aqueduct.run_writer import RunReader

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

MAGIC = bytes((80, 95, 166, 96, 15, 64, 142))
HUMAN_TEXT = b"AQUEDUCT"
VERSION = b"0.0.0-AFTER"
_SHIBBOLETH = bytes((VERSION_TAG,)) + MAGIC + HUMAN_TEXT

RESET_CANCELLED = 1
"""Reset code of a sender that was cancelled."""

RESET_LOST = 2
"""Reset code of a half that was lost in transit, or of a stream for a channel that is not there."""


@dataclass(slots=True)
class Version:
    """The first frame of everything that a client sends before the server has responded."""

    version: bytes = VERSION

    def encode(self) -> bytes:
        return _SHIBBOLETH + encode_bytes(self.version)


@dataclass(slots=True)
class ConnectionControl:
    """Each side's headers, exactly once, on the connection control stream."""

    headers: Headers = ()

    def encode(self) -> bytes:
        return b"\x01" + encode_headers(self.headers)


@dataclass(slots=True)
class ChannelControl:
    """Makes a bidirectional stream the control stream of a channel."""

    channel_id: int

    def encode(self) -> bytes:
        return b"\x02" + encode_uint(self.channel_id)


@dataclass(slots=True)
class Message:
    """One message: ``number`` counts within its channel and within its carrier (streams or datagrams)."""

    channel_id: int
    number: int
    attachments: tuple[int, ...]
    payload: bytes

    def encode(self) -> bytes:
        return encode_message(self.channel_id, self.number, self.attachments, self.payload)


@dataclass(slots=True)
class SentUnreliable:
    """``count`` more messages of this channel have gone into datagrams."""

    count: int

    def encode(self) -> bytes:
        return b"\x04" + encode_uint(self.count)


@dataclass(slots=True)
class AckReliable:
    """Run lengths from the lowest number not yet acknowledged: acknowledged, not yet, acknowledged, ..."""

    counts: tuple[int, ...]

    def encode(self) -> bytes:
        return b"\x05" + encode_range_data(self.counts)


@dataclass(slots=True)
class AckNackUnreliable:
    """Run lengths from where the last one ended: acknowledged, given up forever, acknowledged, ..."""

    counts: tuple[int, ...]

    def encode(self) -> bytes:
        return b"\x06" + encode_range_data(self.counts)


@dataclass(slots=True)
class FinishSender:
    """The channel ends after ``count`` reliable messages and the unreliable ones declared so far."""

    count: int

    def encode(self) -> bytes:
        return b"\x07" + encode_uint(self.count)


@dataclass(slots=True)
class CloseReceiver:
    """The receiver ceases; all that is not acknowledged by now never will be."""

    counts: tuple[int, ...] = ()

    def encode(self) -> bytes:
        return b"\x08" + encode_range_data(self.counts)


@dataclass(slots=True)
class ClosedChannelLost:
    """A channel that its minter had already closed was lost in transit."""

    channel_id: int

    def encode(self) -> bytes:
        return b"\x09" + encode_uint(self.channel_id)


Frame = (
    Version
    | ConnectionControl
    | ChannelControl
    | Message
    | SentUnreliable
    | AckReliable
    | AckNackUnreliable
    | FinishSender
    | CloseReceiver
    | ClosedChannelLost
)

VERSION_BYTES = Version().encode()


def message_head(channel_id: int, number: int, attachments: tuple[int, ...], size: int) -> bytes:
    """A Message frame up to its payload of ``size`` bytes."""
    if attachments:
        ids = encode_bytes(b"".join(map(encode_uint, attachments)))
        return b"\x03" + encode_uint(channel_id) + encode_uint(number) + ids + encode_uint(size)
    return b"\x03" + encode_uint(channel_id) + encode_uint(number) + b"\x00" + encode_uint(size)


def encode_message(channel_id: int, number: int, attachments: tuple[int, ...], payload: bytes) -> bytes:
    """A whole Message frame."""
    return message_head(channel_id, number, attachments, len(payload)) + payload


def _decode_message(data: Bytes, position: int, end: int, limits: Limits) -> tuple[Message, int]:
    channel_id, position = decode_uint(data, position, end)
    number, position = decode_uint(data, position, end)
    size, position = decode_uint(data, position, end)
    attachments: tuple[int, ...] = ()
    if size:
        # An id is at most ten bytes, so this bounds the bytes before they are awaited.
        if size > 10 * limits.max_attachments:
            raise violation(f"{size} bytes of attachments", "attachment limit")
        stop = position + size
        if stop > end:
            raise Incomplete(stop - end)
        ids = []
        try:
            while position < stop:
                attachment, position = decode_uint(data, position, stop)
                ids.append(attachment)
        except Incomplete:
            raise violation("attachments end within an id", "attachments") from None
        if len(ids) > limits.max_attachments:
            raise violation(f"{len(ids)} attachments; the limit is {limits.max_attachments}", "attachment limit")
        attachments = tuple(ids)
    payload, position = decode_bytes(data, position, end, limits.max_payload, "a payload")
    return Message(channel_id, number, attachments, payload), position


def _decode_version(data: Bytes, position: int, end: int) -> tuple[Version, int]:
    start = position - 1
    have = bytes(data[start : min(end, start + len(_SHIBBOLETH))])
    if not _SHIBBOLETH.startswith(have):
        raise violation("a Version frame with other magic bytes: the peer does not speak Aqueduct", "version magic")
    if len(have) < len(_SHIBBOLETH):
        # One byte more may already be the wrong one.
        raise Incomplete
    text, position = decode_bytes(data, start + len(_SHIBBOLETH), end, MAX_VERSION_LENGTH, "a version")
    if text != VERSION:
        raise violation(f"version {text!r}; this side speaks {VERSION!r}", "version")
    return Version(text), position


def decode_frame(data: Bytes, position: int, end: int, limits: Limits = DEFAULT_LIMITS) -> tuple[Frame, int]:
    """The frame at ``position`` and where the next one starts.

    Raises `Incomplete` where the frame is not all there yet, RemoteProtocolError where it cannot be one.
    """
    if position >= end:
        raise Incomplete
    tag = data[position]
    position += 1
    if tag == MESSAGE:
        return _decode_message(data, position, end, limits)
    if tag in _INTEGER_FRAMES:
        value, position = decode_uint(data, position, end)
        return _INTEGER_FRAMES[tag](value), position
    if tag in _RANGE_FRAMES:
        counts, position = decode_range_data(data, position, end, limits.max_range_bytes)
        return _RANGE_FRAMES[tag](counts), position
    if tag == CONNECTION_CONTROL:
        headers, position = decode_headers(data, position, end, limits.max_header_bytes)
        return ConnectionControl(headers), position
    if tag == VERSION_TAG:
        return _decode_version(data, position, end)
    raise violation(f"frame type {tag} does not exist", "frame type")


_INTEGER_FRAMES: dict[int, type[ChannelControl | SentUnreliable | FinishSender | ClosedChannelLost]] = {
    CHANNEL_CONTROL: ChannelControl,
    SENT_UNRELIABLE: SentUnreliable,
    FINISH_SENDER: FinishSender,
    CLOSED_CHANNEL_LOST: ClosedChannelLost,
}
_RANGE_FRAMES: dict[int, type[AckReliable | AckNackUnreliable | CloseReceiver]] = {
    ACK_RELIABLE: AckReliable,
    ACK_NACK_UNRELIABLE: AckNackUnreliable,
    CLOSE_RECEIVER: CloseReceiver,
}
_KINDS: dict[int, type[Frame]] = {
    **_INTEGER_FRAMES,
    **_RANGE_FRAMES,
    MESSAGE: Message,
    CONNECTION_CONTROL: ConnectionControl,
    VERSION_TAG: Version,
}


class FrameReader:
    """Takes the bytes of one stream as they come and returns whole frames.

    A frame that spans many pieces is put together once, when its last byte is there: reading is linear in the bytes.
    """

    __slots__ = ("_data", "_limits", "_needed", "_pieces", "_pieces_size", "_position")

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._data: bytes = b""
        self._position = 0
        self._pieces: list[bytes] = []
        self._pieces_size = 0
        self._needed = 0

    def feed(self, data: bytes) -> None:
        """More bytes of the stream."""
        if self._position == len(self._data) and not self._pieces:
            self._data = data
            self._position = 0
        else:
            self._pieces.append(data)
            self._pieces_size += len(data)

    def awaits_more_than(self, size: int) -> bool:
        """Whether this many more bytes do not complete a frame."""
        return self._needed > self._pieces_size + size

    def next_frame(self) -> Frame | None:
        """The next whole frame, None if there is none yet. Raises RemoteProtocolError."""
        if self._pieces:
            if self._pieces_size < self._needed:
                return None
            self._data = b"".join((self._data[self._position :], *self._pieces))
            self._position = 0
            self._pieces.clear()
            self._pieces_size = 0
        elif self._position == len(self._data) or self._needed:
            return None
        self._needed = 0
        try:
            frame, self._position = decode_frame(self._data, self._position, len(self._data), self._limits)
        except Incomplete as incomplete:
            self._needed = incomplete.needed
            return None
        return frame

    def next_kind(self) -> type[Frame] | None:
        """The type of the next frame, None where not even its first byte has come. Raises RemoteProtocolError."""
        if self._position < len(self._data):
            tag = self._data[self._position]
        elif self._pieces:
            tag = self._pieces[0][0]
        else:
            return None
        kind = _KINDS.get(tag)
        if kind is None:
            raise violation(f"frame type {tag} does not exist", "frame type")
        return kind

    def next_run(self, runs: RunReader, prefix: bytes, number: int, count: int, limit: int) -> list[bytes]:
        """Take the payloads of plain messages, numbered from ``number`` on.

        ``prefix`` is their type and channel. At most ``count`` are taken, none above ``limit`` bytes, and only whole ones;
        ``runs`` holds how many and how large they were. Whatever else comes is left to `next_frame`.
        """
        payloads = runs.read(self._data, self._position, prefix, number, count, limit)
        self._position = runs.position
        return payloads

    @property
    def buffered(self) -> int:
        """Bytes that were fed and not yet taken as frames."""
        return len(self._data) - self._position + self._pieces_size

    def clear(self) -> None:
        """Forget all bytes."""
        self._data = b""
        self._position = 0
        self._pieces.clear()
        self._pieces_size = 0
        self._needed = 0
