"""The bymux engine, without I/O: bytes and times go in, events and bytes come out.

:mod:`mainstem.mux.engine` describes the operations, their order, and what can be reordered. This module keeps the state of
Appendix A and routes packets. The tables in :mod:`.state` decide which packet may follow which.

Each endpoint has one half of every stream and one half of the connection. A half records whether its endpoint has sent Close
and StopRead, so the packets that may be sent or may arrive depend on one half alone. For the connection's half, Write creates a
stream and Credit allows streams.

Credit. ``send_credit`` is credit that the peer has granted and this end has not used. ``receive_credit`` is credit that this end
has granted and has not seen used. The two ends' views differ by the packets in flight. A byte that arrives is subtracted from
``receive_credit`` and added to ``unconsumed``. ``consume`` moves it to ``restorable``, and a grant moves it back to
``receive_credit``. So ``receive_credit + unconsumed + restorable`` always equals the window, which limits what this end holds.
Grants follow Appendix B: the restorable amount is granted once it is at least as large as the peer's remaining credit. Credit for
streams is restored by the same rule, once one of the peer's streams has ended and been read.

Sending. Control packets (Pong, StopRead, Credit, Close of a stream with nothing queued, all global packets) are sent before data.
A Close behind data is sent in the stream's turn. Streams with data and credit take turns, each with one Write of at most
``packet_limit`` bytes. A stream without credit leaves the schedule and reenters it when credit arrives.

Ending. This end responds to a peer's Close with StopRead immediately. It responds to StopRead with Close, after the queued bytes
that the peer's credit covers; the other bytes are dropped and reported. A stream ends when both halves are DONE. Its id can be
reused from that packet on, and the handle stays valid for its owner. The connection finishes when its own two halves are DONE and
no stream is active.

Invariants: a stream in ``streams`` has not ended; a stream in the schedule has something to send (data with credit, or a Close);
``_grants`` contains no stream twice (``grant_due``); credits lie in 0..2**64-1, and a sum of finite grants never reaches infinite
credit; after a protocol error the state of the connection no longer changes.
"""

from __future__ import annotations

from mainstem._core.mux.packets import take_writes, write_packet
from mainstem._internal.as_bytes import as_bytes
from mainstem.bymux import codec, events
from mainstem.bymux.codec import HEADER_LENGTHS, INFINITE, Packet
from mainstem.bymux.lifecycle import Lifecycle
from mainstem.bymux.state import NEXT, RESPONSE, HalfState
from mainstem.bymux.stream import StreamState
from mainstem.errors import ClosedError, ConnectionLost, LocalProtocolError
from mainstem.mux.engine import SEND_LIMIT, Rule

# Short Writes of one stream that arrive together become one event of at most this many bytes.
JOINED_BYTES = 64 * 1024


