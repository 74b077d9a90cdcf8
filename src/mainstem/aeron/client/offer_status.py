"""The numbers that offers return and that handlers of controlled polls return."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem.errors import AdminAction, BackPressured, ClosedError, MaxPositionExceeded, NotConnected

if TYPE_CHECKING:
    from mainstem.errors import MainstemError


class OfferStatus(IntEnum):
    """What an offer returns instead of a position (docs/protocols/aeron.md, 11.1).

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
        """Whether offering again can never succeed."""
        return self in (OfferStatus.CLOSED, OfferStatus.MAX_POSITION_EXCEEDED)


class Action(IntEnum):
    """What the handler of a controlled poll returns; None is CONTINUE.

    ABORT does not consume the fragment: it comes again. BREAK ends the poll after it, COMMIT moves the position now.

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
    """Returns the error for a status."""
    kind, reason = _REASONS[OfferStatus(status)]
    return kind(f"{subject}: {reason}{waited}")
