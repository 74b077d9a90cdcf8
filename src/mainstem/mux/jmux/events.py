"""What a Jmux connection tells its user. ``session`` is the connection's own handle (:class:`..session.Session`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.mux.jmux.session import Session


@dataclass(slots=True)
class ConnectionEstablished:
    """Both connection headers have passed; messages may be sent."""


@dataclass(slots=True)
class SessionOpened:
    """Server: the client opened a session."""

    session: Session


@dataclass(slots=True)
class DataReceived:
    """Bytes of the request or the response. Say ``connection.consume(session, n)`` once they take up no more room."""

    session: Session
    data: bytes


@dataclass(slots=True)
class DataFinished:
    """The peer has sent all of the request or response. ``ack_required``: the server asks for an acknowledgment."""

    session: Session
    ack_required: bool


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
    """The connection ended under the session; ``session.delivery`` says whether it may be retried."""

    session: Session


@dataclass(slots=True)
class SessionDrained:
    """What waits to be sent fell to the level that was asked for with ``notify_below``."""

    session: Session


@dataclass(slots=True)
class Acknowledged:
    """Server: the client finished processing the response (``positive``), or never will say so."""

    session: Session
    positive: bool


@dataclass(slots=True)
class PingReceived:
    """The peer asked for a sign of life, and was answered."""

    cookie: int


@dataclass(slots=True)
class PingAcknowledged:
    """The peer answered a ping after ``rtt_ns``."""

    cookie: int
    rtt_ns: int


@dataclass(slots=True)
class ShutDown:
    """Client: the server shuts down; sessions that it had not finished were not processed at all."""

    detail: bytes


@dataclass(slots=True)
class ErrorReceived:
    """The peer says that we broke the protocol."""

    detail: bytes


@dataclass(slots=True)
class ConnectionEnded:
    """The peer ended the byte stream."""


Event = (
    ConnectionEstablished
    | SessionOpened
    | DataReceived
    | DataFinished
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
