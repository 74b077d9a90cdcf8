"""The readers of a stream: subscriptions, their positions in one source, and what a source of frames is to the conductor."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.driver.conductor.channels import ReceiveChannel, SendChannel
    from mainstem.aeron.driver.conductor.params import SubscriptionParams


class SubscriptionKind(Enum):
    """Where a subscription's frames come from."""

    IPC = auto()
    NETWORK = auto()
    SPY = auto()


class TetherState(Enum):
    """The states of a subscriber that may be cut off when it holds the others back (docs/protocols/aeron.md, 19.6)."""

    ACTIVE = auto()
    LINGER = auto()
    RESTING = auto()
    CLOSED = auto()

    @property
    def successors(self) -> frozenset[TetherState]:
        """Where it may go from here."""
        return _TETHER_SUCCESSORS[self]


_TETHER_SUCCESSORS = {
    TetherState.ACTIVE: frozenset({TetherState.LINGER}),
    TetherState.LINGER: frozenset({TetherState.RESTING, TetherState.CLOSED}),
    TetherState.RESTING: frozenset({TetherState.ACTIVE}),
    TetherState.CLOSED: frozenset[TetherState](),
}


@dataclass(eq=False, slots=True, kw_only=True)
class SubscriptionLink:
    """One registered subscription. ``channel`` is the text that its client sent.

    ``session_id`` is the only session it takes, None for all. ``receive_channel`` is where its streams arrive (NETWORK);
    ``spied`` are the canonical channels that it spies on and ``ipc`` says whether it reads IPC publications: one of the three
    for a simple subscription, any number where destinations were added.
    """

    registration_id: int
    client_id: int
    stream_id: int
    channel: str
    kind: SubscriptionKind
    params: SubscriptionParams
    session_id: int | None
    receive_channel: ReceiveChannel | None = None
    spied: set[str] = field(default_factory=set)
    ipc: bool = False
    positions: dict[StreamSource, SubscriberPosition] = field(default_factory=dict)

    def accepts_session(self, session_id: int) -> bool:
        """Whether it takes streams of that session; one that waits for a response takes none before the session is known."""
        if self.session_id is None:
            return not self.params.is_response or self.ipc
        return self.session_id == session_id

    def spies_on(self, channel: SendChannel) -> bool:
        """Whether it reads what is sent through ``channel``."""
        return channel.canonical_form in self.spied


@dataclass(eq=False, slots=True, kw_only=True)
class SubscriberPosition:
    """How far one subscription has read one source."""

    subscription: SubscriptionLink
    cell: CounterCell
    since_ns: int
    state: TetherState = TetherState.ACTIVE

    @property
    def is_counted(self) -> bool:
        """Whether flow control waits for it."""
        return self.state in (TetherState.ACTIVE, TetherState.LINGER)


class StreamSource(Protocol):
    """A log that subscriptions read: an IPC publication, an image, or a network publication that is spied on."""

    registration_id: int
    session_id: int
    stream_id: int
    log_file: str
    subscribers: list[SubscriberPosition]

    @property
    def source_identity(self) -> str:
        """What its clients see as the image's source."""
        ...

    @property
    def join_position(self) -> int:
        """Where a new subscriber begins to read."""
        ...

    def is_read_by(self, subscription: SubscriptionLink) -> bool:
        """Whether the subscription's channel is this source's; stream and session are not compared."""
        ...

    def add_subscriber(self, position: SubscriberPosition) -> None:
        """From now on the source's limits wait for ``position``."""
        ...

    def remove_subscriber(self, position: SubscriberPosition) -> None:
        """No longer waits for it."""
        ...

    def rest_subscriber(self, position: SubscriberPosition) -> None:
        """No longer waits for it, but keeps it in ``subscribers``."""
        ...