class BymuxEngine(Lifecycle):
    """One end of a bymux connection, without I/O.

    If the specification forbids a command, it raises :class:`~mainstem.errors.LocalProtocolError` and sends nothing. After the
    connection has failed, commands raise :class:`~mainstem.errors.ClosedError`.
    """

    # ---- receiving

    def receive_data(self, data: bytes | bytearray | memoryview, now_ns: int = 0) -> None:
        if self.failure is not None:
            self._check_alive()
        heartbeat = self._heartbeat
        heartbeat.heard_ns = now_ns
        if heartbeat.pinged_ns >= 0:
            heartbeat.pinged_ns = -1
            self.timeout_moved = True
        view = data if isinstance(data, memoryview) else memoryview(data)
        position, end = 0, len(view)
        while position < end:
            if self._body_left:
                step = min(end - position, self._body_left)
                self._body_left -= step
                assert self._body_stream is not None
                self._receive_bytes(self._body_stream, bytes(view[position : position + step]))
                position += step
                continue
            carry = self._carry
            # Most input is complete Writes that the state and the credit allow. Everything else is processed step by step.
            if not carry and (writes := take_writes(view, position, JOINED_BYTES)) is not None:
                stream_id, body, after = writes
                stream = self.streams.get(stream_id)
                if stream is not None and len(body) <= stream.receive_credit and not stream.peer & HalfState.CLOSED:
                    if stream.receive_credit != INFINITE:
                        stream.receive_credit -= len(body)
                    if body:
                        stream.abandoned = False
                        self._receive_bytes(stream, body)
                    position = after
                    continue
            length = HEADER_LENGTHS[carry[0] if carry else view[position]]
            if not length:
                self._violated(
                    "undefined-packet-type", f"packet type {(carry or view[position:])[0] >> 5} is undefined"
                )
            if not carry and end - position >= length:
                self._receive_packet(view, position, now_ns)
                position += length
                continue
            step = min(length - len(carry), end - position)
            carry += view[position : position + step]
            position += step
            if len(carry) == length:
                self._carry = bytearray()
                self._receive_packet(memoryview(carry), 0, now_ns)
        if len(self._control) > self.settings.control_limit:
            self._violated(
                "answers-not-read", f"{len(self._control)} bytes of responses wait for a peer that does not read"
            )

    def receive_eof(self, now_ns: int = 0) -> None:  # noqa: ARG002 - all operations that take input take the time
        self._check_alive()
        if self._carry or self._body_left:
            self._violated("truncated-packet", "the byte stream ended inside a packet")
        clean = self._is_finished()
        ending = ClosedError if clean else ConnectionLost
        self.failure = ending(f"{self.peer_name} ended the bymux connection")
        self.events.append(events.ConnectionEnded(clean))

    def _receive_packet(self, view: memoryview, position: int, now_ns: int) -> None:
        shape = codec.SHAPES[view[position]]
        if shape is None:
            return
        packet, is_global, id_width, amount_width = shape
        middle = position + 1 + id_width
        if id_width == 1:
            stream_id = view[position + 1]
        else:
            stream_id = int.from_bytes(view[position + 1 : middle], "big")
        amount = int.from_bytes(view[middle : middle + amount_width], "big") if amount_width else 0
        if is_global:
            self._receive_global(packet, stream_id, amount, now_ns)
            return
        stream = self.streams.get(stream_id)
        if stream is None:
            self._violated("inactive-stream", f"{packet.name} for stream {stream_id}, which is not active")
        half = NEXT[stream.peer][packet]
        if isinstance(half, Rule):
            self._violated(
                half, f"{packet.name} on stream {stream_id} after the peer's {stream.peer.name} half forbids it"
            )
        if packet is Packet.WRITE:
            credit = stream.receive_credit
            if credit != INFINITE:
                if amount > credit:
                    text = f"Write of {amount} bytes on stream {stream.id} with credit {credit}"
                    self._violated("write-beyond-credit", text)
                stream.receive_credit = credit - amount
            if stream.abandoned and amount:
                stream.abandoned = False
            self._body_stream = stream
            self._body_left = amount
        elif packet is Packet.CREDIT:
            self._receive_credit(stream, amount)
        elif packet is Packet.PING:
            self._receive_ping(stream)
        elif packet is Packet.PONG:
            self._receive_pong(stream, now_ns)
        else:
            aborted = packet is Packet.CLOSE and bool(view[position] & codec.ABORT_BIT)
            self._receive_end(stream, packet, half, aborted=aborted)

    def _receive_bytes(self, stream: StreamState, data: bytes) -> None:
        if not stream.discarding:
            stream.unconsumed += len(data)
            self.events.append(events.DataReceived(stream, data))

    def _receive_credit(self, stream: StreamState, amount: int) -> None:
        credit = stream.send_credit
        if credit == INFINITE:
            if amount:
                self._violated(
                    "credit-on-infinite", f"credit {amount} for stream {stream.id}, whose credit is infinite"
                )
            return
        if credit + amount > INFINITE:
            self._violated(
                "credit-overflow", f"credit {amount} for stream {stream.id} on top of {credit} exceeds 2**64-1"
            )
        stream.send_credit = credit + amount if amount else INFINITE
        if stream.queue.size:
            self._ready.add(stream)

    def _receive_ping(self, stream: StreamState) -> None:
        response = RESPONSE[stream.local][Packet.PING]
        answered = response is not None and self.settings.send_stream_pongs
        if answered:
            self._control += codec.encode_stream(Packet.PONG, stream.id)
        self.events.append(events.PingReceived(stream, answered))

    def _receive_pong(self, stream: StreamState, now_ns: int) -> None:
        if stream.heartbeat is not None:
            stream.heartbeat.heard(now_ns)
            self._set_timer(stream)
        rtt_ns = now_ns - stream.pings.popleft() if stream.pings else -1
        self.events.append(events.PongReceived(stream, rtt_ns))

    def _receive_end(self, stream: StreamState, packet: Packet, half: HalfState, *, aborted: bool) -> None:
        stream.abandoned = stream.abandoned or (stream.peer is HalfState.OPEN and packet is Packet.STOP_READ)
        stream.peer = half
        response = RESPONSE[stream.local][packet]
        if packet is Packet.CLOSE:
            self.events.append(events.StreamFinished(stream, aborted))
            if response is not None:
                self._send_on(stream, Packet.STOP_READ)
        else:
            lost = 0
            if stream.send_credit != INFINITE:
                lost = stream.queue.truncate(min(stream.queue.size, stream.send_credit))
            self.events.append(events.StreamReadStopped(stream, lost))
            if response is not None:
                self._close_when_drained(stream)
        self._end_if_done(stream)

    def _receive_global(self, packet: Packet, stream_id: int, amount: int, now_ns: int) -> None:
        half = NEXT[self.peer][packet]
        if isinstance(half, Rule):
            self._violated(half, f"global {packet.name} after the peer's {self.peer.name} half forbids it")
        self.peer = half
        if packet is Packet.CREDIT:
            if self.local_streams_credit + amount > INFINITE:
                self._violated(
                    "global-credit-overflow", f"global credit {amount} on top of {self.local_streams_credit}"
                )
            self.local_streams_credit += amount
            self.events.append(events.GlobalCreditReceived(amount))
        elif packet is Packet.WRITE:
            self._receive_create(stream_id, now_ns)
        elif packet is Packet.PING:
            response = RESPONSE[self.local][packet]
            if response is not None:
                self._control += codec.encode_global(response)
            self.events.append(events.PingReceived(None, response is not None))
        elif packet is Packet.PONG:
            self.events.append(events.PongReceived(None, now_ns - self._pings.popleft() if self._pings else -1))
        else:
            closed = packet is Packet.CLOSE
            self.events.append(events.CreationClosed() if closed else events.CreationStopped())
            response = RESPONSE[self.local][packet]
            if response is not None:
                self._send_global(response)
            self._finish_if_done()

    def _receive_create(self, stream_id: int, now_ns: int) -> None:
        if not self.peer_streams_credit:
            self._violated("create-beyond-credit", f"stream {stream_id} was created without global credit")
        if stream_id & 1 != self.role.peer:
            self._violated(
                "create-wrong-parity", f"stream {stream_id} may not be created by the {self.role.peer.name} end"
            )
        if stream_id in self.streams:
            self._violated("create-active-id", f"stream {stream_id} was created while it is active")
        self.peer_streams_credit -= 1
        settings = self.settings
        stream = StreamState(
            stream_id,
            send_credit=0,
            receive_credit=settings.peer_initial_credit,
            created_here=False,
        )
        stream.held = self.holds_streams
        self.streams[stream_id] = stream
        self.events.append(events.StreamOpened(stream))
        self._begin(stream, now_ns)

    # ---- commands

    @property
    def can_open(self) -> bool:
        """Whether :meth:`open_stream` would succeed now."""
        return bool(self.local_streams_credit) and not self.local & HalfState.CLOSED and self.failure is None

    def open_stream(self, stream_id: int | None = None, *, now_ns: int = 0) -> StreamState:
        """Create a stream. The first credit for the peer is sent with it."""
        self._check_alive()
        self._check_may(self.local, Packet.WRITE, "creating a stream")
        if not self.local_streams_credit:
            raise LocalProtocolError(
                "creating a stream needs global credit, and there is none", rule="create-beyond-credit"
            )
        if stream_id is None:
            stream_id = self._free_id()
        elif stream_id & 1 != self.role:
            raise LocalProtocolError(
                f"stream {stream_id} may not be created by the {self.role.name} end", rule="create-wrong-parity"
            )
        if stream_id in self.streams:
            raise LocalProtocolError(f"stream {stream_id} is active", rule="create-active-id")
        self._control += codec.encode_global(Packet.WRITE, stream_id)
        self.local_streams_credit -= 1
        stream = StreamState(
            stream_id, send_credit=self.settings.local_initial_credit, receive_credit=0, created_here=True
        )
        self.streams[stream_id] = stream
        self._begin(stream, now_ns)
        return stream

    def write(self, stream: StreamState, data: bytes | bytearray | memoryview) -> None:
        """Queue bytes, which are sent as credit and turns allow."""
        if stream.local & HalfState.CLOSED or stream.close_wanted or self.failure is not None:
            self._check_alive()
            raise LocalProtocolError(f"write on stream {stream.id} after Close", rule="write-after-close")
        stream.queue.append(data)
        if stream.send_credit and not stream.scheduled and stream.queue.size:
            self._ready.add(stream)

    def consume(self, stream: StreamState, count: int) -> None:
        """Free the space of bytes that were handed out, and restore credit by the rule of docs/protocols/bymux.md, 9."""
        if not 0 <= count <= stream.unconsumed:
            raise LocalProtocolError(
                f"{count} bytes of stream {stream.id} cannot be consumed: {stream.unconsumed} were handed out",
                rule="consume",
            )
        stream.unconsumed -= count
        stream.restorable += count
        # docs/protocols/bymux.md, 9: grant once the amount is at least the peer's remaining credit.
        if stream.restorable >= stream.receive_credit and not stream.grant_due and not stream.local & HalfState.STOPPED:
            if self.settings.stream_window:
                stream.grant_due = True
                self._grants.append(stream)
        elif stream.ended:
            self._release_if_done(stream)

    def close(self, stream: StreamState, *, discard: bool = False) -> None:
        """Send Close once all queued bytes have been sent, or immediately if ``discard``, which drops them."""
        self._check_alive()
        if stream.local & HalfState.CLOSED or (stream.close_wanted and not discard):
            raise LocalProtocolError(f"Close on stream {stream.id} a second time", rule="close-after-close")
        if discard:
            stream.queue.truncate(0)
            stream.close_wanted = True
            self._send_on(stream, Packet.CLOSE, mark=codec.ABORT_BIT if self.settings.mark_aborts else 0)
        else:
            self._close_when_drained(stream)
        self._end_if_done(stream)

    def stop_read(self, stream: StreamState) -> None:
        """Send StopRead. From now on no credit is given, and data that still arrives is dropped."""
        self._check_alive()
        self._check_may(stream.local, Packet.STOP_READ, f"StopRead on stream {stream.id}")
        stream.discarding = True
        self._send_on(stream, Packet.STOP_READ)
        self._end_if_done(stream)

    def release(self, stream: StreamState) -> None:
        """Let the peer create another stream once this one has ended, if ``holds_streams`` is set."""
        stream.held = False
        self._release_if_done(stream)

    def discard(self, stream: StreamState) -> None:
        """Drop data that still arrives, without sending StopRead. Data that was handed out counts as consumed."""
        stream.discarding = True
        if stream.unconsumed:
            self.consume(stream, stream.unconsumed)

    def close_creation(self) -> None:
        self._check_alive()
        self._check_may(self.local, Packet.CLOSE, "a global Close")
        self._send_global(Packet.CLOSE)
        self._finish_if_done()

    def stop_creation(self) -> None:
        """Send a global StopRead, after which this end allows no more streams."""
        self._check_alive()
        self._check_may(self.local, Packet.STOP_READ, "a global StopRead")
        self._send_global(Packet.STOP_READ)
        self._finish_if_done()

    def packet_of(self, stream: StreamState, data: bytes | bytearray | memoryview) -> bytes:
        """Return the packet for a short write that need not wait, and count its bytes as sent.

        Empty if something else is queued, or if the data exceeds the credit or the packet limit. Then call ``write`` instead.
        """
        payload = data if type(data) is bytes else as_bytes(data)
        length = len(payload)
        if (
            not 0 < length <= self._lone_limit
            or length > stream.send_credit
            or self._control
            or self._grants
            or self._ready.waiting  # otherwise this stream has nothing queued: queued data without a turn has no credit
            or stream.local & HalfState.CLOSED
            or self.failure is not None
        ):
            return b""
        if stream.send_credit != INFINITE:
            stream.send_credit -= length
        stream.sent += length
        return write_packet(stream.id, payload)

    def finish(self) -> None:
        """Stop the creation of streams in both directions. ``ConnectionFinished`` follows when the last stream has ended."""
        self._check_alive()
        if not self.local & HalfState.CLOSED:
            self.close_creation()
        if not self.local & HalfState.STOPPED:
            self.stop_creation()

    # ---- sending

    @property
    def wants_to_send(self) -> bool:
        return bool(self._control or self._grants or self._ready)

    def segments_to_send(self, limit: int = SEND_LIMIT) -> list[bytes | memoryview]:
        out: list[bytes | memoryview] = []
        if self._grants:
            self._emit_grants()
        if self._control:
            out.append(bytes(self._control))
            self._control.clear()
        if self._ready.waiting:
            self._ready.run(limit, out, self._turn)
            if self._control:  # the last packet of a stream allows the peer to create another
                out.append(bytes(self._control))
                self._control.clear()
        return out

    def _turn(self, stream: StreamState, out: list[bytes | memoryview]) -> int:
        queue = stream.queue
        credit = stream.send_credit
        count = min(queue.size, credit, self.settings.packet_limit)
        length = 0
        if count:
            header = codec.encode_stream(Packet.WRITE, stream.id, count)
            out.append(header)
            queue.take(count, out)
            length = len(header) + count
            stream.sent += count
            if credit != INFINITE:
                credit = stream.send_credit = credit - count
        if queue.size:
            if credit:
                self._ready.add(stream)
        elif stream.close_wanted and not stream.local & HalfState.CLOSED:
            out.append(codec.encode_stream(Packet.CLOSE, stream.id))
            length += len(out[-1])
            stream.local = HalfState.DONE if stream.local & HalfState.STOPPED else HalfState.CLOSED
            self._end_if_done(stream)
        if queue.size <= stream.notify_below:
            stream.notify_below = -1
            self.events.append(events.StreamDrained(stream))
        return length

    def _emit_grants(self) -> None:
        for stream in self._grants:
            stream.grant_due = False
            amount = stream.restorable
            if amount and not stream.local & HalfState.STOPPED and stream.receive_credit != INFINITE:
                stream.restorable = 0
                stream.receive_credit += amount
                self._control += codec.encode_stream(Packet.CREDIT, stream.id, amount)
        self._grants.clear()
