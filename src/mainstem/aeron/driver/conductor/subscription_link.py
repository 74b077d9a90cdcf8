"""Who reads a stream: a subscription, its position in one source, and what a source of frames is to the conductor."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.driver.conductor.endpoints import ReceiveEndpoint, SendEndpoint
    from mainstem.aeron.driver.conductor.subscription_params import SubscriptionParams


class SubscriptionKind(Enum):
    """Where a subscription's frames come from."""

    IPC = auto()
    NETWORK = auto()
    SPY = auto()


class TetherState(Enum):
    """The states of a subscriber that may be cut off when it holds the others back (aeron-behaviour §19.6)."""

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
class Subscription:
    """One registered subscription. ``channel`` is the text that its client sent.

    ``session_id`` is the only session it takes, None for all. ``endpoint`` is its receive endpoint (NETWORK); ``spied`` are the
    canonical channels that it spies on and ``ipc`` says whether it reads IPC publications: one of them for a simple
    subscription, any number where destinations were added.
    """

    registration_id: int
    client_id: int
    stream_id: int
    channel: str
    kind: SubscriptionKind
    params: SubscriptionParams
    session_id: int | None
    endpoint: ReceiveEndpoint | None = None
    spied: set[str] = field(default_factory=set)
    ipc: bool = False
    positions: dict[StreamSource, SubscriberPosition] = field(default_factory=dict)

    def accepts_session(self, session_id: int) -> bool:
        """Whether the subscription wants streams of that session; one that awaits an answer wants none before it is told."""
        if self.session_id is None:
            return not self.params.is_response or self.ipc
        return self.session_id == session_id

    def wants_ipc(self, stream_id: int) -> bool:
        """Whether it reads IPC publications of that stream."""
        return self.ipc and self.stream_id == stream_id

    def spies_on(self, endpoint: SendEndpoint) -> bool:
        """Whether it reads what leaves through ``endpoint``."""
        return endpoint.canonical_form in self.spied


@dataclass(eq=False, slots=True, kw_only=True)
class SubscriberPosition:
    """How far one subscription has read one source."""

    subscription: Subscription
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
    source_identity: str

    @property
    def subscribers(self) -> list[SubscriberPosition]:
        """Every subscriber linked to it, resting ones too."""
        ...

    @property
    def join_position(self) -> int:
        """Where a new subscriber begins to read."""
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
