"""bymux: streams in both directions over a byte stream, between applications that are slow, stop reading, cancel, and close."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import partial
from typing import TYPE_CHECKING

from mainstem.bymux import events
from mainstem.bymux.codec import INFINITE, Packet, decode_header
from mainstem.bymux.engine import BymuxEngine
from mainstem.bymux.settings import Settings
from mainstem.bymux.state import HalfState, Role
from mainstem.sim.checkers import Violation
from mainstem.sim.scenarios import mux
from mainstem.sim.scenarios.mux import (
    CONTROL_LIMIT,
    PING_TIMEOUT_S,
    READ_PROBABILITIES,
    Direction,
    MuxRun,
    drawn_ping_interval,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from mainstem.bymux.stream import StreamState
    from mainstem.sim.world import World

MAX_STREAMS = 5  # opened by each end
NAMES = ("the proactive end", "the reactive end")
WINDOWS = (1, 16, 200, 4_096, 65_536, INFINITE)
PACKET_LIMITS = (20, 1_000, 65_536)
MEDIUM, LONG = 16_384, 1_200_000  # most streams have at most MEDIUM bytes, a few have LONG


class BymuxDirection(Direction):
    """One direction of a stream: what was written and read so far, and what writer and reader will do."""

    def __init__(self, name: str, rng: Random, longest: int) -> None:
        super().__init__(name, rng, longest, rarely=LONG if longest >= MEDIUM else 0)
        self.writer: StreamState | None = None
        self.reader: StreamState | None = None
        # The writer discards its queue, or the reader stops reading, after this number of bytes.
        self.discard_at = rng.randrange(self.goal + 1) if rng.random() < 0.1 else None
        self.stop_at = rng.randrange(self.goal + 1) if rng.random() < 0.15 else None
        self.read_probability = rng.choice(READ_PROBABILITIES)
        self.drops_rest = rng.random() < 0.2
        self.is_cut = False  # whether its writer discarded something
        self.lost = 0  # bytes reported to the writer as written but not covered by credit
        self.is_stopped = False  # whether its reader stopped reading
        self.is_finished = False  # whether its reader received the end

    def __repr__(self) -> str:
        return f"{super().__repr__()}; {self.writer}, {self.reader}"


class StreamPlan:
    """One stream: the direction from the end that opens it, and the direction back."""

    def __init__(self, name: str, opener: int, rng: Random, longest: tuple[int, int]) -> None:
        self.name, self.opener = name, opener
        self.directions = (
            BymuxDirection(f"{name} there", rng, longest[1 - opener]),
            BymuxDirection(f"{name} back", rng, longest[opener]),
        )
        self.has_ended = [False, False]

    def outgoing(self, number: int) -> BymuxDirection:
        return self.directions[0 if number == self.opener else 1]

    def incoming(self, number: int) -> BymuxDirection:
        return self.directions[1 if number == self.opener else 0]


class Wire(mux.Wire):
    def __init__(self, name: str, connection: BymuxEngine, start_credit: int) -> None:
        super().__init__(name)
        self.connection = connection
        self.creations = 0  # how many streams this end may still create
        self.credit: dict[int, int] = {}
        self.start_credit = start_credit

    def on_arrived(self, packet: Packet, is_global: bool, stream_id: int, amount: int) -> None:
        if is_global and packet is Packet.CREDIT:
            self.creations += amount
        elif is_global:
            self.credit[stream_id] = 0
        else:
            self.credit[stream_id] = self.credit[stream_id] + amount if amount else INFINITE

    def left(self, data: bytes) -> None:
        offset, end = 0, len(data)
        short: dict[int, bool] = {}
        granted: dict[int, int] = {}
        while offset < end:
            header = decode_header(data, offset)
            assert header is not None
            packet, is_global, stream_id, amount, length = header
            offset += length
            self.counts[packet, is_global] += 1
            if packet is Packet.WRITE and not is_global:
                offset += amount
                self.data_bytes += amount
                if short.get(stream_id):
                    raise Violation(
                        f"{self.name} sent two Writes of stream {stream_id} where one would have been enough"
                    )
                short[stream_id] = self._writes(stream_id, amount)
            elif packet is Packet.WRITE:
                self._creates(stream_id)
            if packet is Packet.CREDIT or (packet is Packet.WRITE and is_global):
                self.send_later(offset, packet, is_global, stream_id, amount)
                if not is_global:
                    granted[stream_id] = amount
        if offset != end:
            raise Violation(f"{self.name} sent a packet in two pieces")
        self.sent += end
        for stream_id, amount in granted.items():
            self._grants(stream_id, amount)

    def _creates(self, stream_id: int) -> None:
        self.creations -= 1
        if self.creations < 0:
            raise Violation(f"{self.name} created stream {stream_id} beyond the peer's limit on streams")
        self.credit[stream_id] = self.start_credit

    def _writes(self, stream_id: int, amount: int) -> bool:
        credit, limit = self.credit[stream_id], self.connection.settings.packet_limit
        if not 0 < amount <= min(credit, limit):
            raise Violation(
                f"{self.name} wrote {amount} bytes on stream {stream_id}, expected 1 to {min(credit, limit)}"
            )
        if credit != INFINITE:
            self.credit[stream_id] = credit - amount
        return amount < min(limit, credit)

    def _grants(self, stream_id: int, amount: int) -> None:
        """Check a grant: it must be at least as large as the receiver's remaining credit, which limits the number of grants."""
        stream = self.connection.streams.get(stream_id)
        if stream is not None and amount and 2 * amount < stream.receive_credit:
            raise Violation(
                f"{self.name} granted {amount} bytes, less than the remaining credit of {stream.receive_credit - amount}"
            )


