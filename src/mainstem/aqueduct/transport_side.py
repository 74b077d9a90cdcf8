"""The QUIC side of an Aqueduct connection: what a QUIC connection reports, what it is asked to do, and the timers.

Whatever carries the connection calls these and nothing else. ``receive_*``, `stream_delivered` and `connection_lost`
report; `transport_state` says what there is room for; `data_to_send` returns the commands. The carrier must keep the order of
commands and of one stream's bytes; streams and datagrams may overtake one another.

Three paths lead in. Most messages without attachments travel alone, on a stream or in a datagram of their own, and come in
batches: ``_take_run`` has `receiving.receive_alone` process as many as it can at once. The middle of a large message only
feeds a reader. Everything else goes through `Inbound`. The first two decide nothing that the third would decide otherwise;
they return where they cannot be sure.

Every step runs inside ``_guard``, or does what it does: after the step the work lists are settled, and a rule that the peer
broke becomes a close command and a `ConnectionEnded` event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aqueduct import acknowledgements, lifecycle, receiving, sending
from mainstem.aqueduct.events import CloseConnection, Command, Event
from mainstem.aqueduct.inbound import Inbound
from mainstem.aqueduct.streams import UNIDIRECTIONAL
from mainstem.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstem.aqueduct.connection_state import ConnectionState


class TransportSide:
    """The part of an `AqueductConnection` that its QUIC connection calls."""

    def __init__(self, state: ConnectionState, *, early_data: bool) -> None:
        self._state = state
        self._inbound = Inbound(state, early=early_data and not state.is_client)

    # What the QUIC connection reports.

    def receive_stream(self, stream_id: int, data: bytes, fin: bool, now_ns: int) -> None:
        """Bytes of a stream came.

        Args:
            stream_id: QUIC's stream id.
            data: The bytes, in order and without gaps.
            fin: Whether they are the stream's last.
            now_ns: The time, in nanoseconds.

        Example:
            >>> server.receive_stream(0, data, fin=False, now_ns=now_ns)
        """
        state = self._state
        state.now_ns = now_ns
        if self._state.is_ended:
            return
        stream = state.streams.get(stream_id)
        if stream is None:
            if fin and stream_id & UNIDIRECTIONAL and self._take_run([data], 0, False):
                # Most often one message without attachments, and all there is on the stream.
                return
        elif not fin and stream.is_read and stream.reader.awaits_more_than(len(data)):
            # The middle of a large message.
            stream.reader.feed(data)
            self._guard(lambda: state.account_stream(stream))
            return
        try:
            self._inbound.receive_stream(stream_id, data, fin)
            lifecycle.settle(state)
        except RemoteProtocolError as error:
            self._fail(error)

    def receive_reset(self, stream_id: int, code: int, now_ns: int) -> None:
        """The peer reset its direction of a stream.

        Args:
            stream_id: QUIC's stream id.
            code: The application's error code.
            now_ns: The time, in nanoseconds.

        Example:
            >>> server.receive_reset(4, 1, now_ns)
        """
        self._state.now_ns = now_ns
        if not self._state.is_ended:
            self._guard(lambda: self._inbound.receive_reset(stream_id, code))

    def receive_stop_sending(self, stream_id: int, now_ns: int) -> None:
        """The peer reads no more of a stream; the QUIC connection has reset it.

        Args:
            stream_id: QUIC's stream id.
            now_ns: The time, in nanoseconds.

        Example:
            >>> client.receive_stop_sending(2, now_ns)
        """
        self._state.now_ns = now_ns
        lifecycle.stream_stopped(self._state, stream_id)

    def receive_datagram(self, data: bytes, now_ns: int) -> None:
        """A datagram came.

        Args:
            data: Its payload.
            now_ns: The time, in nanoseconds.

        Example:
            >>> server.receive_datagram(data, now_ns)
        """
        self._state.now_ns = now_ns
        if not self._state.is_ended:
            self._guard(lambda: self._inbound.receive_datagram(data))

    def receive_stream_ends(self, stream_ids: Sequence[int], pieces: list[bytes], now_ns: int) -> None:
        """The last bytes of several streams of one direction came. For most they are the first as well.

        Args:
            stream_ids: QUIC's stream ids, in the order in which the bytes came.
            pieces: The bytes of each.
            now_ns: The time, in nanoseconds.

        Example:
            >>> server.receive_stream_ends([2, 6], [first, second], now_ns)
        """
        state = self._state
        state.now_ns = now_ns
        index = 0
        are_new = state.streams.keys().isdisjoint(stream_ids)
        while index < len(pieces) and not self._state.is_ended:
            count = self._take_run(pieces, index, False) if are_new else 0
            if not count:
                self.receive_stream(stream_ids[index], pieces[index], True, now_ns)
                count = 1
            index += count

    def receive_datagrams(self, datagrams: list[bytes], now_ns: int) -> None:
        """Several datagrams came.

        Args:
            datagrams: Their payloads, in the order in which they came.
            now_ns: The time, in nanoseconds.

        Example:
            >>> server.receive_datagrams([first, second], now_ns)
        """
        self._state.now_ns = now_ns
        index = 0
        while index < len(datagrams) and not self._state.is_ended:
            count = self._take_run(datagrams, index, True)
            if not count:
                self.receive_datagram(datagrams[index], now_ns)
                count = 1
            index += count

    def _take_run(self, items: list[bytes], start: int, unreliable: bool) -> int:
        """Process the plain messages from ``items[start]`` on, which travelled alone, as far as that can be done at once.

        Returns how many they were; the next has to be processed by itself.
        """
        if self._inbound.is_gated:
            return 0
        try:
            return receiving.receive_alone(self._state, items, start, unreliable=unreliable)
        except RemoteProtocolError as error:
            self._fail(error)
            return len(items)

    def stream_delivered(self, stream_id: int, now_ns: int) -> None:
        """All that was written to a stream has reached the peer; the response to a `WatchDelivery` command.

        Args:
            stream_id: QUIC's stream id.
            now_ns: The time, in nanoseconds.

        Example:
            >>> client.stream_delivered(4, now_ns)
        """
        self._state.now_ns = now_ns
        stream = self._state.streams.get(stream_id)
        if stream is not None:
            self._state.heard(stream)

    def transport_state(
        self,
        *,
        bidi_streams: int | None = None,
        uni_streams: int | None = None,
        datagrams: int | None = None,
        max_datagram: int | None = None,
        rtt_ns: int | None = None,
    ) -> None:
        """Note what the QUIC connection has room for. None leaves a value as it was.

        Args:
            bidi_streams: Streams of two directions that may be opened.
            uni_streams: Streams of one direction that may be opened.
            datagrams: Datagrams that may be queued.
            max_datagram: The largest datagram, in bytes; 0 where the peer takes none.
            rtt_ns: The estimate of the round trip, in nanoseconds.

        Example:
            >>> client.transport_state(uni_streams=100, datagrams=16, max_datagram=1170)
        """
        self._state.out.note_room(bidi_streams, uni_streams, datagrams, max_datagram)
        if rtt_ns is not None:
            self._state.rtt_ns = rtt_ns

    def connection_lost(self, error: Exception | None, now_ns: int) -> None:
        """The QUIC connection is gone.

        Args:
            error: Why; None after an orderly close by the peer.
            now_ns: The time, in nanoseconds.

        Example:
            >>> client.connection_lost(ConnectionLost("idle timeout"), now_ns)
        """
        self._state.now_ns = now_ns
        self._end(error)

    # What the QUIC connection is asked to do.

    def data_to_send(self, now_ns: int) -> list[Command]:
        """Take the commands that are due.

        Args:
            now_ns: The time, in nanoseconds.

        Returns:
            The commands, in the order in which they must be carried out.

        Example:
            >>> for command in client.data_to_send(now_ns):
            ...     carry_out(command)
        """
        state = self._state
        state.now_ns = now_ns
        if not self._state.is_ended:
            if state.awaiting_control:
                lifecycle.open_control_streams(state)
            if state.notices:
                lifecycle.send_notices(state)
            if state.waiting:
                sending.pump(state)
                lifecycle.settle(state)
        return state.out.take()

    def next_event(self) -> Event | None:
        """Take the next event.

        Returns:
            The oldest event that was not taken; None where there is none.

        Example:
            >>> while (event := client.next_event()) is not None:
            ...     process(event)
        """
        return self._state.events.popleft() if self._state.events else None

    def next_timeout_ns(self) -> int | None:
        """When `handle_timeout` is due.

        Returns:
            A time, in nanoseconds; None where no timer runs.

        Example:
            >>> due_ns = client.next_timeout_ns()
        """
        state = self._state
        due = state.ack_due_ns
        if state.declare_due_ns is not None and (due is None or state.declare_due_ns < due):
            due = state.declare_due_ns
        if state.nack_heap and (due is None or state.nack_heap[0][0] < due):
            due = state.nack_heap[0][0]
        return due

    def handle_timeout(self, now_ns: int) -> None:
        """Send the acknowledgements, the declarations and the given-up messages that are due.

        Args:
            now_ns: The time, in nanoseconds.

        Example:
            >>> client.handle_timeout(now_ns)
        """
        state = self._state
        state.now_ns = now_ns
        if self._state.is_ended:
            return
        if state.declare_due_ns is not None and state.declare_due_ns <= now_ns:
            acknowledgements.declare_due(state)
        if state.ack_due_ns is not None and state.ack_due_ns <= now_ns:
            acknowledgements.acks_due(state)
        receiving.nacks_due(state)
        lifecycle.settle(state)

    def handshake_completed(self, now_ns: int) -> None:
        """The TLS handshake is complete, so that nothing can be a replay: what was held is processed now.

        Args:
            now_ns: The time, in nanoseconds.

        Example:
            >>> server.handshake_completed(now_ns)
        """
        self._state.now_ns = now_ns
        if self._inbound.is_early:
            self._inbound.is_early = False
            self._guard(self._inbound.release)

    # Internals.

    def _guard(self, step: Callable[[], None]) -> None:
        """Run a step of the protocol and what it sets in motion; a rule that the peer broke ends the connection."""
        try:
            step()
            lifecycle.settle(self._state)
        except RemoteProtocolError as error:
            self._fail(error)

    def _fail(self, error: RemoteProtocolError) -> None:
        error.peer = self._state.peer
        if not self._state.is_ended:
            self._state.out.clear()
            self._state.out.command(CloseConnection(error.code or 1, str(error)))
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        lifecycle.end_connection(self._state, error)
        self._inbound.clear()
