"""The life of a sender and of a receiver as tables: ``(state, input) -> next state``.

A pair that is not in its table cannot happen: before the table is read, the application is refused with LocalProtocolError
and the peer with RemoteProtocolError. docs/aqueduct.md has drawings of both tables.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, TypeVar

E = TypeVar("E", bound=Enum)


def direct(kind: type[E]) -> type[E]:
    """Decorate an Enum: its members become plain attributes of the class, and are hashed by identity.

    Python 3.11 looks a member up through a descriptor written in Python, ten times slower than an attribute, and every
    version hashes it by its name. Nothing else changes: each member exists once.
    """
    for name, member in kind.__members__.items():
        type.__setattr__(kind, name, member)
    type.__setattr__(kind, "__hash__", object.__hash__)
    return kind


@direct
class SenderState(Enum):
    """Where a sender is in its life. From ``FINISHED`` on it has ceased to exist (``is_final``)."""

    is_final: bool

    OPEN = auto()
    FINISH_PENDING = auto()
    """Finish was called; there is no control stream yet."""
    FINISHING = auto()
    """FinishSender was sent; waiting for the receiver's last frame."""
    CANCEL_PENDING = auto()
    """Cancel was called; there is no control stream yet."""
    CANCELLING = auto()
    """The control stream was reset; acknowledgments still count until the receiver's last frame."""
    FINISHED = auto()
    CANCELLED = auto()
    NO_RECEIVERS = auto()
    """The receiver closed before the channel had finished."""
    LOST = auto()
    DISCONNECTED = auto()


for _state in SenderState:
    _state.is_final = _state.value >= SenderState.FINISHED.value


@direct
class SenderInput(Enum):
    """What can happen to a sender."""

    FINISH = auto()
    CANCEL = auto()
    ATTACHED = auto()
    """The control stream exists; the pending end can be carried out."""
    CLOSED_COMPLETE = auto()
    """CloseReceiver came, with every reliable message acknowledged."""
    CLOSED_EARLY = auto()
    """CloseReceiver came before every message was acknowledged."""
    LOSE = auto()
    DISCONNECT = auto()


@direct
class ReceiverState(Enum):
    """Where a receiver is in its life. From ``FINISHED`` on it has ceased to exist on the wire (``is_final``)."""

    is_final: bool

    OPEN = auto()
    FINISHING = auto()
    """FinishSender came; not every message is accounted for."""
    CLOSE_PENDING = auto()
    """The application closed it; there is no control stream yet."""
    FINISHED = auto()
    """All is accounted for. What is queued can still be received."""
    CLOSED = auto()
    CANCELLED = auto()
    LOST = auto()
    DISCONNECTED = auto()


for _receiver_state in ReceiverState:
    _receiver_state.is_final = _receiver_state.value >= ReceiverState.FINISHED.value


@direct
class ReceiverInput(Enum):
    """What can happen to a receiver."""

    FINISH_FRAME = auto()
    COMPLETE = auto()
    """Every declared message was received or given up."""
    CLOSE = auto()
    """The application closes it, and there is a control stream."""
    CLOSE_UNATTACHED = auto()
    """The application closes it before there is a control stream."""
    ATTACHED = auto()
    CANCEL = auto()
    LOSE = auto()
    DISCONNECT = auto()


_S, _I = SenderState, SenderInput

SENDER_TABLE: dict[tuple[SenderState, SenderInput], SenderState] = {
    (_S.OPEN, _I.FINISH): _S.FINISH_PENDING,
    (_S.OPEN, _I.CANCEL): _S.CANCEL_PENDING,
    (_S.OPEN, _I.CLOSED_COMPLETE): _S.NO_RECEIVERS,
    (_S.OPEN, _I.CLOSED_EARLY): _S.NO_RECEIVERS,
    (_S.FINISH_PENDING, _I.FINISH): _S.FINISH_PENDING,
    (_S.FINISH_PENDING, _I.CANCEL): _S.CANCEL_PENDING,
    (_S.FINISH_PENDING, _I.ATTACHED): _S.FINISHING,
    # It waits for queued messages too, so the control stream may exist and its last frame come.
    (_S.FINISH_PENDING, _I.CLOSED_COMPLETE): _S.NO_RECEIVERS,
    (_S.FINISH_PENDING, _I.CLOSED_EARLY): _S.NO_RECEIVERS,
    (_S.FINISHING, _I.FINISH): _S.FINISHING,
    # The last frame is out and its direction is closed: there is nothing left to cancel with.
    (_S.FINISHING, _I.CANCEL): _S.FINISHING,
    (_S.FINISHING, _I.CLOSED_COMPLETE): _S.FINISHED,
    (_S.FINISHING, _I.CLOSED_EARLY): _S.NO_RECEIVERS,
    (_S.CANCEL_PENDING, _I.CANCEL): _S.CANCEL_PENDING,
    (_S.CANCEL_PENDING, _I.FINISH): _S.CANCEL_PENDING,
    (_S.CANCEL_PENDING, _I.ATTACHED): _S.CANCELLING,
    (_S.CANCELLING, _I.CANCEL): _S.CANCELLING,
    (_S.CANCELLING, _I.FINISH): _S.CANCELLING,
    (_S.CANCELLING, _I.CLOSED_COMPLETE): _S.CANCELLED,
    (_S.CANCELLING, _I.CLOSED_EARLY): _S.CANCELLED,
}

for _state in SenderState:
    if not _state.is_final:
        SENDER_TABLE[_state, _I.LOSE] = _S.LOST
        SENDER_TABLE[_state, _I.DISCONNECT] = _S.DISCONNECTED

_R, _J = ReceiverState, ReceiverInput

RECEIVER_TABLE: dict[tuple[ReceiverState, ReceiverInput], ReceiverState] = {
    (_R.OPEN, _J.FINISH_FRAME): _R.FINISHING,
    (_R.OPEN, _J.CLOSE): _R.CLOSED,
    (_R.OPEN, _J.CLOSE_UNATTACHED): _R.CLOSE_PENDING,
    (_R.OPEN, _J.CANCEL): _R.CANCELLED,
    (_R.FINISHING, _J.COMPLETE): _R.FINISHED,
    (_R.FINISHING, _J.CLOSE): _R.CLOSED,
    (_R.FINISHING, _J.CANCEL): _R.CANCELLED,
    (_R.CLOSE_PENDING, _J.CLOSE_UNATTACHED): _R.CLOSE_PENDING,
    (_R.CLOSE_PENDING, _J.ATTACHED): _R.CLOSED,
    # A closed receiver whose creating message has not come yet may still be lost with it.
    (_R.FINISHED, _J.LOSE): _R.LOST,
    (_R.CANCELLED, _J.LOSE): _R.LOST,
}

for _receiver_state in ReceiverState:
    if not _receiver_state.is_final:
        RECEIVER_TABLE[_receiver_state, _J.LOSE] = _R.LOST
        RECEIVER_TABLE[_receiver_state, _J.DISCONNECT] = _R.DISCONNECTED

TABLE: dict[tuple[Any, Any], Any] = {**SENDER_TABLE, **RECEIVER_TABLE}
"""Both."""
