"""The base of both multiplexers' engines, which are state machines without I/O.

An engine has six operations. Its driver (:class:`mainstem.mux.protocol.BaseProtocol`, a test, or an application's own loop)
calls them. The engine never calls back, reads no clock, and starts no task:

* ``receive_data(data, now_ns)`` and ``receive_eof(now_ns)`` take the transport's input;
* ``next_event()`` returns the resulting events, oldest first (``events`` holds them until then);
* ``segments_to_send(limit)`` (or ``data_to_send``) returns the next bytes for the transport;
* ``next_timeout_ns()`` and ``handle_timeout(now_ns)`` are its only relation to time. The engine sets ``timeout_moved`` when the
  next timeout may have become earlier; the driver clears it when it asks for the timeout.

Invariants:

* All calls come from one thread. No operation waits, so every effect of a call is complete when it returns.
* Bytes are sent in this order: first the control buffer (pongs, credit, the ends of idle streams), then one packet of each
  stream in turn. Within a stream, bytes keep the order of the calls. Between streams, and between control and data, packets
  can be reordered, which the protocols allow. A message that must follow a stream's data (its Close) is sent in the stream's
  turn, never through the control buffer.
* ``failure`` is set once and is final. Afterward every command raises ``ClosedError``, and ``next_event`` still returns the
  earlier events.
* The amount of data that a peer can make this end store is bounded: by the windows that this end granted, by
  ``control_limit`` for responses that the peer does not read, and by ``MAX_OUTSTANDING_PINGS``. The responses to one input are
  not longer than the input, and do not count until the driver has offered them to the transport, which is before the next input.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar, Generic, NoReturn, TypeVar

from mainstem._core.mux.queues import RoundRobin
from mainstem.errors import ClosedError
from mainstem.mux.heartbeat import Heartbeat

if TYPE_CHECKING:
    from mainstem.errors import MainstemError
    from mainstem.mux.settings import ConnectionSettings

# Default limit in bytes of one data_to_send call: small enough that a small message does not wait long.
SEND_LIMIT = 256 * 1024
# A message of at most this many bytes can be sent alone, joined with its header. A longer one is queued.
LONE_BYTES = 4096
# Maximum number of this end's outstanding pings, for the connection and for each stream.
MAX_OUTSTANDING_PINGS = 64


class Rule(str):
    """The name of a broken rule. In a state table, it takes the place of the next state."""

    __slots__ = ()


E = TypeVar("E")


class BaseEngine(Generic[E]):
    """Base class of engines with events of type ``E``.

    Attributes:
        events: Events that have not been fetched yet, oldest first. A driver can take them from the left.
        failure: The error that ended the connection; ``None`` while it is alive.
        timeout_moved: Whether the next timeout may have become earlier. The driver clears it when it asks for the timeout.
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

    def _check_control_limit(self) -> None:
        """End the connection if the responses to earlier input are still here, because the transport does not take them."""
        if len(self._control) > self.settings.control_limit:
            self._violated(
                "answers-not-read",
                f"{len(self._control)} bytes of responses wait for a peer that does not read "
                f"(control_limit is {self.settings.control_limit})",
            )

    def _violated(self, rule: str, report: str) -> NoReturn:
        """End the connection because the peer broke a rule, and raise RemoteProtocolError."""
        raise NotImplementedError

    def receive_eof(self, now_ns: int = 0) -> None:
        """Process the end of the peer's bytes."""
        raise NotImplementedError

    def next_event(self) -> E | None:
        """Return the oldest event that has not been fetched; None if there is none."""
        return self.events.popleft() if self.events else None

    @property
    def wants_to_send(self) -> bool:
        raise NotImplementedError

    def data_to_send(self, limit: int = SEND_LIMIT) -> bytes:
        """Return the next bytes for the transport: responses and credit first, then one packet of each stream in turn."""
        return b"".join(self.segments_to_send(limit))

    def segments_to_send(self, limit: int = SEND_LIMIT) -> list[bytes | memoryview]:
        """Return the bytes of :meth:`data_to_send` as uncopied segments, for transports that can gather.

        If there are fewer bytes than ``limit``, they are all that can be sent now.
        """
        raise NotImplementedError

    def next_timeout_ns(self) -> int | None:
        """Return the time at which :meth:`handle_timeout` is due next; None if no timer is set."""
        raise NotImplementedError

    def handle_timeout(self, now_ns: int) -> None:
        """Run the timers that are due at ``now_ns``."""
        raise NotImplementedError

    def _check_alive(self) -> None:
        if self.failure is not None:
            raise ClosedError(
                f"the {self.PROTOCOL} connection to {self.peer_name} is over: {self.failure}"
            ) from self.failure
