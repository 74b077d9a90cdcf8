"""Subscriptions, their positions in the streams they read, and the conductor's view of such a stream."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from mainstem._internal.frozen import mutable

if TYPE_CHECKING:
    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.driver.conductor.channels import ReceiveChannel
    from mainstem.aeron.driver.conductor.params import SubscriptionParams
    from mainstem.aeron.driver.media.udp_channel import UdpChannel


class TetherState(Enum):
    """The states of a subscriber (docs/protocols/aeron.md, 19.6).

    Only an untethered subscriber leaves ACTIVE, when it stalls the others. A CLOSED one has no counter any more.
    """

    ACTIVE = auto()
    LINGER = auto()
    RESTING = auto()
    CLOSED = auto()

    @property
    def successors(self) -> frozenset[TetherState]:
        return _TETHER_SUCCESSORS[self]


_TETHER_SUCCESSORS = {
    TetherState.ACTIVE: frozenset({TetherState.LINGER}),
    TetherState.LINGER: frozenset({TetherState.RESTING, TetherState.CLOSED}),
    TetherState.RESTING: frozenset({TetherState.ACTIVE}),
    TetherState.CLOSED: frozenset[TetherState](),
}


@mutable
class Interest:
    """A channel that a subscription reads, which is its own channel or a destination. ``channel`` is the client's text."""

    channel: str
    params: SubscriptionParams


@mutable
class LocalInterest(Interest):
    """A channel of local publications that a subscription reads.

    ``spied`` is the channel of the network publications to spy on, or None for IPC.
    """

    spied: UdpChannel | None

    def reads_ipc(self, session_id: int) -> bool:
        return self.spied is None and self._accepts_session(session_id)

    def reads_sent(self, channel: UdpChannel, session_id: int) -> bool:
        """Return whether this channel spies on a session sent through ``channel``.

        If the tags are the same, all sessions match (docs/protocols/aeron.md, 19.5).
        """
        if self.spied is None:
            return False
        if self.spied.tag is not None and self.spied.tag == channel.tag:
            return True
        return self.spied.canonical_form == channel.canonical_form and self._accepts_session(session_id)

    def _accepts_session(self, session_id: int) -> bool:
        return self.params.session_id is None or self.params.session_id == session_id


@mutable
class SubscriptionLink:
    """A registered subscription. ``interest`` is the channel with which the client added it.

    ``receive_channel`` is the open channel for its network streams, of which it reads only session ``session_id``, or all if that
    is None. ``local`` are the channels of this driver's publications that it reads.
    """

    registration_id: int
    client_id: int
    stream_id: int
    interest: Interest
    session_id: int | None
    local: list[LocalInterest]
    positions: dict[StreamSource, SubscriberPosition]
    receive_channel: ReceiveChannel | None = None

    @property
    def channel(self) -> str:
        return self.interest.channel

    @property
    def params(self) -> SubscriptionParams:
        return self.interest.params

    def interest_in_ipc(self, session_id: int) -> Interest | None:
        return next((each for each in self.local if each.reads_ipc(session_id)), None)

    def interest_in_sent(self, channel: UdpChannel, session_id: int) -> Interest | None:
        return next((each for each in self.local if each.reads_sent(channel, session_id)), None)

    def interest_in_received(self, channel: ReceiveChannel, session_id: int) -> Interest | None:
        """Return the subscription's own channel if it receives a session that arrives through ``channel``, else None.

        A subscription for responses receives nothing until its session is known.
        """
        if self.receive_channel is not channel:
            return None
        if self.session_id is None:
            return None if self.params.is_response else self.interest
        return self.interest if self.session_id == session_id else None


@mutable
class SubscriberPosition:
    """The position of a subscription in a stream, and the channel through which it reads the stream."""

    subscription: SubscriptionLink
    interest: Interest
    cell: CounterCell
    since_ns: int
    state: TetherState = TetherState.ACTIVE

    @property
    def is_counted(self) -> bool:
        return self.state in (TetherState.ACTIVE, TetherState.LINGER)


class StreamSource(Protocol):
    """A stream that subscriptions read: an IPC publication, an image, or a network publication with spies."""

    registration_id: int
    session_id: int
    stream_id: int
    log_file: str
    is_ipc: bool
    subscribers: list[SubscriberPosition]

    @property
    def source_identity(self) -> str: ...

    @property
    def join_position(self) -> int: ...

    def interest_of(self, subscription: SubscriptionLink) -> Interest | None: ...

    def add_subscriber(self, position: SubscriberPosition) -> None: ...

    def remove_subscriber(self, position: SubscriberPosition) -> None: ...

    def rest_subscriber(self, position: SubscriberPosition) -> None: ...

    def on_unlinked(self, now_ns: int) -> None: ...
