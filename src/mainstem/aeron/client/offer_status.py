"""The status codes of offers and the actions of controlled polls."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem.errors import AdminAction, BackPressured, ClosedError, MaxPositionExceeded, NotConnected

if TYPE_CHECKING:
    from mainstem.errors import MainstemError


class OfferStatus(IntEnum):
    """A negative result of an offer (docs/protocols/aeron.md, 11.1).

    Attributes:
        NOT_CONNECTED: No subscriber is connected.
        BACK_PRESSURED: The window is full: a subscriber is slower than this publisher. Offer again.
        ADMIN_ACTION: The log is rotating to its next term. Offer again immediately.
        CLOSED: The publication or its client is closed.
        MAX_POSITION_EXCEEDED: The stream has used up all its positions. Only a new publication can continue.

    Example:
        >>> position = publication.offer(b"tick")
        >>> if position < 0:
        ...     print(OfferStatus(position).name)
    """

    NOT_CONNECTED = layout.OFFER_NOT_CONNECTED
    BACK_PRESSURED = layout.OFFER_BACK_PRESSURED
    ADMIN_ACTION = layout.OFFER_ADMIN_ACTION
    CLOSED = layout.OFFER_CLOSED
    MAX_POSITION_EXCEEDED = layout.OFFER_MAX_POSITION_EXCEEDED

    @property
    def is_final(self) -> bool:
        """Whether another offer can never succeed."""
        return self in (OfferStatus.CLOSED, OfferStatus.MAX_POSITION_EXCEEDED)


class Action(IntEnum):
    """What the handler of a controlled poll returns; None means CONTINUE.

    Attributes:
        ABORT: End the poll without consuming this fragment. The next poll delivers it again.
        BREAK: Consume this fragment and end the poll.
        COMMIT: Move the position past this fragment now and continue the poll.
        CONTINUE: Continue the poll. The position moves when the poll ends.

    Example:
        >>> subscription.controlled_poll(lambda fragment: Action.CONTINUE if store(fragment) else Action.ABORT)
    """

    ABORT = layout.ACTION_ABORT
    BREAK = layout.ACTION_BREAK
    COMMIT = layout.ACTION_COMMIT
    CONTINUE = layout.ACTION_CONTINUE


_REASONS: dict[OfferStatus, tuple[type[MainstemError], str]] = {
    OfferStatus.NOT_CONNECTED: (NotConnected, "no subscriber is connected"),
    OfferStatus.BACK_PRESSURED: (BackPressured, "the window is full: a subscriber is slower than this publisher"),
    OfferStatus.ADMIN_ACTION: (AdminAction, "the log was rotating"),
    OfferStatus.CLOSED: (ClosedError, "it is closed"),
    OfferStatus.MAX_POSITION_EXCEEDED: (MaxPositionExceeded, "the stream has used up its positions"),
}


def offer_error(status: int, subject: str, waited: str = "") -> MainstemError:
    kind, reason = _REASONS[OfferStatus(status)]
    return kind(f"{subject}: {reason}{waited}")
