"""The halves that are lost with the message they were attached to, and those that the application never took.

Loss cascades: a lost sender gives up its messages, whose attachments are lost in turn. Cascades run as work lists, not as
recursion. Code that loses or drops a half appends it to ``ChannelTable.lost`` or ``ChannelTable.dropped``, and `settle` empties the
lists, one half at a time. Acknowledged halves become reachable before anything is lost. A chain of 10,000 channels or a tree of
100,000 takes linear time and constant stack.

Loss and drops differ in what the peer receives. A lost half is treated as if it had never existed: its control stream is reset
with "lost". A half that the application dropped, or never took out of its message, ends as if its handle had been dropped: a
sender is cancelled, a receiver closed.

A half that ended before it was reachable is kept only by the link to it. When the link is lost, the peer is notified with a
ClosedChannelLost on a stream of its own, because the control stream is gone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mainstem._core.aqueduct.run_writer import integer_frame
from mainstem.aqueduct.frames import CLOSED_CHANNEL_LOST, RESET_LOST
from mainstem.aqueduct.halves import ReceiverHalf, SenderHalf
from mainstem.aqueduct.state import ReceiverInput, ReceiverState, SenderState

if TYPE_CHECKING:
    from mainstem.aqueduct.channel_table import ChannelTable
    from mainstem.aqueduct.context import Context
    from mainstem.aqueduct.halves import Half
    from mainstem.aqueduct.output import Output
    from mainstem.aqueduct.receive import Receiving
    from mainstem.aqueduct.send import Sending
    from mainstem.aqueduct.streams import Streams


class Loss:
    """``notices`` holds the ClosedChannelLost frames that are waiting for a stream."""

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
        self.notices: deque[bytes] = deque()

    def settle(self) -> None:
        """Process every lost and dropped half, and what that sets in motion."""
        channels = self._channels
        while channels.lost or channels.dropped:
            if channels.lost:
                self._lose(channels.lost.pop())
                continue
            half, as_lost = channels.dropped.pop()
            if half.state.is_final:
                if isinstance(half, ReceiverHalf):
                    channels.drained.pop(half.channel_id, None)
                    self._receiving.drop_queue(half, as_lost=as_lost)
            elif as_lost:
                self._lose(half)
            elif isinstance(half, SenderHalf):
                self._sending.cancel(half)
            else:
                self._receiving.close(half)

    def _lose(self, half: Half) -> None:
        """End a half that was lost with its creating message, or that the peer reported lost, and notify the other side."""
        if half.state.is_final:
            # The half's control stream is already gone.
            ends = (SenderState.LOST, SenderState.DISCONNECTED, ReceiverState.LOST, ReceiverState.DISCONNECTED)
            if half.state not in ends and not half.reachable:
                self._notify_lost(half)
            if isinstance(half, SenderHalf):
                self._sending.lose_messages(half, half.acked)
                half.acked = []
            return
        if half.control is not None:
            if half.is_sender and half.control.out_done:
                # The sender has finished its direction of the stream, so that direction can no longer be reset.
                self._notify_lost(half)
            self._streams.reset(half.control, RESET_LOST)
        if isinstance(half, SenderHalf):
            self._sending.lose(half)
        else:
            self._receiving.end(half, ReceiverInput.LOSE)

    def _notify_lost(self, half: Half) -> None:
        self.notices.append(integer_frame(CLOSED_CHANNEL_LOST, half.channel_id))
        self.send_notices()

    def send_notices(self) -> None:
        """Send the ClosedChannelLost frames that are waiting for a stream."""
        while self.notices and self._output.plain.stream_room > 0:
            data = self.notices.popleft()
            self._output.open_stream(data, unidirectional=True, fin=True)
            self._context.sent_frame(data)
