"""The messages of the sender and the receiver to the conductor, which handles them in its duty cycle.

Messages identify streams by registration id and hold endpoints themselves. They are immutable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from mainstem._internal.frozen import frozen
from mainstem.aeron.driver.agent_queue import AgentQueue

if TYPE_CHECKING:
    from mainstem.aeron.driver.media.endpoints import ReceiveChannelEndpoint, ReceiveDestination, SendChannelEndpoint


@frozen
class CreateImage:
    """A SETUP arrived for a subscribed session without an image. ``source`` is its packed source address.

    The conductor responds with ``add_image`` or ``refuse_image``.
    """

    endpoint: ReceiveChannelEndpoint
    transport_index: int
    session_id: int
    stream_id: int
    initial_term_id: int
    active_term_id: int
    term_offset: int
    term_length: int
    mtu: int
    ttl: int
    flags: int
    source: bytes


@frozen
class PublicationError:
    """A receiver sent an ERR frame (docs/protocols/aeron.md, 21).

    ``destination_registration_id`` is the id of the command that added the destination, or -1.
    """

    registration_id: int
    destination_registration_id: int
    receiver_id: int
    group_tag: int | None
    source: bytes
    code: int
    text: str


@frozen
class ResponseSetupReceived:
    """A receiver announced the session that responds to a request publication (RSP_SETUP; docs/protocols/aeron.md, 20)."""

    registration_id: int
    response_session_id: int
    source: bytes


@frozen
class ResponseConnected:
    """A response publication has its first receiver, so its session no longer needs to be announced."""

    registration_id: int


@frozen
class LossObserved:
    """The receiver detected newly missing bytes of an image."""

    registration_id: int
    bytes_lost: int
    now_ns: int


@frozen
class ImageEndOfStream:
    """All live connections of an image announced the end of the stream, and all of it arrived, or the stream was revoked."""

    registration_id: int
    position: int
    revoked: bool


@frozen
class EndpointClosed:
    """An endpoint's sockets are closed, so its counters can be freed."""

    endpoint: SendChannelEndpoint | ReceiveChannelEndpoint


@frozen
class DestinationClosed:
    """A destination's socket is closed, after ``remove_destination``."""

    destination: ReceiveDestination


@frozen
class PublicationReleased:
    """The sender will not touch the publication's log or counters again."""

    registration_id: int


@frozen
class ImageReleased:
    """The receiver will not touch the image's log or counters again."""

    registration_id: int


@frozen
class ResolveAgain:
    """A peer is silent, so its name may have a new address.

    ``destination`` identifies one of several destinations of the endpoint, or is -1.
    """

    endpoint: SendChannelEndpoint | ReceiveChannelEndpoint
    name: str
    address: bytes
    destination: int


@frozen
class NetworkFault:
    """A failure to enter in the error log. The text says what failed and where."""

    text: str


@frozen
class PeerFault:
    """A peer's error to enter in the error log, with one entry per ``kind`` and source. ``source`` is its packed address."""

    kind: str
    source: bytes
    text: str


class AgentFailed(NamedTuple):
    """An agent raised in its duty cycle and continues."""

    agent: str
    error: Exception


Message = (
    CreateImage
    | PublicationError
    | ResponseSetupReceived
    | ResponseConnected
    | LossObserved
    | ImageEndOfStream
    | EndpointClosed
    | DestinationClosed
    | PublicationReleased
    | ImageReleased
    | ResolveAgain
    | NetworkFault
    | PeerFault
    | AgentFailed
)


class ConductorQueue(Protocol):
    def append(self, item: Message, /) -> None: ...

    def __len__(self) -> int: ...


class DriverConductorProxy(AgentQueue[Message]):
    """The conductor's message queue, to which the sender, the receiver and the threads append."""
