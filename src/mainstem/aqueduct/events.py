"""The events of an `AqueductEngine` for the application, and its commands for the QUIC connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from mainstem.aqueduct.state import direct
from mainstem.errors import Delivery

if TYPE_CHECKING:
    from mainstem.aqueduct.frames import Headers
    from mainstem.aqueduct.state import ReceiverState, SenderState


@direct
class Mode(Enum):
    """How a sender's messages travel.

    Example:
        >>> sender.configure(mode=Mode.UNRELIABLE)
    """

    ORDERED = "ordered"
    """Messages travel on one QUIC stream, reliably and in order."""
    UNORDERED = "unordered"
    """Each message travels on its own QUIC stream, reliably; no message waits for another."""
    UNRELIABLE = "unreliable"
    """Messages travel in datagrams and can be lost. A message too large for a datagram travels on a stream, reliably."""


@direct
class Attach(Enum):
    """The half of a new channel that travels with the message."""

    SENDER = "sender"
    """The peer gets the sender; the receiver stays here."""
    RECEIVER = "receiver"
    """The peer gets the receiver; the sender stays here."""


class SendProgress(NamedTuple):
    """The numbers of messages of a sender or connection that were sent, were acknowledged, and are still queued here."""

    sent: int = 0
    acknowledged: int = 0
    queued: int = 0

    def __add__(self, other: SendProgress) -> SendProgress:  # type: ignore[override]
        return SendProgress(self.sent + other.sent, self.acknowledged + other.acknowledged, self.queued + other.queued)

    @property
    def delivery(self) -> Delivery:
        """Whether the messages were delivered, as far as is known, if the connection is lost now."""
        if not self.sent:
            return Delivery.NONE
        if self.queued or 0 < self.acknowledged < self.sent:
            return Delivery.PARTIAL
        return Delivery.UNKNOWN


NO_PROGRESS = SendProgress()


@dataclass(slots=True)
class PeerHeaders:
    """The peer's connection headers arrived. A server responds with ``accept``."""

    headers: Headers


@dataclass(slots=True)
class Writable:
    """A sender that had refused a message has room again. ``owner`` is the sender's owner."""

    channel_id: int
    owner: Any = field(default=None, compare=False)


@dataclass(slots=True)
class SenderEnded:
    """A sender without an owner has ended; ``state`` is its final state."""

    channel_id: int
    state: SenderState


@dataclass(slots=True)
class ReceiverEnded:
    """A receiver without an owner has ended on the wire. After ``FINISHED``, queued messages can still be received."""

    channel_id: int
    state: ReceiverState


@dataclass(slots=True)
class Acknowledged:
    """A receiver that the peer's application can reach has processed the message sent with ``tag``."""

    channel_id: int
    tag: object


@dataclass(slots=True)
class Lost:
    """The message sent with ``tag`` will never be delivered."""

    channel_id: int
    tag: object


@dataclass(slots=True)
class ConnectionEnded:
    """The connection has ended. ``error`` is None after an orderly close by either side.

    ``progress`` counts all messages of the connection, and ``unsent`` holds the tags of those that were never sent.
    """

    error: Exception | None
    progress: SendProgress = field(default=NO_PROGRESS, compare=False)
    unsent: frozenset[object] = field(default=frozenset(), compare=False)


Event = PeerHeaders | Writable | SenderEnded | ReceiverEnded | Acknowledged | Lost | ConnectionEnded


@dataclass(slots=True)
class SendStream:
    """Write to a stream, opening it if it is new. The engine mints the ids, in the order that QUIC requires."""

    stream_id: int
    data: bytes
    fin: bool


@dataclass(slots=True)
class ResetStream:
    """End this side's direction of a stream abruptly."""

    stream_id: int
    code: int


@dataclass(slots=True)
class SendDatagram:
    data: bytes


@dataclass(slots=True)
class WatchDelivery:
    """Call ``stream_delivered`` once everything written to the stream so far has reached the peer."""

    stream_id: int


@dataclass(slots=True)
class PauseStream:
    """Stop granting flow control credit to a stream, or resume."""

    stream_id: int
    paused: bool


@dataclass(slots=True)
class PauseConnection:
    """Stop reading from the connection as a whole, or resume."""

    paused: bool


@dataclass(slots=True)
class CloseConnection:
    code: int
    reason: str


Command = SendStream | ResetStream | SendDatagram | WatchDelivery | PauseStream | PauseConnection | CloseConnection