class BymuxRun(MuxRun):
    """Both ends open a few streams, write and read as drawn, and finish."""

    NAMES = NAMES

    def __init__(self, world: World, *, is_killed_later: bool = False) -> None:
        super().__init__(world, is_killed_later=is_killed_later)
        rng = world.rng
        windows = (rng.choice(WINDOWS), rng.choice(WINDOWS))
        limits = (rng.choice(PACKET_LIMITS), rng.choice(PACKET_LIMITS))
        # The longest stream for each reader: several times its window, so that credit runs out, but not too many packets.
        longest = tuple(min(3 * min(windows[reader], 16_384) + 50, 100 * limits[1 - reader]) for reader in range(2))
        starts = tuple(rng.choice((0, min(window, 1_000) // 2)) for window in windows)
        for role in Role:
            connection = BymuxEngine(
                role, self._settings(role, windows, limits, starts), now_ns=world.now_ns, peer=NAMES[1 - role]
            )
            self.carry(role, connection, Wire(NAMES[role], connection, starts[1 - role]))
        self.waiting = [
            deque(
                StreamPlan(f"{NAMES[end]}'s stream {index}", end, rng, (longest[0], longest[1]))
                for index in range(rng.randrange(MAX_STREAMS))
            )
            for end in range(2)
        ]
        self.directions = [direction for plans in self.waiting for plan in plans for direction in plan.directions]
        self.plans: list[StreamPlan] = []
        self.live: tuple[list[StreamPlan], list[StreamPlan]] = ([], [])
        self.unmet: dict[int, deque[StreamPlan]] = defaultdict(deque)  # opened, but not seen by the other end
        self.has_finished = [False, False]

    def _settings(
        self, role: int, windows: tuple[int, int], limits: tuple[int, int], starts: tuple[int, ...]
    ) -> Settings:
        ping, stream_ping = drawn_ping_interval(self.rng, self.fate), drawn_ping_interval(self.rng, "whole")
        return Settings(
            stream_window=windows[role],
            peer_streams=self.rng.randrange(1, MAX_STREAMS),
            packet_limit=limits[role],
            control_limit=CONTROL_LIMIT,
            local_initial_credit=starts[1 - role],
            peer_initial_credit=starts[role],
            ping_interval=ping,
            ping_timeout=PING_TIMEOUT_S,
            stream_ping_interval=stream_ping,
            stream_ping_timeout=PING_TIMEOUT_S,
        )

    # -- the applications ----------------------------------------------------------------------------------------------

    def act(self, number: int) -> bool:
        connection, rng, acted = self.connections[number], self.rng, False
        waiting = self.waiting[number]
        while waiting and connection.can_open:
            self._open(number, waiting.popleft())
            acted = True
        for plan in self.live[number]:
            if rng.random() < 0.7:
                acted |= self._write(number, plan.outgoing(number))
                acted |= self._read(number, plan.incoming(number))
        if self.pings_left[number] and rng.random() < 0.02 and connection.local is not HalfState.DONE:
            self.pings_left[number] -= 1
            connection.ping(now_ns=self.world.now_ns)
        if self.is_ending and not self.has_finished[number] and rng.random() < 0.5:
            self.has_finished[number] = acted = True
            connection.finish()
        return acted

    def _open(self, number: int, plan: StreamPlan) -> None:
        stream = self.connections[number].open_stream(now_ns=self.world.now_ns)
        self.unmet[stream.id].append(plan)
        self.plans.append(plan)
        self._attach(number, plan, stream)

    def _attach(self, number: int, plan: StreamPlan, stream: StreamState) -> None:
        stream.owner = plan
        plan.outgoing(number).writer = stream
        plan.incoming(number).reader = stream
        self.live[number].append(plan)

    def _write(self, number: int, direction: BymuxDirection) -> bool:
        connection, stream = self.connections[number], direction.writer
        assert stream is not None
        if (
            direction.discard_at is not None
            and direction.written >= direction.discard_at
            and not stream.local & HalfState.CLOSED
        ):
            direction.discard_at = None
            direction.is_closed = direction.is_cut = True
            connection.close(stream, discard=True)
            return True
        if direction.is_closed or direction.waits:
            return False
        if direction.written == direction.goal:
            direction.is_closed = True
            connection.close(stream)
            return True
        self.write(number, stream, direction)
        return True

    def _read(self, number: int, direction: BymuxDirection) -> bool:
        connection, stream, acted = self.connections[number], direction.reader, False
        assert stream is not None
        if (
            direction.stop_at is not None
            and direction.read >= direction.stop_at
            and not stream.local & HalfState.STOPPED
        ):
            direction.stop_at, direction.is_stopped, acted = None, True, True
            connection.stop_read(stream)
        if not stream.unconsumed or self.rng.random() >= direction.read_probability:
            return acted
        if direction.is_finished and direction.drops_rest:
            connection.discard(stream)
        else:
            self.consume(number, stream)
        return True

    # -- events --------------------------------------------------------------------------------------------------------

    def on_event(self, number: int, event: events.Event) -> None:
        if isinstance(event, events.DataReceived):
            self._on_data(event.stream.owner.incoming(number), event.data)
        elif isinstance(event, events.StreamOpened):
            self._attach(number, self.unmet[event.stream.id].popleft(), event.stream)
        elif isinstance(event, events.StreamFinished):
            self._on_finished(event.stream.owner.incoming(number), event.aborted)
        elif isinstance(event, events.StreamReadStopped):
            direction = event.stream.owner.outgoing(number)
            direction.is_closed = True
            direction.lost = event.lost
            if not direction.is_cut and event.stream.sent + event.stream.queued + direction.lost != direction.written:
                raise Violation(
                    f"{direction}: {direction.lost} bytes were reported lost, which does not match what was written"
                )
        elif isinstance(event, events.StreamDrained):
            self.on_drained(event.stream, event.stream.owner.outgoing(number))
        elif isinstance(event, events.StreamEnded):
            self._on_ended(number, event.stream)
        elif isinstance(event, events.PongReceived):
            if event.rtt_ns < 0:
                raise Violation(f"{NAMES[number]} got a round trip of {event.rtt_ns} ns from a pong")
        elif isinstance(event, events.StreamTimedOut):
            if self.fate == "whole":
                raise Violation(f"{NAMES[number]}: {event.stream} timed out although its peer is alive")
        elif isinstance(event, events.ConnectionFinished):
            self._on_connection_finished(number)
        elif isinstance(event, events.ConnectionEnded) and event.clean != self.carriers[number].wants_to_leave:
            raise Violation(
                f"{NAMES[number]}: the connection ended with clean={event.clean}, expected {not event.clean}"
            )

    def _on_data(self, direction: BymuxDirection, data: bytes) -> None:
        direction.receive(data)
        if direction.is_stopped or direction.is_finished:
            raise Violation(f"{direction}: bytes arrived after the reader had stopped or reached the end")

    def _on_finished(self, direction: BymuxDirection, is_aborted: bool) -> None:
        assert direction.writer is not None
        if is_aborted != direction.is_cut:
            raise Violation(f"{direction}: the stream finished with aborted={is_aborted}, expected {direction.is_cut}")
        if direction.is_finished:
            raise Violation(f"{direction} ended twice")
        direction.is_finished = True
        whole = direction.read == direction.writer.sent and (
            direction.is_cut or direction.read + direction.lost == direction.written
        )
        if not direction.is_stopped and (not whole or not direction.is_closed):
            raise Violation(
                f"{direction} ended early: {direction.writer.sent} bytes were sent and {direction.lost} reported lost"
            )

    def _on_ended(self, number: int, stream: StreamState) -> None:
        plan = stream.owner
        if plan.has_ended[number]:
            raise Violation(f"{plan.name} ended twice")
        plan.has_ended[number] = True
        for direction in (plan.outgoing(number), plan.incoming(number)):
            if not direction.is_closed:
                raise Violation(f"{direction}: the stream ended at {NAMES[number]} while this direction was open")

    def _on_connection_finished(self, number: int) -> None:
        self.carriers[number].wants_to_leave = True
        if not self.is_ending or not self.is_done():
            raise Violation(f"{NAMES[number]} finished before all streams had ended")

    # -- invariants ----------------------------------------------------------------------------------------------------

    def check(self, number: int) -> None:
        connection = self.connections[number]
        window = connection.settings.stream_window
        theirs = 0
        for stream in connection.streams.values():
            theirs += not stream.created_here
            if window == INFINITE:
                continue
            held = stream.receive_credit + stream.unconsumed + stream.restorable
            if connection._body_stream is stream:
                held += connection._body_left
            if held > window or (held < window and not stream.local & HalfState.STOPPED and not stream.discarding):
                raise Violation(f"{NAMES[number]} buffers and allows {held} bytes of {stream}, expected {window}")
        if theirs > connection.settings.peer_streams:
            raise Violation(
                f"{NAMES[number]} has {theirs} streams of its peer, limit {connection.settings.peer_streams}"
            )
        live = self.live[number]
        if any(plan.has_ended[number] for plan in live):
            # A stream that has ended may still have bytes waiting for their reader.
            live[:] = [t for t in live if not t.has_ended[number] or _unconsumed(t.incoming(number))]

    def is_done(self) -> bool:
        return not any(self.waiting) and all(all(plan.has_ended) for plan in self.plans) and not any(self.live)

    def is_ended(self) -> bool:
        return all(carrier.connection.failure is not None for carrier in self.carriers)

    def commands(self, number: int) -> list[Callable[[], object]]:
        connection = self.connections[number]
        if connection.next_event() is not None:
            raise Violation(f"{NAMES[number]} has an event after its connection failed")
        commands: list[Callable[[], object]] = [connection.ping, connection.open_stream, connection.finish]
        for plan in self.plans:
            stream = plan.outgoing(number).writer
            if stream is not None:
                commands += [partial(connection.close, stream), partial(connection.write, stream, b"more")]
        return commands

    def check_end(self) -> None:
        for wire in self.wires:
            for is_global in (False, True):
                wire.check_answered((Packet.PING, is_global), (Packet.PONG, is_global))


def _unconsumed(direction: BymuxDirection) -> int:
    return 0 if direction.reader is None else direction.reader.unconsumed


def bymux(world: World) -> str:
    """Streams arrive complete and in order, or their early ends are reported, whatever the byte stream and the applications do."""
    run = BymuxRun(world)
    run.run()
    data = sum(wire.data_bytes for wire in run.wires)
    packets = sum(sum(wire.counts.values()) for wire in run.wires)
    return f"{run.fate}: {len(run.plans)} streams, {data} bytes in {packets} packets, {run.steps} steps"
