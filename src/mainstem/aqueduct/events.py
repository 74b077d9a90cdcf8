"""The events of an `AqueductEngine`, for its application, and its commands, for its QUIC connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from mainstem.aqueduct.state import direct
from mainstem.errors import Delivery

if TYPE_CHECKING:
    from mainstem.aqueduct.codec import Headers
    from mainstem.aqueduct.state import ReceiverState, SenderState


@direct
class Mode(Enum):
    """How a sender's messages travel.

    Example:
        >>> sender.configure(mode=Mode.UNRELIABLE)
    """

    ORDERED = "ordered"
    """One QUIC stream: reliable, in order."""
    UNORDERED = "unordered"
    """A QUIC stream for each message: reliable, no message waits for another."""
    UNRELIABLE = "unreliable"
    """Datagrams: a message may be lost. One that is too large for a datagram goes on a stream, and is then reliable."""


@direct
class Attach(Enum):
    """Which half of a new channel goes with the message."""

    SENDER = "sender"
    """The peer sends, the receiver stays here."""
    RECEIVER = "receiver"
    """The peer receives, the sender stays here."""


@dataclass(slots=True)
class PeerHeaders:
    """The peer's connection headers came. A server responds with ``accept``."""

    headers: Headers


@dataclass(slots=True)
class Readable:
    """A receiver has messages, or reached its end."""

    channel_id: int


@dataclass(slots=True)
class Writable:
    """A sender that had refused a message has room again. ``owner`` is who it belongs to."""

    channel_id: int
    owner: Any = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Tally:
    """How far the messages of one sender, or of a whole connection, came.

    ``left`` counts those that were given to QUIC, ``acknowledged`` those among them that the peer has taken, ``waiting``
    those that never left this process.
    """

    left: int = 0
    acknowledged: int = 0
    waiting: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.left + other.left, self.acknowledged + other.acknowledged, self.waiting + other.waiting)

    @property
    def delivery(self) -> Delivery:
        """What a lost connection lets assume of them, as `mainstem.errors.ConnectionLost` has it."""
        if not self.left:
            return Delivery.NONE
        if self.waiting or 0 < self.acknowledged < self.left:
            return Delivery.PARTIAL
        return Delivery.UNKNOWN


NO_MESSAGES = Tally()


@dataclass(slots=True)
class SenderEnded:
    """A sender ceased to exist; ``state`` is its last.

    ``messages`` and ``size`` (in bytes) are of the reliable messages that were sent and never acknowledged. Where the
    connection ended, ``tally`` is of all the sender's messages.
    """

    channel_id: int
    state: SenderState
    messages: int = field(default=0, compare=False)
    size: int = field(default=0, compare=False)
    tally: Tally = field(default=NO_MESSAGES, compare=False)


@dataclass(slots=True)
class ReceiverEnded:
    """A receiver ceased to exist; ``state`` is its last. After ``FINISHED``, queued messages can still be received."""

    channel_id: int
    state: ReceiverState


@dataclass(slots=True)
class Acknowledged:
    """The message that was sent with ``tag`` was taken by a receiver that the peer's application can reach."""

    channel_id: int
    tag: object


@dataclass(slots=True)
class Lost:
    """The message that was sent with ``tag`` is never going to be delivered."""

    channel_id: int
    tag: object


@dataclass(slots=True)
class ConnectionEnded:
    """The connection is over. ``error`` is None after an orderly close by either side.

    ``tally`` is of all its messages, and ``unsent`` has the tags of those that never left.
    """

    error: Exception | None
    tally: Tally = field(default=NO_MESSAGES, compare=False)
    unsent: frozenset[object] = field(default=frozenset(), compare=False)


Event = PeerHeaders | Readable | Writable | SenderEnded | ReceiverEnded | Acknowledged | Lost | ConnectionEnded


@dataclass(slots=True)
class SendStream:
    """Write to a stream, which this opens if it is new. Ids are minted here, in the order that QUIC demands."""

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
    """One datagram."""

    data: bytes


@dataclass(slots=True)
class WatchDelivery:
    """Call ``stream_delivered`` once all that was written to the stream so far has reached the peer."""

    stream_id: int


@dataclass(slots=True)
class HoldStream:
    """Stop granting flow control credit to a stream (``held``), or go on."""

    stream_id: int
    held: bool


@dataclass(slots=True)
class HoldConnection:
    """Stop reading from the connection as a whole (``held``), or go on."""

    held: bool


@dataclass(slots=True)
class CloseConnection:
    """Close the QUIC connection with an application code."""

    code: int
    reason: str


Command = SendStream | ResetStream | SendDatagram | WatchDelivery | HoldStream | HoldConnection | CloseConnection
