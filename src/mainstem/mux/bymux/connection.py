"""bymux as a sans-IO connection: bytes and an instant in, events and bytes out.

The tables of :mod:`.state` decide what may follow what; this file keeps the credits and routes.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import NoReturn

from mainstem.errors import ClosedError, LocalProtocolError, RemoteProtocolError, TimedOut
from mainstem.mux.bymux import codec, events
from mainstem.mux.bymux.codec import HEADER_LENGTHS, INFINITE, MAX_FINITE_CREDIT, Packet
from mainstem.mux.bymux.settings import Settings
from mainstem.mux.bymux.state import NEXT, RESPONSE, Half, Role
from mainstem.mux.bymux.stream import Stream
from mainstem.mux.heartbeat import Heartbeat, Verdict
from mainstem.mux.sans_io import MAX_OUTSTANDING_PINGS, SEND_LIMIT, Rule, SansIoConnection


class BymuxConnection(SansIoConnection[Stream, events.Event]):
    """One end of a bymux connection.

    ``receive_data``, ``next_event``, ``data_to_send``, ``next_timeout_ns`` and ``handle_timeout`` are the verbs that every
    protocol here has. Methods that send raise :class:`~mainstem.errors.LocalProtocolError`, and send nothing, when the
    specification forbids what they ask for; after the connection failed they raise :class:`~mainstem.errors.ClosedError`.
    """

    PROTOCOL = "bymux"

    def __init__(self, role: Role, settings: Settings | None = None, *, now_ns: int = 0, peer: str = "peer") -> None:
        self.settings = settings = settings or Settings()
        super().__init__(settings, now_ns=now_ns, peer=peer)
        self.role = role
        self.own = settings.initial_own_half
        self.peer = settings.initial_peer_half
        self.own_streams_credit = settings.initial_own_streams
        self.peer_streams_credit = settings.initial_peer_streams
        self.streams: dict[int, Stream] = {}
        self._grants: list[Stream] = []
        self._body_stream: Stream | None = None
        self._body_left = 0
        self._freed_ids: list[int] = []
        self._next_id = int(role)
        self._peer_streams_restorable = 0
        self._pings: deque[int] = deque()
        self._timers: list[tuple[int, int, Stream]] = []
        self._timer_count = 0
        self._finished = False
        for initial in settings.initial_streams:
            stream = Stream(
                initial.stream_id,
                send_credit=initial.own_credit,
                receive_credit=initial.peer_credit,
                created_here=initial.stream_id & 1 == role,
            )
            self.streams[stream.id] = stream
            self._begin(stream, now_ns)
        missing = settings.peer_streams - self.peer_streams_credit
        if missing > 0 and settings.allow_at_start and not self.own & Half.STOPPED and not self.peer & Half.CLOSED:
            self.allow_streams(missing)

    # ---- receiving

    def receive_data(self, data: bytes | bytearray | memoryview, now_ns: int = 0) -> None:
        """Takes bytes from the peer, cut anywhere; the bytes are copied as far as they are kept.

        Raises :class:`~mainstem.errors.RemoteProtocolError` when the peer broke a rule: the connection has then failed and
        the transport must be closed (bymux has no packet to say so). Events from before the fault can still be fetched.
        """
        self._check_alive()
        self._heartbeat.heard(now_ns)
        view = data if isinstance(data, memoryview) else memoryview(data)
        position, end = 0, len(view)
        while position < end:
            if self._body_left:
                taken = min(end - position, self._body_left)
                self._receive_body(bytes(view[position : position + taken]))
                position += taken
                continue
            carry = self._carry
            length = HEADER_LENGTHS[carry[0] if carry else view[position]]
            if not length:
                self._violated(
                    "undefined-packet-type", f"packet type {(carry or view[position:])[0] >> 5} is undefined"
                )
            if not carry and end - position >= length:
                self._receive_packet(view, position, now_ns)
                position += length
                continue
            taken = min(length - len(carry), end - position)
            carry += view[position : position + taken]
            position += taken
            if len(carry) == length:
                self._carry = bytearray()
                self._receive_packet(memoryview(carry), 0, now_ns)
        if len(self._control) > self.settings.control_limit:
            self._violated(
                "answers-not-read", f"{len(self._control)} bytes of answers wait for a peer that does not read"
            )

    def receive_eof(self, now_ns: int = 0) -> None:  # noqa: ARG002 - all verbs that take input take the instant
        """The peer ended the byte stream. Raises ``RemoteProtocolError`` when that cut a packet in two."""
        self._check_alive()
        if self._carry or self._body_left:
            self._violated("truncated-packet", "the byte stream ended inside a packet")
        clean = self._is_finished()
        self.failure = ClosedError(f"the bymux connection to {self.peer_name} has ended")
        self._events.append(events.ConnectionEnded(clean))

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
            self._receive_write(stream, amount)
        elif packet is Packet.CREDIT:
            self._receive_credit(stream, amount)
        elif packet is Packet.PING:
            self._receive_ping(stream)
        elif packet is Packet.PONG:
            self._receive_pong(stream, now_ns)
        else:
            self._receive_end(stream, packet, half)

    def _receive_write(self, stream: Stream, amount: int) -> None:
        credit = stream.receive_credit
        if credit != INFINITE:
            if amount > credit:
                self._violated(
                    "write-beyond-credit", f"Write of {amount} bytes on stream {stream.id} with credit {credit}"
                )
            stream.receive_credit = credit - amount
        self._body_stream = stream
        self._body_left = amount

    def _receive_body(self, data: bytes) -> None:
        stream = self._body_stream
        assert stream is not None
        assert len(data) <= self._body_left
        self._body_left -= len(data)
        if not stream.discarding:
            stream.unconsumed += len(data)
            self._events.append(events.DataReceived(stream, data))

    def _receive_credit(self, stream: Stream, amount: int) -> None:
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

    def _receive_ping(self, stream: Stream) -> None:
        response = RESPONSE[stream.own][Packet.PING]
        answered = response is not None and self.settings.answer_stream_pings
        if answered:
            self._control += codec.encode_stream(Packet.PONG, stream.id)
        self._events.append(events.PingReceived(stream, answered))

    def _receive_pong(self, stream: Stream, now_ns: int) -> None:
        if stream.heartbeat is not None:
            stream.heartbeat.heard(now_ns)
            self._set_timer(stream)
        rtt_ns = now_ns - stream.pings.popleft() if stream.pings else -1
        self._events.append(events.PongReceived(stream, rtt_ns))

    def _receive_end(self, stream: Stream, packet: Packet, half: Half) -> None:
        stream.peer = half
        response = RESPONSE[stream.own][packet]
        if packet is Packet.CLOSE:
            self._events.append(events.StreamFinished(stream))
            if response is not None:
                self._send_on(stream, Packet.STOP_READ)
        else:
            lost = 0
            if stream.send_credit != INFINITE:
                lost = stream.queue.truncate(min(stream.queue.size, stream.send_credit))
            self._events.append(events.StreamReadStopped(stream, lost))
            if response is not None:
                self._close_when_drained(stream)
        self._end_if_done(stream)

    def _receive_global(self, packet: Packet, stream_id: int, amount: int, now_ns: int) -> None:
        half = NEXT[self.peer][packet]
        if isinstance(half, Rule):
            self._violated(half, f"global {packet.name} after the peer's {self.peer.name} half forbids it")
        self.peer = half
        if packet is Packet.CREDIT:
            if self.own_streams_credit + amount > INFINITE:
                self._violated("global-credit-overflow", f"global credit {amount} on top of {self.own_streams_credit}")
            self.own_streams_credit += amount
            self._events.append(events.GlobalCreditReceived(amount))
        elif packet is Packet.WRITE:
            self._receive_create(stream_id, now_ns)
        elif packet is Packet.PING:
            response = RESPONSE[self.own][packet]
            if response is not None:
                self._control += codec.encode_global(response)
            self._events.append(events.PingReceived(None, response is not None))
        elif packet is Packet.PONG:
            self._events.append(events.PongReceived(None, now_ns - self._pings.popleft() if self._pings else -1))
        else:
            closed = packet is Packet.CLOSE
            self._events.append(events.CreationClosed() if closed else events.CreationStopped())
            response = RESPONSE[self.own][packet]
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
        stream = Stream(
            stream_id,
            send_credit=0,
            receive_credit=settings.peer_start_credit,
            created_here=False,
        )
        self.streams[stream_id] = stream
        self._events.append(events.StreamOpened(stream))
        self._begin(stream, now_ns)

    # ---- commands

    @property
    def can_open(self) -> bool:
        """Whether :meth:`open_stream` would succeed now."""
        return bool(self.own_streams_credit) and not self.own & Half.CLOSED and self.failure is None

    def open_stream(self, stream_id: int | None = None, *, now_ns: int = 0) -> Stream:
        """Creates a stream, with the lowest free id unless one is given; its first grant leaves with it."""
        self._check_alive()
        self._check_may(self.own, Packet.WRITE, "creating a stream")
        if not self.own_streams_credit:
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
        self.own_streams_credit -= 1
        stream = Stream(stream_id, send_credit=self.settings.own_start_credit, receive_credit=0, created_here=True)
        self.streams[stream_id] = stream
        self._begin(stream, now_ns)
        return stream

    def write(self, stream: Stream, data: bytes | bytearray | memoryview) -> None:
        """Queues bytes; they leave as credit and turns allow. ``stream.queued`` says how many wait."""
        if stream.own & Half.CLOSED or stream.close_wanted or self.failure is not None:
            self._check_alive()
            raise LocalProtocolError(f"write on stream {stream.id} after Close", rule="write-after-close")
        stream.queue.append(data)
        if stream.send_credit and not stream.scheduled and stream.queue.size:
            self._ready.add(stream)

    def consume(self, stream: Stream, count: int) -> None:
        """``count`` bytes handed out on ``stream`` no longer take up room; grants what Appendix B's rule asks for."""
        if not 0 <= count <= stream.unconsumed:
            raise LocalProtocolError(
                f"{count} bytes of stream {stream.id} cannot be consumed: {stream.unconsumed} were handed out",
                rule="consume",
            )
        stream.unconsumed -= count
        stream.restorable += count
        # Appendix B: grant once the amount is at least what the peer still has.
        if stream.restorable >= stream.receive_credit and not stream.grant_due and not stream.own & Half.STOPPED:
            if self.settings.stream_window:
                stream.grant_due = True
                self._grants.append(stream)
        elif stream.ended and not stream.unconsumed:
            self._release(stream)

    def grant(self, stream: Stream, amount: int) -> None:
        """Gives the peer ``amount`` bytes of credit, or infinite credit, which cannot be taken back."""
        self._check_alive()
        self._check_may(stream.own, Packet.CREDIT, f"credit on stream {stream.id}")
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

    def close(self, stream: Stream, *, discard: bool = False) -> None:
        """Sends Close once what is queued has left; with ``discard`` drops the queue and sends it at once."""
        self._check_alive()
        if stream.own & Half.CLOSED or (stream.close_wanted and not discard):
            raise LocalProtocolError(f"Close on stream {stream.id} a second time", rule="close-after-close")
        if discard:
            stream.queue.truncate(0)
        self._close_when_drained(stream)
        self._end_if_done(stream)

    def stop_read(self, stream: Stream) -> None:
        """Sends StopRead: no more credit is given. What still arrives is dropped."""
        self._check_alive()
        self._check_may(stream.own, Packet.STOP_READ, f"StopRead on stream {stream.id}")
        stream.discarding = True
        self._send_on(stream, Packet.STOP_READ)
        self._end_if_done(stream)

    def discard(self, stream: Stream) -> None:
        """The reader wants nothing more: what still arrives is dropped, and what was handed out counts as consumed."""
        stream.discarding = True
        if stream.unconsumed:
            self.consume(stream, stream.unconsumed)

    def ping(self, stream: Stream | None = None, *, now_ns: int = 0) -> None:
        """Asks the peer for a Pong, on a stream or for the connection."""
        self._check_alive()
        if stream is None:
            self._check_may(self.own, Packet.PING, "a global Ping")
            pings = self._pings
            packet = codec.encode_global(Packet.PING)
        else:
            self._check_may(stream.own, Packet.PING, f"Ping on stream {stream.id}")
            pings = stream.pings = stream.pings if stream.pings is not None else deque()
            packet = codec.encode_stream(Packet.PING, stream.id)
        if len(pings) >= MAX_OUTSTANDING_PINGS:
            raise LocalProtocolError(f"{MAX_OUTSTANDING_PINGS} pings wait for their pongs already", rule="ping-limit")
        self._control += packet
        pings.append(now_ns)

    def pong(self, stream: Stream) -> None:
        """Answers a stream's ping by hand, where the settings leave that to the user."""
        self._check_alive()
        self._check_may(stream.own, Packet.PONG, f"Pong on stream {stream.id}")
        self._control += codec.encode_stream(Packet.PONG, stream.id)

    def allow_streams(self, amount: int) -> None:
        """Gives the peer global credit: it may create ``amount`` more streams."""
        self._check_alive()
        self._check_may(self.own, Packet.CREDIT, "global credit")
        if amount < 1 or self.peer_streams_credit + amount > INFINITE:
            raise LocalProtocolError(
                f"global credit {amount} on top of {self.peer_streams_credit}: it must be positive, the sum at most 2**64-1",
                rule="global-credit-overflow",
            )
        self.peer_streams_credit += amount
        self._control += codec.encode_global(Packet.CREDIT, amount)

    def close_creation(self) -> None:
        """Sends a global Close: this end will create no more streams."""
        self._check_alive()
        self._check_may(self.own, Packet.CLOSE, "a global Close")
        self._send_global(Packet.CLOSE)
        self._finish_if_done()

    def stop_creation(self) -> None:
        """Sends a global StopRead: this end will allow no more streams."""
        self._check_alive()
        self._check_may(self.own, Packet.STOP_READ, "a global StopRead")
        self._send_global(Packet.STOP_READ)
        self._finish_if_done()

    def finish(self) -> None:
        """No new streams in either direction; :class:`~.events.ConnectionFinished` comes when the last one has ended."""
        if not self.own & Half.CLOSED:
            self.close_creation()
        if not self.own & Half.STOPPED:
            self.stop_creation()

    # ---- sending

    @property
    def wants_to_send(self) -> bool:
        """Whether :meth:`data_to_send` would return anything."""
        return bool(self._control or self._grants or self._ready)

    def segments_to_send(self, limit: int = SEND_LIMIT) -> list[bytes | memoryview]:
        """What :meth:`data_to_send` returns, in pieces that were not copied: for transports that can gather."""
        out: list[bytes | memoryview] = []
        if self._grants:
            self._emit_grants()
        if self._control:
            out.append(bytes(self._control))
            self._control.clear()
        if self._ready:
            self._ready.run(limit, out, self._turn)
        return out

    def _turn(self, stream: Stream, out: list[bytes | memoryview]) -> int:
        queue = stream.queue
        credit = stream.send_credit
        count = min(queue.size, credit, self.settings.packet_limit)
        length = 0
        if count:
            header = codec.encode_stream(Packet.WRITE, stream.id, count)
            out.append(header)
            queue.take(count, out)
            length = len(header) + count
            if credit != INFINITE:
                credit = stream.send_credit = credit - count
        if queue.size:
            if credit:
                self._ready.add(stream)
        elif stream.close_wanted and not stream.own & Half.CLOSED:
            out.append(codec.encode_stream(Packet.CLOSE, stream.id))
            length += len(out[-1])
            stream.own = Half.DONE if stream.own & Half.STOPPED else Half.CLOSED
            self._end_if_done(stream)
        if queue.size <= stream.notify_below:
            stream.notify_below = -1
            self._events.append(events.StreamDrained(stream))
        return length

    def _emit_grants(self) -> None:
        for stream in self._grants:
            stream.grant_due = False
            amount = stream.restorable
            if amount and not stream.own & Half.STOPPED and stream.receive_credit != INFINITE:
                stream.restorable = 0
                stream.receive_credit += amount
                self._control += codec.encode_stream(Packet.CREDIT, stream.id, amount)
        self._grants.clear()

    # ---- timeouts

    def next_timeout_ns(self) -> int | None:
        """When :meth:`handle_timeout` wants to be called, or ``None``."""
        due = self._heartbeat.next_timeout_ns() if self.failure is None else None
        timers = self._timers
        while timers:
            when, _, stream = timers[0]
            heartbeat = stream.heartbeat
            if stream.ended or heartbeat is None or heartbeat.next_timeout_ns() != when:
                heapq.heappop(timers)
                continue
            return when if due is None or when < due else due
        return due

    def handle_timeout(self, now_ns: int) -> None:
        """Does what is due: pings, and the end of a peer that did not answer, which raises ``TimedOut``."""
        self._check_alive()
        verdict = self._heartbeat.check(now_ns)
        if verdict is Verdict.DEAD:
            seconds = self.settings.ping_timeout_ns / 1e9
            self.failure = TimedOut(f"{self.peer_name} did not answer a ping for {seconds:g} s", timeout=seconds)
            raise self.failure
        if verdict is Verdict.PING:
            self._ping_peer(now_ns)
        while self._timers and self._timers[0][0] <= now_ns:
            _, _, stream = heapq.heappop(self._timers)
            heartbeat = stream.heartbeat
            if stream.ended or heartbeat is None:
                continue
            verdict = heartbeat.check(now_ns)
            if verdict is Verdict.DEAD:
                stream.heartbeat = None
                self._events.append(events.StreamTimedOut(stream))
                continue
            if verdict is Verdict.PING:
                if stream.own is Half.DONE:
                    stream.heartbeat = None
                    continue
                if stream.pings is None or len(stream.pings) < MAX_OUTSTANDING_PINGS:
                    self.ping(stream, now_ns=now_ns)
            self._set_timer(stream)

    def _ping_peer(self, now_ns: int) -> None:
        """Asks for any sign of life: once global pings are forbidden, on a stream that may still carry one."""
        if self.own is not Half.DONE:
            if len(self._pings) < MAX_OUTSTANDING_PINGS:
                self.ping(now_ns=now_ns)
            return
        for stream in self.streams.values():
            if stream.own is not Half.DONE:
                if not stream.pings or len(stream.pings) < MAX_OUTSTANDING_PINGS:
                    self.ping(stream, now_ns=now_ns)
                return
        self._heartbeat.heard(now_ns)

    def _set_timer(self, stream: Stream) -> None:
        due = stream.heartbeat.next_timeout_ns() if stream.heartbeat is not None else None
        if due is not None:
            self._timer_count += 1
            heapq.heappush(self._timers, (due, self._timer_count, stream))

    # ---- internals

    def _begin(self, stream: Stream, now_ns: int) -> None:
        """The first grant and the heartbeat of a stream that came to be."""
        settings = self.settings
        if settings.stream_window and stream.receive_credit < settings.stream_window:
            window = settings.stream_window
            self.grant(stream, window if window == INFINITE else window - stream.receive_credit)
        if settings.stream_ping_interval_ns:
            stream.heartbeat = Heartbeat(
                interval_ns=settings.stream_ping_interval_ns, timeout_ns=settings.stream_ping_timeout_ns, now_ns=now_ns
            )
            self._set_timer(stream)

    def _free_id(self) -> int:
        """The lowest id of our parity that is not active: small ids make small packets."""
        while self._freed_ids:
            stream_id = heapq.heappop(self._freed_ids)
            if stream_id not in self.streams:
                return stream_id
        while self._next_id in self.streams:
            self._next_id += 2
        stream_id = self._next_id
        self._next_id += 2
        return stream_id

    def _close_when_drained(self, stream: Stream) -> None:
        stream.close_wanted = True
        if stream.own & Half.CLOSED:
            return
        if stream.queue.size:
            self._ready.add(stream)
        else:
            self._send_on(stream, Packet.CLOSE)

    def _send_on(self, stream: Stream, packet: Packet) -> None:
        half = NEXT[stream.own][packet]
        assert isinstance(half, Half)
        stream.own = half
        self._control += codec.encode_stream(packet, stream.id)

    def _send_global(self, packet: Packet) -> None:
        half = NEXT[self.own][packet]
        assert isinstance(half, Half)
        self.own = half
        self._control += codec.encode_global(packet)

    def _end_if_done(self, stream: Stream) -> None:
        if stream.own is not Half.DONE or stream.peer is not Half.DONE or stream.ended:
            return
        assert not stream.queue.size, f"stream {stream.id} ends with {stream.queue.size} bytes queued"
        stream.ended = True
        del self.streams[stream.id]
        if stream.created_here:
            heapq.heappush(self._freed_ids, stream.id)
        self._events.append(events.StreamEnded(stream))
        if not stream.unconsumed:
            self._release(stream)
        self._finish_if_done()

    def _release(self, stream: Stream) -> None:
        """A stream of the peer's takes up no more room here: the right to create one goes back by Appendix B's rule."""
        if stream.released or stream.created_here:
            return
        stream.released = True
        refused = self.own & Half.STOPPED or self.peer & Half.CLOSED
        if not self.settings.peer_streams or refused or self.failure is not None:
            return
        self._peer_streams_restorable += 1
        if self._peer_streams_restorable >= self.peer_streams_credit:
            self.allow_streams(self._peer_streams_restorable)
            self._peer_streams_restorable = 0

    def _is_finished(self) -> bool:
        return self.own is Half.DONE and self.peer is Half.DONE and not self.streams

    def _finish_if_done(self) -> None:
        if self._is_finished() and not self._finished:
            self._finished = True
            self._events.append(events.ConnectionFinished())

    def _check_may(self, half: Half, packet: Packet, what: str) -> None:
        state = NEXT[half][packet]
        if isinstance(state, Rule):
            raise LocalProtocolError(f"{what} is forbidden now ({state})", rule=state)

    def _violated(self, rule: str, message: str) -> NoReturn:
        error = RemoteProtocolError(f"{self.peer_name} broke bymux: {message}", rule=rule, peer=self.peer_name)
        self.failure = error
        raise error
