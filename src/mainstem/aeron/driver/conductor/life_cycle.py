"""States that publications and images pass through, and the watch over a producer that stopped in the middle of a frame."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from mainstem.aeron.driver.conductor.untethered import TetherListener

if TYPE_CHECKING:
    from mainstem.aeron.driver.conductor.subscription_link import StreamSource


class PublicationState(Enum):
    """A publication's life (aeron-behaviour §14.6). A revoked one goes straight to LINGER."""

    ACTIVE = auto()
    DRAINING = auto()
    LINGER = auto()
    DONE = auto()

    @property
    def successors(self) -> frozenset[PublicationState]:
        """Where it may go from here."""
        return _PUBLICATION_SUCCESSORS[self]


_PUBLICATION_SUCCESSORS = {
    PublicationState.ACTIVE: frozenset({PublicationState.DRAINING, PublicationState.LINGER}),
    PublicationState.DRAINING: frozenset({PublicationState.LINGER}),
    PublicationState.LINGER: frozenset({PublicationState.DONE}),
    PublicationState.DONE: frozenset[PublicationState](),
}


class ImageState(Enum):
    """An image's life (aeron-behaviour §15.6). A revoked one goes straight to LINGER."""

    ACTIVE = auto()
    DRAINING = auto()
    LINGER = auto()
    DONE = auto()

    @property
    def successors(self) -> frozenset[ImageState]:
        """Where it may go from here."""
        return _IMAGE_SUCCESSORS[self]


_IMAGE_SUCCESSORS = {
    ImageState.ACTIVE: frozenset({ImageState.DRAINING, ImageState.LINGER}),
    ImageState.DRAINING: frozenset({ImageState.LINGER}),
    ImageState.LINGER: frozenset({ImageState.DONE}),
    ImageState.DONE: frozenset[ImageState](),
}


class PublicationListener(TetherListener, Protocol):
    """What the conductor does when a publication or an image moves on."""

    def on_lingering(self, source: StreamSource) -> None:
        """Its subscribers have read to the end, or are cut off: their clients are told that it is gone."""
        ...


class StuckPosition:
    """Tells when a position has stood still for too long while the producer is ahead of it (aeron-behaviour §11.7)."""

    __slots__ = ("_position", "_since_ns", "_timeout_ns")

    def __init__(self, timeout_ns: int, position: int, now_ns: int) -> None:
        self._timeout_ns = timeout_ns
        self._position = position
        self._since_ns = now_ns

    def is_stuck(self, position: int, producer_position: int, now_ns: int) -> bool:
        """Whether ``position`` is where it was a whole timeout ago and there is something to consume."""
        if position != self._position or position >= producer_position:
            self._position = position
            self._since_ns = now_ns
            return False
        if now_ns - self._since_ns < self._timeout_ns:
            return False
        self._since_ns = now_ns
        return True
