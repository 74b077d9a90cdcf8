"""What both multiplexers share as engines: state machines without I/O.

An engine has six verbs. Its driver (:class:`mainstem.mux.connection.BaseConnection`, a test, or a program's own loop) calls them;
the engine never calls back, reads no clock and starts nothing:

* ``receive_data(data, now_ns)`` and ``receive_eof(now_ns)`` take what the transport delivered;
* ``next_event()`` returns what follows from it, oldest first (``events`` holds them until then);
* ``segments_to_send(limit)`` (or ``data_to_send``) returns what the transport should carry next;
* ``next_timeout_ns()`` and ``handle_timeout(now_ns)`` are its only relation to time. ``timeout_moved`` is set when the next
  timeout may be earlier than it was; the driver clears it when it asks.

Invariants:

* All calls come from one thread. No verb waits, so every effect of a call is complete when it returns.
* Bytes leave in three classes: the control buffer first (pongs, credit, the ends of idle streams), then one packet of each
  stream in turn. Within one stream order is the order of the calls; between streams, and between control and data, packets
  may be reordered, and the protocols allow it. Whatever must follow a stream's data (its Close) is sent by its turn, never by
  way of the control buffer.
* ``failure`` is set once and is final: after it every command raises ``ClosedError``, and ``next_event`` still returns the
  events from before it.
* What a peer can make this end store is bounded: by the windows that this end granted, by ``control_limit`` for responses
  that the peer does not read, and by ``MAX_OUTSTANDING_PINGS``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from mainstem._core.mux.queues import RoundRobin
from mainstem.errors import ClosedError
from mainstem.mux.heartbeat import Heartbeat

if TYPE_CHECKING:
    from mainstem.errors import MainstemError
    from mainstem.mux.settings import ConnectionSettings

# The default limit of one data_to_send: few enough bytes that a small message waits a short time.
SEND_LIMIT = 256 * 1024
# A message of at most this many bytes may leave alone, joined with its header; a longer one is queued.
LONE_BYTES = 4096
# Pings of this end that may be outstanding at once, for the connection and for each stream.
MAX_OUTSTANDING_PINGS = 64
# Responses (Pong, StopRead, Credit, PingAck, Abort) that wait because the peer does not read; beyond it the connection ends.
CONTROL_LIMIT = 1024 * 1024


class Rule(str):
    """The name of a broken rule; in a state table it is an entry in place of the next state."""

    __slots__ = ()


E = TypeVar("E")


class BaseEngine(Generic[E]):
    """The base of an engine, whose events are ``E``.

    Attributes:
        events: The events that were not fetched yet, oldest first; a driver may take them from the left.
        failure: What ended the connection; ``None`` while it is alive.
        timeout_moved: Whether the next timeout may be earlier than it was; the driver clears it when it asks.
        wants_to_send: Whether :meth:`data_to_send` would return anything.
    """

    PROTOCOL: ClassVar[str]
    settings: ConnectionSettings

    def __init__(self, settings: ConnectionSettings, *, now_ns: int, peer: str) -> None:
        self.settings = settings
        self.peer_name = peer
        self.failure: MainstemError | None = None
        self.events: deque[E] = deque()
        self._control = bytearray()
        self._ready = RoundRobin()
        self._carry = bytearray()
        self._heartbeat = Heartbeat.of(settings.ping_interval, settings.ping_timeout, now_ns=now_ns)
        self.timeout_moved = True

    def receive_data(self, data: bytes | bytearray | memoryview, now_ns: int = 0) -> None:
        """Parse bytes from the peer."""
        raise NotImplementedError

    def receive_eof(self, now_ns: int = 0) -> None:
        """Handle the end of the peer's bytes."""
        raise NotImplementedError

    def next_event(self) -> E | None:
        """Return the oldest event that was not yet fetched."""
        return self.events.popleft() if self.events else None

    @property
    def wants_to_send(self) -> bool:
        raise NotImplementedError

    def data_to_send(self, limit: int = SEND_LIMIT) -> bytes:
        """Return the next bytes for the transport: responses and credit first, then one packet of each stream in turn."""
        return b"".join(self.segments_to_send(limit))

    def segments_to_send(self, limit: int = SEND_LIMIT) -> list[bytes | memoryview]:
        """Return the bytes of :meth:`data_to_send` in pieces that were not copied, for transports that can gather.

        Fewer bytes than ``limit`` are all that may be sent now.
        """
        raise NotImplementedError

    def next_timeout_ns(self) -> int | None:
        """When :meth:`handle_timeout` is due next."""
        raise NotImplementedError

    def handle_timeout(self, now_ns: int) -> None:
        """Do what is due at ``now_ns``."""
        raise NotImplementedError

    def _check_alive(self) -> None:
        if self.failure is not None:
            raise ClosedError(
                f"the {self.PROTOCOL} connection to {self.peer_name} is over: {self.failure}"
            ) from self.failure
