"""What a bymux connection tells its user. ``stream`` is the connection's own handle (:class:`..stream.Stream`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.mux.bymux.stream import Stream


@dataclass(slots=True)
class StreamOpened:
    """The peer created a stream."""

    stream: Stream


@dataclass(slots=True)
class DataReceived:
    """Bytes of a stream, in order. Say ``connection.consume(stream, n)`` once they no longer take up room."""

    stream: Stream
    data: bytes


@dataclass(slots=True)
class StreamFinished:
    """The peer sent Close: no more data will come on the stream."""

    stream: Stream


@dataclass(slots=True)
class StreamReadStopped:
    """The peer sent StopRead: what its credit did not cover (``lost`` bytes) will never be sent, and Close follows."""

    stream: Stream
    lost: int


@dataclass(slots=True)
class StreamDrained:
    """What waits to be sent on the stream fell to the level that was asked for with ``notify_below``."""

    stream: Stream


@dataclass(slots=True)
class StreamEnded:
    """Close and StopRead passed in both directions; the id may be used again."""

    stream: Stream


@dataclass(slots=True)
class PingReceived:
    """The peer sent a ping; ``stream`` is ``None`` for the connection's. It was answered unless settings say otherwise."""

    stream: Stream | None
    answered: bool


@dataclass(slots=True)
class PongReceived:
    """The peer answered a ping after ``rtt_ns``; -1 when no ping was waiting (an unsolicited pong is legal)."""

    stream: Stream | None
    rtt_ns: int


@dataclass(slots=True)
class StreamTimedOut:
    """The peer did not answer a stream's heartbeat in time."""

    stream: Stream


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
    """Creation is closed and stopped in both directions and no stream is active: close the transport."""


@dataclass(slots=True)
class ConnectionEnded:
    """The peer ended the byte stream. ``clean`` is false when streams, or the right to create some, were still there."""

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
