"""Counters and current state of a bymux, Jmux or Aqueduct server or client: the numbers behind ``stats()``.

An endpoint is a server, or a client with any number of successive connections. All connections of an endpoint count into one
``EndpointCounters``, so that its counters never fall when a connection ends. They count in the event loop's thread. Any thread
may call ``stats``: it reads integers, and copies of collections.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

from mainstem.errors import ClosedError, ConnectionLost, RemoteProtocolError, Timeout

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


@dataclass(slots=True)
class EndpointCounters:
    """The counters of an endpoint, which only grow."""

    connections_opened: int = 0
    connections_closed: int = 0
    connections_lost: int = 0
    connections_timed_out: int = 0
    protocol_errors: int = 0
    connections_failed: int = 0
    connections_unreached: int = 0
    connections_refused: int = 0
    connections_idle_closed: int = 0
    streams_opened: int = 0
    handlers_failed: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0

    def connection_ended(self, error: BaseException | None) -> None:
        """Count the end of an open connection by its cause: ``None`` and ``ClosedError`` are orderly ends."""
        if error is None or isinstance(error, ClosedError):
            self.connections_closed += 1
        elif isinstance(error, RemoteProtocolError):
            self.protocol_errors += 1
        elif isinstance(error, Timeout):
            self.connections_timed_out += 1
        elif isinstance(error, ConnectionLost):
            self.connections_lost += 1
        else:
            self.connections_failed += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointStats:
    """The current state of a bymux, Jmux or Aqueduct server or client, and its counters since it started.

    Attributes:
        protocol: ``bymux``, ``jmux`` or ``aqueduct``.
        role: ``server`` or ``client``.
        closed: Whether the endpoint has ended, so that its counters are final.
        connections: Connections that are open now.
        streams: Streams that are open now: bymux's streams, Jmux's sessions, Aqueduct's channel halves.
        unsent_bytes: Bytes written here that wait for the peer: its credit, its ration, or its acknowledgment (Aqueduct).
        unread_bytes: Bytes that have arrived and that the application has not read.
        connections_opened: Connections that were opened.
        connections_closed: Opened connections that ended in an orderly way.
        connections_lost: Opened connections whose transport broke, or whose peer left.
        connections_timed_out: Opened connections whose peer was silent for too long.
        protocol_errors: Opened connections that ended because a rule of the protocol was broken.
        connections_failed: Opened connections that ended because of another error, such as a handler's.
        connections_unreached: Attempts that did not become a connection: no server, or no handshake.
        connections_refused: Connections that a server refused because of its limits, in total or per address.
        connections_idle_closed: Connections that a server ended because they had sent nothing.
        streams_opened: Streams that were opened, by either end.
        handlers_failed: Handlers that raised.
        bytes_received: Bytes received from the transport: after TLS; for Aqueduct, the UDP payloads.
        bytes_sent: Bytes passed to the transport.

    Example:
        >>> listener.stats().connections
        3
    """

    protocol: str
    role: str
    closed: bool
    connections: int
    streams: int
    unsent_bytes: int
    unread_bytes: int
    connections_opened: int
    connections_closed: int
    connections_lost: int
    connections_timed_out: int
    protocol_errors: int
    connections_failed: int
    connections_unreached: int
    connections_refused: int
    connections_idle_closed: int
    streams_opened: int
    handlers_failed: int
    bytes_received: int
    bytes_sent: int


def add_counters(total: T, other: T) -> None:
    """Add every counter of a dataclass to another instance."""
    for field in fields(total):
        setattr(total, field.name, getattr(total, field.name) + getattr(other, field.name))


def counters(traffic: EndpointCounters) -> dict[str, int]:
    """Return the counters by name; ``EndpointStats`` uses the same names."""
    return {field.name: getattr(traffic, field.name) for field in fields(traffic)}
