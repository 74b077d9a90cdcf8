"""The lifecycle of bymux streams at one end: how they begin and end, their credit, their heartbeats.

This is the state of Appendix A without incoming packets and outgoing data. :mod:`.engine` adds those and describes the theory of
operation.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, NoReturn

from mainstem.bymux import codec, events
from mainstem.bymux.codec import INFINITE, MAX_FINITE_CREDIT, Packet
from mainstem.bymux.settings import Settings
from mainstem.bymux.state import NEXT, HalfState, Role
from mainstem.bymux.stream import StreamState
from mainstem.errors import LocalProtocolError, RemoteProtocolError, Timeout
from mainstem.mux.engine import LONE_BYTES, MAX_OUTSTANDING_PINGS, BaseEngine, Rule
from mainstem.mux.heartbeat import Heartbeat, Verdict

if TYPE_CHECKING:
    from mainstem.errors import MainstemError


class Lifecycle(BaseEngine[events.Event]):
    """The streams of one end, and the rights to create more."""

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

    # ---- credit

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

    # ---- timeouts

    def next_timeout_ns(self) -> int | None:
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
        self._check_alive()
        verdict = self._heartbeat.check(now_ns)
        if verdict is Verdict.DEAD:
            seconds = self.settings.ping_timeout
            self.failure = Timeout(f"{self.peer_name} did not answer a ping for {seconds:g} s", timeout=seconds)
            raise self.failure.with_traceback(None)
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
        due = stream.heartbeat.next_timeout_ns() if stream.heartbeat is not None else None
        if due is not None:
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
