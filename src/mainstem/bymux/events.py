"""The events of a bymux connection. ``stream`` is the connection's own handle (:class:`..stream.StreamState`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.bymux.stream import StreamState


@dataclass(slots=True)
class StreamOpened:
    """The peer created a stream."""

    stream: StreamState


@dataclass(slots=True)
class DataReceived:
    """Bytes of a stream arrived, in order. ``connection.consume(stream, n)`` frees their space."""

    stream: StreamState
    data: bytes


@dataclass(slots=True)
class StreamFinished:
    """The peer sent Close: no more data will arrive. ``aborted`` is whether the peer marked the data as incomplete."""

    stream: StreamState
    aborted: bool = False


@dataclass(slots=True)
class StreamReadStopped:
    """The peer sent StopRead. ``lost`` bytes that its credit did not cover were dropped, and this end's Close follows."""

    stream: StreamState
    lost: int


@dataclass(slots=True)
class StreamDrained:
    """The number of bytes queued on the stream fell to its ``notify_below``."""

    stream: StreamState


@dataclass(slots=True)
class StreamEnded:
    """Both ends have sent Close and StopRead. The id can be reused."""

    stream: StreamState


@dataclass(slots=True)
class PingReceived:
    """The peer sent a ping; ``stream`` is ``None`` for a global one. ``answered`` is whether a pong was sent."""

    stream: StreamState | None
    answered: bool


@dataclass(slots=True)
class PongReceived:
    """The peer sent a pong, ``rtt_ns`` after this end's ping; -1 without an outstanding ping (an unsolicited pong is legal)."""

    stream: StreamState | None
    rtt_ns: int


@dataclass(slots=True)
class StreamTimedOut:
    """The peer did not respond to a stream's heartbeat in time."""

    stream: StreamState


@dataclass(slots=True)
class GlobalCreditReceived:
    """The peer allows ``amount`` more streams."""

    amount: int


@dataclass(slots=True)
class CreationClosed:
    """The peer sent a global Close: it will create no more streams."""


@dataclass(slots=True)
class CreationStopped:
    """The peer sent a global StopRead: it will allow no more streams."""


@dataclass(slots=True)
class ConnectionFinished:
    """Creation has been closed and stopped in both directions, and no stream is active: close the transport."""


@dataclass(slots=True)
class ConnectionEnded:
    """The peer ended the byte stream. ``clean`` is false if there were streams left, or the right to create some."""

    clean: bool


Event = (
    StreamOpened
    | DataReceived
    | StreamFinished
    | StreamReadStopped
    | StreamDrained
    | StreamEnded
    | PingReceived
    | PongReceived
    | StreamTimedOut
    | GlobalCreditReceived
    | CreationClosed
    | CreationStopped
    | ConnectionFinished
    | ConnectionEnded
)
