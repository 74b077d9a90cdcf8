"""The events of a Jmux connection. ``session`` is the connection's own handle (:class:`..session.Session`).

Example:
    >>> while (event := connection.next_event()) is not None:
    ...     if isinstance(event, events.DataReceived):
    ...         connection.consume(event.session, len(event.data))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.jmux.session import Session


@dataclass(slots=True)
class ConnectionEstablished:
    """Both connection headers have passed; messages may be sent."""


@dataclass(slots=True)
class SessionOpened:
    """Server: the client opened a session."""

    session: Session


@dataclass(slots=True)
class DataReceived:
    """Bytes of the request or the response, in order; ``connection.consume(session, n)`` frees their room."""

    session: Session
    data: bytes


@dataclass(slots=True)
class DataFinished:
    """The peer has sent all of the request or response. ``ack_required``: the server asks for an acknowledgment."""

    session: Session
    ack_required: bool


@dataclass(slots=True)
class RequestReceived:
    """Server with ``joins_events``: a whole request that came in one message.

    It stands for SessionOpened, DataReceived and DataFinished, and for the SessionEnded of the session that had the id before.
    """

    session: Session
    data: bytes


@dataclass(slots=True)
class ResponseReceived:
    """Client with ``joins_events``: the last message of a response. It stands for DataReceived, DataFinished and SessionEnded."""

    session: Session
    data: bytes


@dataclass(slots=True)
class SessionAborted:
    """The peer ended the session abruptly. ``partial``: what it received may have been processed."""

    session: Session
    partial: bool
    detail: bytes


@dataclass(slots=True)
class SessionEnded:
    """Nothing more will pass for this session; its id may be used again."""

    session: Session


@dataclass(slots=True)
class SessionFailed:
    """The connection ended under the session; ``session.delivery`` is what may be assumed about the request."""

    session: Session


@dataclass(slots=True)
class SessionDrained:
    """The bytes queued on the session fell to its ``notify_below``."""

    session: Session


@dataclass(slots=True)
class Acknowledged:
    """Server: the client acknowledged the response (``positive``), or no longer can."""

    session: Session
    positive: bool


@dataclass(slots=True)
class PingReceived:
    """The peer sent a Ping, and the PingAck was queued."""

    cookie: int


@dataclass(slots=True)
class PingAcknowledged:
    """The peer's PingAck came ``rtt_ns`` after our Ping."""

    cookie: int
    rtt_ns: int


@dataclass(slots=True)
class ShutDown:
    """Client: the server shuts down; sessions that it had not finished were not processed at all."""

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
