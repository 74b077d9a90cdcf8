"""What a server or client of bymux, Jmux or Aqueduct has done, and what it has now: the figures behind ``stats()``.

An endpoint is a server, or a client with however many connections it opens one after another. All connections of an endpoint
count into one ``EndpointCounters``, so that its counters never fall when a connection ends. They count in the event loop's
thread. ``stats`` may be called in any thread: it reads integers, and copies of collections.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from mainstem.errors import ClosedError, ConnectionLost, RemoteProtocolError, Timeout


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
        """Count the end of a connection that was open, by its cause: ``None`` and ``ClosedError`` are ends in order."""
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

    def add(self, other: EndpointCounters) -> None:
        """Add every counter of another instance."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointStats:
    """What a server or client of bymux, Jmux or Aqueduct has at one moment, and what it has counted since it began.

    Attributes:
        protocol: ``bymux``, ``jmux`` or ``aqueduct``.
        role: ``server`` or ``client``.
        closed: Whether the endpoint has ended, so that its counters stay as they are.
        connections: Connections that are open now.
        streams: Streams that are open now: bymux's streams, Jmux's sessions, Aqueduct's channel halves.
        unsent_bytes: Bytes that were written here and wait for the peer: its credit, its ration, its acknowledgment (Aqueduct).
        unread_bytes: Bytes that have arrived and that the program has not read.
        connections_opened: Connections that were opened.
        connections_closed: Of these, those that ended in order.
        connections_lost: Those whose transport broke, or whose peer left.
        connections_timed_out: Those whose peer was silent for too long.
        protocol_errors: Those that ended because a rule of the protocol was broken.
        connections_failed: Those that ended for another error, such as a handler's.
        connections_unreached: Attempts that did not become a connection: no server, or no handshake.
        connections_refused: Connections that a server did not take: one too many, in all or of one address.
        connections_idle_closed: Connections that a server ended because they had sent nothing.
        streams_opened: Streams that were opened, by either end.
        handlers_failed: Handlers that raised.
        bytes_received: Bytes that came from the transport: after TLS; of Aqueduct the UDP payloads.
        bytes_sent: Bytes that were handed to the transport.

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


def counters(traffic: EndpointCounters) -> dict[str, int]:
    """Return the counters by their names, which are those of ``EndpointStats``."""
    return {field.name: getattr(traffic, field.name) for field in fields(traffic)}
