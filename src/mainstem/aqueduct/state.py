"""The lifecycles of senders and receivers as tables: ``(state, input) -> next state``.

A pair that is not in its table cannot occur: invalid calls and frames are rejected earlier, the application's with
LocalProtocolError and the peer's with RemoteProtocolError. docs/protocols/aqueduct.md has drawings of both tables.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, TypeVar

E = TypeVar("E", bound=Enum)


def direct(kind: type[E]) -> type[E]:
    """Decorate an Enum so that its members are plain attributes of the class and are hashed by identity.

    Python 3.11 looks a member up through a descriptor written in Python, ten times slower than an attribute, and every version
    hashes a member by its name. Nothing else changes, because each member exists only once.
    """
    for name, member in kind.__members__.items():
        type.__setattr__(kind, name, member)
    type.__setattr__(kind, "__hash__", object.__hash__)
    return kind


@direct
class SenderState(Enum):
    """The states of a sender. From ``FINISHED`` on, the sender has ended (``is_final``)."""

    is_final: bool

    OPEN = auto()
    FINISH_PENDING = auto()
    """Finish was called, but FinishSender could not be sent yet."""
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
    """CloseReceiver arrived after every reliable message was acknowledged."""
    CLOSED_EARLY = auto()
    """CloseReceiver arrived before every reliable message was acknowledged."""
    LOSE = auto()
    DISCONNECT = auto()


@direct
class ReceiverState(Enum):
    """The states of a receiver. From ``FINISHED`` on, the receiver has ended on the wire (``is_final``)."""

    is_final: bool

    OPEN = auto()
    FINISHING = auto()
    """FinishSender arrived, but not every message is accounted for."""
    CLOSE_PENDING = auto()
    """The application closed the receiver; there is no control stream yet."""
    FINISHED = auto()
    """Every message is accounted for. Queued messages can still be received."""
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
    """The application closes the receiver, which has a control stream."""
    CLOSE_UNATTACHED = auto()
    """The application closes the receiver, which has no control stream yet."""
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
    # The sender also waits for queued messages, so it can have a control stream on which the last frame arrives.
    (_S.FINISH_PENDING, _I.CLOSED_COMPLETE): _S.NO_RECEIVERS,
    (_S.FINISH_PENDING, _I.CLOSED_EARLY): _S.NO_RECEIVERS,
    (_S.FINISHING, _I.FINISH): _S.FINISHING,
    # The last frame has been sent and its direction is closed, so it is too late to cancel.
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
    # A receiver that has ended can still be lost with its creating message, if that has not arrived yet.
    (_R.FINISHED, _J.LOSE): _R.LOST,
    (_R.CANCELLED, _J.LOSE): _R.LOST,
}

for _receiver_state in ReceiverState:
    if not _receiver_state.is_final:
        RECEIVER_TABLE[_receiver_state, _J.LOSE] = _R.LOST
        RECEIVER_TABLE[_receiver_state, _J.DISCONNECT] = _R.DISCONNECTED

TABLE: dict[tuple[Any, Any], Any] = {**SENDER_TABLE, **RECEIVER_TABLE}
"""Both tables combined."""
