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

import heapq
from collections import deque
from typing import TYPE_CHECKING, NoReturn

from mainstem._core.mux.packets import take_writes, write_packet
from mainstem._internal.validation import as_bytes
from mainstem.bymux import codec, events
from mainstem.bymux.codec import HEADER_LENGTHS, INFINITE, MAX_FINITE_CREDIT, Packet
from mainstem.bymux.settings import Settings
from mainstem.bymux.state import NEXT, RESPONSE, HalfState, Role
from mainstem.bymux.stream import StreamState
from mainstem.errors import ClosedError, ConnectionLost, LocalProtocolError, RemoteProtocolError, Timeout
from mainstem.mux.engine import LONE_BYTES, MAX_OUTSTANDING_PINGS, SEND_LIMIT, BaseEngine, Rule
from mainstem.mux.heartbeat import Heartbeat, Verdict

if TYPE_CHECKING:
    from mainstem.errors import MainstemError

# Short Writes of one stream that arrive together become one event of at most this many bytes.
JOINED_BYTES = 64 * 1024


class BymuxEngine(BaseEngine[events.Event]):
    """One end of a bymux connection, without I/O.

    If the specification forbids a command, it raises :class:`~mainstem.errors.LocalProtocolError` and sends nothing. After the
    connection has failed, commands raise :class:`~mainstem.errors.ClosedError`.
    """

    PROTOCOL = "bymux"
    settings: Settings

    def __init__(self, role: Role, settings: Settings | None = None, *, now_ns: int = 0, peer: str = "peer") -> None:
        settings = settings or Settings()
        super().__init__(settings, now_ns=now_ns, peer=peer)
        self.role = role
        self.local = settings.initial_local_state
        self.peer = settings.initial_peer_state
        self.local_streams_credit = settings.initial_local_streams
        self.peer_streams_credit = settings.initial_peer_streams
        self.streams: dict[int, StreamState] = {}
        # Whether the peer's streams count against its limit until `release`, even after they have ended.
        self.holds_streams = False
        self._grants: list[StreamState] = []
        self._body_stream: StreamState | None = None
        self._body_left = 0
        self._lone_limit = min(settings.packet_limit, LONE_BYTES)
        self._freed_ids: list[int] = []
        self._next_id = int(role)
        self._peer_streams_restorable = 0
        self._pings: deque[int] = deque()
        self._timers: list[tuple[int, int, StreamState]] = []
        self._timer_count = 0
        self._finished = False
        for initial in settings.initial_streams:
            stream = StreamState(
                initial.stream_id,
                send_credit=initial.local_credit,
                receive_credit=initial.peer_credit,
                created_here=initial.stream_id & 1 == role,
            )
            self.streams[stream.id] = stream
            self._begin(stream, now_ns)
        missing = settings.peer_streams - self.peer_streams_credit
        if (
            missing > 0
            and settings.allow_at_start
            and not self.local & HalfState.STOPPED
            and not self.peer & HalfState.CLOSED
        ):
            self.allow_streams(missing)

    def fail(self, error: MainstemError) -> None:
        """End the connection from outside, for example because its transport broke."""
        if self.failure is None:
            self.failure = error

    # ---- receiving

    def receive_data(self, data: bytes | bytearray | memoryview, now_ns: int = 0) -> None:
        if self.failure is not None:
            self._check_alive()
        if self._control:
            self._check_control_limit()
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

    def receive_eof(self, now_ns: int = 0) -> None:  # noqa: ARG002 - all operations that take input take the time
        self._check_alive()
        if self._carry or self._body_left:
            self._violated("truncated-packet", "the byte stream ended inside a packet")
        clean = self._is_finished()
        ending = ClosedError if clean else ConnectionLost
        self.failure = ending(f"{self.peer_name} ended the bymux connection")
        self.events.append(events.ConnectionEnded(clean))

    def _receive_packet(self, view: memoryview, position: int, now_ns: int) -> None:
        header = codec.decode_header(view, position)
        assert header is not None, "the caller has the whole header"
        packet, is_global, stream_id, amount, _ = header
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

    def grant(self, stream: StreamState, amount: int) -> None:
        """Give the peer credit explicitly."""
        self._check_alive()
        self._check_may(stream.local, Packet.CREDIT, f"credit on stream {stream.id}")
        credit = stream.receive_credit
        if amount == INFINITE:
            if credit != INFINITE:
                self._control += codec.encode_stream(Packet.CREDIT, stream.id, 0)
                stream.receive_credit = INFINITE
            return
        if amount <= 0 or credit == INFINITE or credit + amount > MAX_FINITE_CREDIT:
            raise LocalProtocolError(
                f"credit {amount} on stream {stream.id} on top of {credit}: it must be positive, the sum at most 2**64-2",
                rule="credit-on-infinite" if credit == INFINITE else "credit-overflow",
            )
        self._control += codec.encode_stream(Packet.CREDIT, stream.id, amount)
        stream.receive_credit = credit + amount

    def allow_streams(self, amount: int) -> None:
        """Give the peer global credit, with which it can create streams."""
        self._check_alive()
        self._check_may(self.local, Packet.CREDIT, "global credit")
        if amount < 1 or self.peer_streams_credit + amount > INFINITE:
            raise LocalProtocolError(
                f"global credit {amount} on top of {self.peer_streams_credit}: it must be positive, the sum at most 2**64-1",
                rule="global-credit-overflow",
            )
        self.peer_streams_credit += amount
        self._control += codec.encode_global(Packet.CREDIT, amount)

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

    # ---- timeouts

    def next_timeout_ns(self) -> int | None:
        due = self._heartbeat.next_timeout_ns() if self.failure is None else None
        timers = self._timers
        while timers:
            when, _, stream = timers[0]
            heartbeat = stream.heartbeat
            if stream.ended or heartbeat is None or stream.timer_ns != when:
                heapq.heappop(timers)
            elif heartbeat.next_timeout_ns() != when:
                heapq.heappop(timers)
                stream.timer_ns = -1
                self._set_timer(stream)
            else:
                return when if due is None or when < due else due
        return due

    def handle_timeout(self, now_ns: int) -> None:
        self._check_alive()
        verdict = self._heartbeat.check(now_ns)
        if verdict is Verdict.DEAD:
            seconds = self.settings.ping_timeout
            self.failure = Timeout(f"{self.peer_name} did not answer a ping for {seconds:g} s", timeout=seconds)
            raise self.failure.with_traceback(None)
        if verdict is Verdict.PING:
            self._ping_peer(now_ns)
        while self._timers and self._timers[0][0] <= now_ns:
            when, _, stream = heapq.heappop(self._timers)
            heartbeat = stream.heartbeat
            if stream.ended or heartbeat is None or stream.timer_ns != when:
                continue
            stream.timer_ns = -1
            verdict = heartbeat.check(now_ns)
            if verdict is Verdict.DEAD:
                stream.heartbeat = None
                self.events.append(events.StreamTimedOut(stream))
                continue
            if verdict is Verdict.PING:
                if stream.local is HalfState.DONE:
                    stream.heartbeat = None
                    continue
                if stream.pings is None or len(stream.pings) < MAX_OUTSTANDING_PINGS:
                    self.ping(stream, now_ns=now_ns)
            self._set_timer(stream)

    def ping(self, stream: StreamState | None = None, *, now_ns: int = 0) -> None:
        """Send a Ping; :class:`~.events.PongReceived` follows."""
        self._check_alive()
        if stream is None:
            self._check_may(self.local, Packet.PING, "a global Ping")
            pings = self._pings
            packet = codec.encode_global(Packet.PING)
        else:
            self._check_may(stream.local, Packet.PING, f"Ping on stream {stream.id}")
            pings = stream.pings = stream.pings if stream.pings is not None else deque()
            packet = codec.encode_stream(Packet.PING, stream.id)
        if len(pings) >= MAX_OUTSTANDING_PINGS:
            raise LocalProtocolError(f"{MAX_OUTSTANDING_PINGS} pings wait for their pongs already", rule="ping-limit")
        self._control += packet
        pings.append(now_ns)

    def pong(self, stream: StreamState) -> None:
        """Send a Pong explicitly, for use with ``send_stream_pongs`` off."""
        self._check_alive()
        self._check_may(stream.local, Packet.PONG, f"Pong on stream {stream.id}")
        self._control += codec.encode_stream(Packet.PONG, stream.id)

    def _ping_peer(self, now_ns: int) -> None:
        """Ask for a sign of life. Once global pings are forbidden, use a stream that can still carry a ping."""
        if self.local is not HalfState.DONE:
            if len(self._pings) < MAX_OUTSTANDING_PINGS:
                self.ping(now_ns=now_ns)
            return
        for stream in self.streams.values():
            if stream.local is not HalfState.DONE:
                if not stream.pings or len(stream.pings) < MAX_OUTSTANDING_PINGS:
                    self.ping(stream, now_ns=now_ns)
                return
        # No ping can be sent any more. The peer needs nothing from this end to send its last packets, so a peer that still owes
        # packets and is silent for as long as a pong is allowed to take is dead too.
        owes = self.streams or (self.peer is not HalfState.DONE and self.settings.initial_local_state is HalfState.OPEN)
        if not owes:
            self._heartbeat.heard(now_ns)

    def _set_timer(self, stream: StreamState) -> None:
        """Have the stream's heartbeat checked when it is due. An earlier timer is kept, and moved when it gets to the front.

        So timers do not accumulate, however often the peer answers what it was not asked.
        """
        due = stream.heartbeat.next_timeout_ns() if stream.heartbeat is not None else None
        if due is not None and not 0 <= stream.timer_ns <= due:
            stream.timer_ns = due
            self._timer_count += 1
            heapq.heappush(self._timers, (due, self._timer_count, stream))
            self.timeout_moved = True

    # ---- internals

    def _begin(self, stream: StreamState, now_ns: int) -> None:
        """Send the first grant of a new stream, and start its heartbeat."""
        settings = self.settings
        if settings.stream_window and stream.receive_credit < settings.stream_window:
            window = settings.stream_window
            self.grant(stream, window if window == INFINITE else window - stream.receive_credit)
        if settings.stream_ping_interval is not None:
            stream.heartbeat = Heartbeat.of(settings.stream_ping_interval, settings.stream_ping_timeout, now_ns=now_ns)
            self._set_timer(stream)

    def _free_id(self) -> int:
        """Return the lowest inactive id of this end's parity, because small ids make small packets."""
        while self._freed_ids:
            stream_id = heapq.heappop(self._freed_ids)
            if stream_id not in self.streams:
                return stream_id
        while self._next_id in self.streams:
            self._next_id += 2
        stream_id = self._next_id
        self._next_id += 2
        return stream_id

    def _close_when_drained(self, stream: StreamState) -> None:
        stream.close_wanted = True
        if stream.local & HalfState.CLOSED:
            return
        if stream.queue.size:
            self._ready.add(stream)
        else:
            self._send_on(stream, Packet.CLOSE)

    def _send_on(self, stream: StreamState, packet: Packet, *, mark: int = 0) -> None:
        half = NEXT[stream.local][packet]
        assert isinstance(half, HalfState)
        stream.local = half
        encoded = codec.encode_stream(packet, stream.id)
        self._control += bytes((encoded[0] | mark,)) + encoded[1:] if mark else encoded

    def _send_global(self, packet: Packet) -> None:
        half = NEXT[self.local][packet]
        assert isinstance(half, HalfState)
        self.local = half
        self._control += codec.encode_global(packet)

    def _end_if_done(self, stream: StreamState) -> None:
        if stream.local is not HalfState.DONE or stream.peer is not HalfState.DONE or stream.ended:
            return
        assert not stream.queue.size, f"stream {stream.id} ends with {stream.queue.size} bytes queued"
        stream.ended = True
        del self.streams[stream.id]
        if stream.created_here:
            heapq.heappush(self._freed_ids, stream.id)
        self.events.append(events.StreamEnded(stream))
        self._release_if_done(stream)
        self._finish_if_done()

    def _release_if_done(self, stream: StreamState) -> None:
        """Let the peer create another stream once nothing of this one is left here (docs/protocols/bymux.md, 9)."""
        if not stream.ended or stream.unconsumed or stream.held or stream.released or stream.created_here:
            return
        stream.released = True
        refused = self.local & HalfState.STOPPED or self.peer & HalfState.CLOSED
        if not self.settings.peer_streams or refused or self.failure is not None:
            return
        self._peer_streams_restorable += 1
        if self._peer_streams_restorable >= self.peer_streams_credit:
            self.allow_streams(self._peer_streams_restorable)
            self._peer_streams_restorable = 0

    def _is_finished(self) -> bool:
        return self.local is HalfState.DONE and self.peer is HalfState.DONE and not self.streams

    def _finish_if_done(self) -> None:
        if self._is_finished() and not self._finished:
            self._finished = True
            self.events.append(events.ConnectionFinished())

    def _check_may(self, half: HalfState, packet: Packet, what: str) -> None:
        state = NEXT[half][packet]
        if isinstance(state, Rule):
            raise LocalProtocolError(f"{what} is forbidden now ({state})", rule=state)

    def _violated(self, rule: str, message: str) -> NoReturn:
        error = RemoteProtocolError(f"{self.peer_name} broke bymux: {message}", rule=rule, peer=self.peer_name)
        self.failure = error
        raise error
