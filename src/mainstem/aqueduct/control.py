"""Control streams: each half has one, on which its reports and its end travel.

A channel has a sender on one side and a receiver on the other. The side that minted its id created one half and attached
the other to a message; the peer creates its half when that message arrives, or when a message *on* the channel does:

* A half whose id the peer minted opens a control stream immediately; one minted here waits for the peer to open it.
* Finish, cancel and close wait for the control stream. Loss does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._core.aqueduct.run_writer import integer_frame
from mainstem.aqueduct.frames import (
    ACK_NACK_UNRELIABLE,
    ACK_RELIABLE,
    CHANNEL_CONTROL,
    CLOSE_RECEIVER,
    FINISH_SENDER,
    FRAME_TYPES,
    RESET_CANCELLED,
    RESET_LOST,
    SENT_UNRELIABLE,
    describe,
    protocol_error,
)
from mainstem.aqueduct.halves import ReceiverHalf, Role, SenderHalf
from mainstem.aqueduct.state import ReceiverInput, ReceiverState

if TYPE_CHECKING:
    from mainstem.aqueduct.channel_table import ChannelTable
    from mainstem.aqueduct.context import Context
    from mainstem.aqueduct.halves import Half, Stream
    from mainstem.aqueduct.output import Output
    from mainstem.aqueduct.receive import Receiving
    from mainstem.aqueduct.send import Sending
    from mainstem.aqueduct.streams import Streams
    from mainstem.errors import RemoteProtocolError


class ControlStreams:
    def __init__(
        self,
        context: Context,
        channels: ChannelTable,
        output: Output,
        streams: Streams,
        sending: Sending,
        receiving: Receiving,
    ) -> None:
        self._context = context
        self._channels = channels
        self._output = output
        self._streams = streams
        self._sending = sending
        self._receiving = receiving

    def open_waiting(self) -> None:
        """Open control streams for waiting halves, as far as the transport has credit.

        Halves that are not obtainable yet leave one stream to the others. Whether a message that leads to them is lost may be known
        only once another channel has ended, which needs a control stream of its own to end.
        """
        waiting, early = self._channels.awaiting_control, self._channels.early
        while waiting and self._output.bidi_room > 0:
            self._open(waiting.popleft())
        while early and self._output.bidi_room > 1:
            self._open(early.popitem(last=False)[0])

    def _open(self, half: Half) -> None:
        data = integer_frame(CHANNEL_CONTROL, half.channel_id)
        stream = self._streams.add(self._output.open_stream(data, unidirectional=False), Role.CONTROL)
        if self._context.is_observed:
            self._context.sent_frame(data)
        if half.state.is_final:
            # The half was lost before its control stream could be opened. The side that minted it must still be notified.
            self._streams.reset(stream, RESET_LOST)
            self._streams.abandon(stream)
        else:
            self._attach(half, stream)

    def attach(self, stream: Stream, channel_id: int) -> None:
        """Attach a control stream that the peer opened to its half, or reset it if the half is missing or already has one."""
        if not self._channels.is_minted_here(channel_id):
            text = f"ChannelControl for {describe(channel_id)}, which its sender minted"
            raise protocol_error("control minter", text)
        half: Half | None = self._channels.senders.get(channel_id) or self._channels.receivers.get(channel_id)
        if half is not None and half.control is None:
            self._attach(half, stream)
        else:
            # The stream belongs to a ghost receiver, or raced with the channel's end. The reset makes the peer discard its half.
            self._context.counts.ghosts_refused += 1
            self._streams.reset(stream, RESET_LOST)
            self._streams.abandon(stream)

    def _attach(self, half: Half, stream: Stream) -> None:
        """Give a half its control stream, and send everything that was waiting for it."""
        half.control = stream
        stream.half = half
        if isinstance(half, SenderHalf):
            self._sending.attached(half)
        elif half.state is ReceiverState.CLOSE_PENDING:
            self._receiving.end_in_order(half, ReceiverInput.ATTACHED)
        elif half.is_accounted_for:
            self._receiving.complete(half)
        else:
            self._receiving.schedule_ack(half)

    def process(self, stream: Stream, tag: int, value: Any) -> None:
        """Process a frame after the ChannelControl. Raises RemoteProtocolError if it is not allowed there."""
        half = stream.half
        stream.frames += 1
        if half is None:
            return
        if tag in (FINISH_SENDER, CLOSE_RECEIVER) and half.is_sender is (tag == CLOSE_RECEIVER):
            # This frame must be the last of its direction.
            stream.last_seen = True
            if stream.position < len(stream.data) or stream.pieces:
                raise protocol_error("last frame", "bytes after the last frame of a control stream")
        if isinstance(half, SenderHalf):
            if tag == ACK_RELIABLE:
                self._sending.acknowledged_reliable(half, value)
            elif tag == ACK_NACK_UNRELIABLE:
                self._sending.resolved_unreliable(half, value)
            elif tag == CLOSE_RECEIVER:
                self._sending.receiver_closed(half, value)
            else:
                raise _misplaced(tag, half, "receiver-to-sender")
        elif tag == SENT_UNRELIABLE:
            self._receiving.declared(half, value)
        elif tag == FINISH_SENDER:
            self._receiving.finished(half, value)
        else:
            raise _misplaced(tag, half, "sender-to-receiver")

    def reset_arrived(self, stream: Stream, half: Half, code: int) -> None:
        """Process the peer's reset of a half's control stream. Raises RemoteProtocolError."""
        if code == RESET_LOST:
            self._streams.reset(stream, RESET_LOST)
            if isinstance(half, SenderHalf):
                self._sending.lose(half)
            else:
                self._receiving.end(half, ReceiverInput.LOSE)
        elif code == RESET_CANCELLED and isinstance(half, ReceiverHalf):
            # The receiver closes immediately and drops unread messages.
            self._receiving.end_in_order(half, ReceiverInput.CANCEL)
        else:
            text = f"the control stream of {describe(half.channel_id)} was reset with code {code}"
            raise protocol_error("reset code", text)


def _misplaced(tag: int, half: Half, direction: str) -> RemoteProtocolError:
    text = f"a {FRAME_TYPES[tag].name} frame on the control stream of {describe(half.channel_id)}, {direction}"
    return protocol_error("frame place", text)
