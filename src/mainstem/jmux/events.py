"""The events of a Jmux connection. ``session`` is the connection's own handle (:class:`.session.Session`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.jmux.session import Session


@dataclass(slots=True)
class ConnectionEstablished:
    """Both connection headers have been exchanged; messages can be sent."""


@dataclass(slots=True)
class SessionOpened:
    """On a server, the client opened a session."""

    session: Session


@dataclass(slots=True)
class DataReceived:
    """Bytes of the request or response arrived, in order. ``connection.consume(session, n)`` frees their space."""

    session: Session
    data: bytes


@dataclass(slots=True)
class DataFinished:
    """The peer has sent the whole request or response. ``ack_required`` is whether the server requests an acknowledgment."""

    session: Session
    ack_required: bool


@dataclass(slots=True)
class RequestReceived:
    """On a server with ``joins_events``, a whole request arrived in one message.

    This stands for SessionOpened, DataReceived and DataFinished, and for the SessionEnded of the session that had the id before.
    """

    session: Session
    data: bytes


@dataclass(slots=True)
class ResponseReceived:
    """On a client with ``joins_events``, the last message of a response arrived.

    This stands for DataReceived, DataFinished and SessionEnded.
    """

    session: Session
    data: bytes


@dataclass(slots=True)
class SessionAborted:
    """The peer ended the session abruptly. ``partial`` is whether it may have processed data that it received."""

    session: Session
    partial: bool
    detail: bytes


@dataclass(slots=True)
class SessionEnded:
    """The session has ended; its id can be reused."""

    session: Session


@dataclass(slots=True)
class SessionFailed:
    """The connection ended before the session. ``session.delivery`` is what is known about the request's delivery."""

    session: Session


@dataclass(slots=True)
class SessionDrained:
    """The number of bytes queued on the session fell to its ``notify_below``."""

    session: Session


@dataclass(slots=True)
class Acknowledged:
    """On a server, the client acknowledged the response (``positive``), or no longer can."""

    session: Session
    positive: bool


@dataclass(slots=True)
class PingReceived:
    """The peer sent a Ping, and the PingAck was queued."""

    cookie: int


@dataclass(slots=True)
class PingAcknowledged:
    """The peer's PingAck arrived, ``rtt_ns`` after this end's Ping."""

    cookie: int
    rtt_ns: int


@dataclass(slots=True)
class ShutDown:
    """On a client, the server is shutting down. It processed nothing of the sessions that it had not finished."""

    detail: bytes


@dataclass(slots=True)
class ErrorReceived:
    """The peer reports that this end broke the protocol."""

    detail: bytes


@dataclass(slots=True)
class ConnectionEnded:
    """The peer ended the byte stream."""


Event = (
    ConnectionEstablished
    | SessionOpened
    | DataReceived
    | DataFinished
    | RequestReceived
    | ResponseReceived
    | SessionAborted
    | SessionEnded
    | SessionFailed
    | SessionDrained
    | Acknowledged
    | PingReceived
    | PingAcknowledged
    | ShutDown
    | ErrorReceived
    | ConnectionEnded
)
