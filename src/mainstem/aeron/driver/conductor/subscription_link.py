"""Subscriptions, their positions in a source, and the conductor's view of a source."""

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
    """The states of a subscriber that may be cut off when it stalls the others (docs/protocols/aeron.md, 19.6)."""

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
    """One channel that a subscription reads: its own or a destination. ``channel`` is the client's text."""

    channel: str
    params: SubscriptionParams


@mutable
class LocalInterest(Interest):
    """A local publication's channel; ``spied`` is the network publication's channel, None for IPC."""

    spied: UdpChannel | None

    def reads_ipc(self, session_id: int) -> bool:
        return self.spied is None and self._accepts_session(session_id)

    def reads_sent(self, channel: UdpChannel, session_id: int) -> bool:
        """Whether it spies on a session sent through ``channel``. A tag matches any session (docs/protocols/aeron.md, 19.5)."""
        if self.spied is None:
            return False
        if self.spied.tag is not None and self.spied.tag == channel.tag:
            return True
        return self.spied.canonical_form == channel.canonical_form and self._accepts_session(session_id)

    def _accepts_session(self, session_id: int) -> bool:
        return self.params.session_id is None or self.params.session_id == session_id


@mutable
class SubscriptionLink:
    """One registered subscription. ``interest`` is the channel that it was added with.

    ``receive_channel`` is where its network streams arrive; ``session_id`` limits them to one session, None to all. ``local``
    are the channels of this driver's publications that it reads.
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
        """Its own channel, if that receives the session's streams arriving through ``channel``.

        A subscription that waits for a response takes none before the session is known.
        """
        if self.receive_channel is not channel:
            return None
        if self.session_id is None:
            return None if self.params.is_response else self.interest
        return self.interest if self.session_id == session_id else None


@mutable
class SubscriberPosition:
    """One subscription's position in a source, and the channel it reads it through."""

    subscription: SubscriptionLink
    interest: Interest
    cell: CounterCell
    since_ns: int
    state: TetherState = TetherState.ACTIVE

    @property
    def is_counted(self) -> bool:
        return self.state in (TetherState.ACTIVE, TetherState.LINGER)


class StreamSource(Protocol):
    """A log that subscriptions read: an IPC publication, an image, or a spied network publication."""

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
