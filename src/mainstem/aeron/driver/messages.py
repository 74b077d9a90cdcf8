"""What the sender and the receiver tell the conductor: put on its queue, handled in its next duty cycle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.aeron.driver.media.endpoints import ReceiveChannelEndpoint, SendChannelEndpoint
    from mainstem.aeron.driver.receiver.receiver_image import ReceiverImage
    from mainstem.aeron.driver.sender.sender_publication import SenderPublication


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateImage:
    """A SETUP of a session for which there is interest and no image. Answer with ``add_image`` or ``image_refused``.

    ``source`` is the packed address that the SETUP came from, ``control_address`` where status messages are to go.
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
    control_address: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationError:
    """A receiver refused a publication with an ERR frame (behaviour, 21)."""

    publication: SenderPublication
    receiver_id: int
    group_tag: int | None
    source: bytes
    code: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSetup:
    """A receiver told a request publication which session answers it (RSP_SETUP; behaviour, 20)."""

    publication: SenderPublication
    response_session_id: int
    source: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseConnected:
    """A response publication has its first receiver: nobody has to be told of its session any more."""

    publication: SenderPublication


@dataclass(frozen=True, slots=True, kw_only=True)
class LossObserved:
    """Bytes of an image were found missing; bytes reported before are not counted again."""

    image: ReceiverImage
    bytes_lost: int
    now_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageEndOfStream:
    """Every live connection of an image said that the stream ends."""

    image: ReceiverImage
    position: int
    revoked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointClosed:
    """An endpoint's sockets are closed; its counters may go."""

    endpoint: SendChannelEndpoint | ReceiveChannelEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationReleased:
    """The sender will not touch the publication's log or counters again."""

    publication: SenderPublication


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageReleased:
    """The receiver will not touch the image's log or counters again."""

    image: ReceiverImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveAgain:
    """A peer has been silent: its name may have another address by now. ``destination`` is the id of one of many, else -1."""

    endpoint: SendChannelEndpoint | ReceiveChannelEndpoint
    name: str
    address: bytes
    destination: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFault:
    """Something for the error log: what could not be done, and where."""

    text: str


ToConductor = (
    CreateImage
    | PublicationError
    | ResponseSetup
    | ResponseConnected
    | LossObserved
    | ImageEndOfStream
    | EndpointClosed
    | PublicationReleased
    | ImageReleased
    | ResolveAgain
    | NetworkFault
)
