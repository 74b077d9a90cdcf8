"""The numbers that offers and controlled polls speak in."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem.errors import AdminAction, BackPressured, ClosedError, MaxPositionExceeded, NotConnected

if TYPE_CHECKING:
    from mainstem.errors import MainstemError


class OfferStatus(IntEnum):
    """What an offer answers instead of a position (behaviour, section 11.1)."""

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
    """What the handler of a controlled poll answers (None is CONTINUE).

    ABORT does not consume the fragment: it comes again. BREAK ends the poll after it, COMMIT moves the position now.
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
    """The error that tells of a status."""
    kind, reason = _REASONS[OfferStatus(status)]
    return kind(f"{subject}: {reason}{waited}")
