"""What control streams report about messages: acknowledgements, messages given up, and declarations of datagrams.

A receiver acknowledges what it has processed; a sender declares the unreliable messages that it has put into datagrams.
Both wait a little, so that one frame reports many messages, and each kind has one timer for the whole connection:
``state.ack_due_ns`` and ``state.declare_due_ns`` are the times at which every half on the matching list is due.

A report goes out earlier where waiting would cost more: an acknowledgement after ``Timing.ack_messages`` messages or
``Timing.ack_bytes`` bytes, a declaration and all acknowledgements before the last frame of a half. Without a control
stream nothing is sent; attaching one schedules what has accumulated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aqueduct.frames import AckNackUnreliable, AckReliable, SentUnreliable

if TYPE_CHECKING:
    from mainstem.aqueduct.channel_halves import ReceiverHalf, SenderHalf
    from mainstem.aqueduct.connection_state import ConnectionState


def schedule_ack(state: ConnectionState, receiver: ReceiverHalf) -> None:
    """Something is to be acknowledged: soon, or at once where much is."""
    if receiver.control is None:
        return
    timing = state.timing
    if receiver.unacked_count >= timing.ack_messages or receiver.unacked_bytes >= timing.ack_bytes:
        flush_acks(state, receiver)
    elif not receiver.ack_scheduled and (receiver.unacked_count or len(receiver.received)):
        receiver.ack_scheduled = True
        state.ack_list.append(receiver)
        if state.ack_due_ns is None:
            state.ack_due_ns = state.now_ns + timing.ack_delay_ns


def flush_acks(state: ConnectionState, receiver: ReceiverHalf, *, final: bool = False) -> None:
    """Send what can be acknowledged or given up now."""
    while counts := receiver.take_ack_reliable():
        state.write_control(receiver, AckReliable(counts).encode())
    while counts := receiver.take_ack_nack(final=final):
        state.write_control(receiver, AckNackUnreliable(counts).encode())


def acks_due(state: ConnectionState) -> None:
    """The delay of acknowledgements is over."""
    receivers, state.ack_list = state.ack_list, []
    state.ack_due_ns = None
    for receiver in receivers:
        receiver.ack_scheduled = False
        if not receiver.state.is_final and receiver.control is not None:
            flush_acks(state, receiver)


def schedule_declaration(state: ConnectionState, sender: SenderHalf) -> None:
    """Unreliable messages went out: declare them soon, several at once if more come."""
    state.declare_list[sender] = None
    if state.declare_due_ns is None:
        timing = state.timing
        delay = min(timing.declare_delay_ns, max(state.rtt_ns // 2, timing.declare_floor_ns))
        state.declare_due_ns = state.now_ns + delay


def declare(state: ConnectionState, sender: SenderHalf) -> None:
    """Declare the unreliable messages that are not declared yet, if the control stream is there."""
    count = sender.next_unreliable - sender.declared
    if count and sender.control is not None and not sender.control.out_done:
        sender.declared = sender.next_unreliable
        state.write_control(sender, SentUnreliable(count).encode())


def declare_due(state: ConnectionState) -> None:
    """The delay of declarations is over."""
    senders, state.declare_list = state.declare_list, {}
    state.declare_due_ns = None
    for sender in senders:
        # Without a control stream it is done when the stream is attached.
        if not sender.state.is_final:
            declare(state, sender)
