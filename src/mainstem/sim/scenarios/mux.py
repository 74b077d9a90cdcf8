"""Shared by the scenarios of bymux and Jmux: connections over a byte stream, and the ways in which a run may end."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mainstem._internal.clock import NEVER_NS, NS_PER_MS, NS_PER_SECOND, seconds_ns
from mainstem.errors import ClosedError, ConnectionLost, MainstemError, RemoteProtocolError, Timeout
from mainstem.sim.byte_streams import ByteStream, StreamFaults
from mainstem.sim.checkers import CHECKED, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from mainstem.bymux.engine import BymuxEngine
    from mainstem.jmux.engine import JmuxEngine
    from mainstem.sim.byte_streams import StreamEnd
    from mainstem.sim.world import World

TICK_NS = NS_PER_MS // 2  # a step of time while applications have something to do; steps double while nothing moves
IDLE_TICK_NS = 100 * NS_PER_MS
HEAL_NS = NS_PER_SECOND  # the latest time of a fault, measured from the start
TIMEOUT_NS = 120 * NS_PER_SECOND  # measured from the healing
# Longer than a stalled direction can delay a pong, so that no live peer is presumed dead.
PING_TIMEOUT_S = 10.0
HANDSHAKE_LENGTH = 8  # the maximum number of bytes that an end receives before heartbeats count
MAX_STEPS = 100_000
MAX_PINGS = 20  # sent by an application, in addition to heartbeats; fewer than the limit on outstanding pings
CONTROL_LIMIT = 4_096
LOW_WATER = 100  # queued bytes below which a writer continues
READ_PROBABILITIES = (1.0, 1.0, 0.5, 0.1, 0.0)
# The source of every written byte. The content follows from the offset, so nothing has to be stored.
PATTERN_LENGTH = 1 << 16
_HALF = bytes((index * 131 + (index >> 8) * 17 + (index >> 13)) & 0xFF for index in range(PATTERN_LENGTH))
PATTERN = _HALF * 2


class Direction:
    """The bytes that one end writes and the other reads. They follow from their offset, so nothing is stored.

    Lengths are usually at most ``longest``; a few are ``rarely``.
    """

    def __init__(self, name: str, rng: Random, longest: int, *, rarely: int = 0) -> None:
        self.name = name
        self._base = rng.randrange(PATTERN_LENGTH)
        self.goal = rng.choice((0, rng.randrange(50), rng.randrange(longest), rng.randrange(longest)))
        if rarely and rng.random() < 0.05:
            self.goal = rarely
        self._chunk = min(rng.choice((1 + self.goal // 16, 1 + self.goal // 4, max(1, self.goal))), PATTERN_LENGTH)
        self.written = self.read = 0
        self.read_probability = 1.0  # the probability that its reader consumes in a step
        self.waits = False  # whether the writer waits until less is queued
        self.is_closed = False  # whether writing has ended

    def next_piece(self) -> bytes:
        return self._piece(self.written, min(self._chunk, self.goal - self.written))

    def receive(self, data: bytes) -> None:
        """Check the next bytes that were read."""
        if data != self._piece(self.read, len(data)):
            raise Violation(f"{self}: {len(data)} bytes at {self.read} differ from those written")
        self.read += len(data)
        CHECKED.bytes += len(data)
        if self.read > self.written:
            raise Violation(f"{self}: read more than was written")

    def _piece(self, offset: int, length: int) -> bytes:
        start = (self._base + offset) % PATTERN_LENGTH
        return PATTERN[start : start + length]

    def __repr__(self) -> str:
        return f"{self.name}: {self.written} of {self.goal} bytes written, {self.read} read"


def drawn_ping_interval(rng: Random, fate: str) -> float | None:
    """Draw the seconds between heartbeats; None disables them. Only heartbeats detect a silent peer, so runs with one use them."""
    is_on = fate in ("dead", "clogged") or rng.random() < 0.5
    return rng.randrange(20, 400) / 1000 if is_on else None


FATES = ("whole", "whole", "whole", "whole", "whole", "whole", "reset", "reset", "dead", "clogged", "left")


class Carrier:
    """One end of a byte stream that carries a connection, like a transport.

    ``batch`` limits each ``segments_to_send``. ``on_sent`` is called with whole packets as they leave the connection, before
    anything else happens to it.
    """

    def __init__(
        self,
        world: World,
        name: str,
        connection: BymuxEngine | JmuxEngine,
        end: StreamEnd,
        *,
        batch: int,
        on_event: Callable[[Any], None],
        on_sent: Callable[[bytes], None],
    ) -> None:
        self.world, self.name, self.connection, self.end = world, name, connection, end
        self.received = self.written = 0
        self.is_dead = False  # whether its host is dead, so that it neither reads nor writes
        self.is_left = False  # whether its application has finished its direction
        self.wants_to_leave = False  # as soon as everything has been written
        self.heard_ns = world.now_ns
        self._batch, self._on_event, self._on_sent = batch, on_event, on_sent
        self._unsent = bytearray()
        self._ended = False

    @property
    def is_over(self) -> bool:
        return self.is_dead or self.connection.failure is not None

    @property
    def has_finished(self) -> bool:
        """Whether its application has written everything and left, so that the peer's end or silence no longer matters."""
        return self.wants_to_leave and self.is_left

    def receive(self) -> int:
        """Read what has arrived and run due timers. Return the number of bytes read."""
        if self.is_over:
            return 0
        connection, now_ns, count = self.connection, self.world.now_ns, 0
        try:
            while connection.failure is None and (data := self.end.read()):
                count += len(data)
                self.received += len(data)
                self.heard_ns = now_ns
                connection.receive_data(data, now_ns)
                self.dispatch()
            if connection.failure is not None:
                pass  # caused by the bytes just read
            elif self.end.is_at_end and not self._ended:
                self._ended = True
                connection.receive_eof(now_ns)
            elif (due_ns := connection.next_timeout_ns()) is not None and due_ns <= now_ns:
                connection.handle_timeout(now_ns)
        except ConnectionLost as error:
            connection.fail(error)
        except MainstemError as error:
            if connection.failure is not error:
                raise
        self.dispatch()
        return count

    def send(self) -> int:
        """Write what there is room for. Return the number of bytes written."""
        if self.is_dead or self.is_left or self.end.is_reset:
            return 0
        connection, count = self.connection, 0
        while True:
            if not self._unsent:
                due = connection.wants_to_send
                data = b"".join(connection.segments_to_send(self._batch))
                if data and not due:
                    raise Violation(f"{self.name} returned {len(data)} bytes to send while wants_to_send was False")
                if data:
                    self._on_sent(data)
                    self._unsent += data
                self.dispatch()
                if not data:
                    break
            length = self.end.write(self._unsent)
            del self._unsent[:length]
            count += length
            if self._unsent:
                break
        self.written += count
        if (self.wants_to_leave or self.connection.failure is not None) and not self._unsent:
            self.leave()
        return count

    def leave(self) -> None:
        """Finish this direction, possibly in the middle of a packet."""
        self.is_left = True
        self.end.finish()

    def dispatch(self) -> None:
        next_event = self.connection.next_event
        while (event := next_event()) is not None:
            self._on_event(event)


class Wire:
    def __init__(self, name: str) -> None:
        self.name = name
        self.peer: Self
        self.sent = self.data_bytes = 0
        self.counts: Counter[Any] = Counter()
        # The offset at which each frame ends in the peer's output, and the frame.
        self._arriving: deque[tuple[int, tuple[Any, ...]]] = deque()

    def send_later(self, end: int, *frame: Any) -> None:
        """Record a frame that the peer must respect once its first ``end`` bytes have arrived."""
        self.peer._arriving.append((self.sent + end, frame))

    def arrived(self, received: int) -> None:
        """Handle the first ``received`` bytes from the peer."""
        while self._arriving and self._arriving[0][0] <= received:
            self.on_arrived(*self._arriving.popleft()[1])

    def on_arrived(self, *frame: Any) -> None:
        raise NotImplementedError

    def left(self, data: bytes) -> None:
        raise NotImplementedError

    def check_answered(self, ping: Any, pong: Any) -> None:
        if self.peer.counts[pong] > self.counts[ping]:
            raise Violation(f"{self.peer.name} sent {self.peer.counts[pong]} pongs for {self.counts[ping]} pings")


class MuxRun:
    """Two connections over one byte stream, from their first byte to the end drawn for them.

    A subclass provides the applications at both ends. A run is ``whole``, or at some step the stream is ``reset``, a host is
    ``dead``, a direction is ``clogged`` for good, or an application has ``left``, finishing its direction in mid-message.
    """

    FATES: ClassVar[tuple[str, ...]] = FATES
    NAMES: ClassVar[tuple[str, str]]

    def __init__(self, world: World, *, is_killed_later: bool = False) -> None:
        self.world = world
        self.rng = rng = world.rng
        self.fate = "dead" if is_killed_later else rng.choice(self.FATES)
        self.stream = ByteStream(rng, world.clock, there=StreamFaults.drawn(rng), back=StreamFaults.drawn(rng))
        self.carriers: list[Carrier] = []
        self.connections: list[Any] = []
        self.wires: list[Any] = []
        self.directions: list[Direction] = []  # of all streams
        self.pings_left = [MAX_PINGS, MAX_PINGS]
        self.victim = rng.randrange(2)
        self.steps = 0
        self._start_ns = world.now_ns
        self._heal_ns = world.now_ns + rng.randrange(1, HEAL_NS)
        self._fate_ns = world.now_ns + int(rng.choice((0.0, 0.02, 0.1, 1.0)) * rng.randrange(1, HEAL_NS))
        if is_killed_later:
            self._fate_ns = NEVER_NS
        self._tick_ns = TICK_NS
        # A world with hosts may take longer steps, which delay a ping and its timeout by as much.
        self._longest_step_ns = IDLE_TICK_NS
        self._stepped_ns = world.now_ns
        self.is_healed = False
        self.is_ending = False  # whether everything is done, so that both ends finish

    def carry(self, number: int, connection: BymuxEngine | JmuxEngine, wire: Wire) -> None:
        self.connections.append(connection)
        self.wires.append(wire)
        if number:
            self.wires[0].peer, self.wires[1].peer = self.wires[1], self.wires[0]
        self.carriers.append(
            Carrier(
                self.world,
                self.NAMES[number],
                connection,
                self.stream.ends[number],
                batch=self.rng.choice((1, 1_000, 65_536)),
                on_event=lambda event: self.on_event(number, event),
                on_sent=lambda data: self.on_sent(number, data),
            )
        )

    def on_event(self, number: int, event: Any) -> None:
        raise NotImplementedError

    def on_sent(self, number: int, data: bytes) -> None:
        wire = self.wires[number]
        wire.arrived(self.carriers[number].received)
        wire.left(data)

    def act(self, number: int) -> bool:
        """Let the application at one end act. Return whether it did anything."""
        raise NotImplementedError

    def write(self, number: int, stream: Any, direction: Direction) -> None:
        data = direction.next_piece()
        self.connections[number].write(stream, data)
        direction.written += len(data)
        if stream.queued > LOW_WATER:
            stream.notify_below = LOW_WATER
            direction.waits = True

    def on_drained(self, stream: Any, direction: Direction) -> None:
        direction.waits = False
        if stream.queued > LOW_WATER:
            raise Violation(f"{stream} was reported drained with {stream.queued} bytes queued, limit {LOW_WATER}")

    def consume(self, number: int, stream: Any) -> None:
        count = stream.unconsumed
        self.connections[number].consume(stream, count if self.rng.random() < 0.5 else self.rng.randrange(1, count + 1))

    def is_done(self) -> bool:
        """Whether everything that was started has ended at both ends."""
        raise NotImplementedError

    def is_ended(self) -> bool:
        raise NotImplementedError

    def check_end(self) -> None:
        raise NotImplementedError

    def check(self, number: int) -> None:
        """Check the invariants of one end. Called in every step."""
        raise NotImplementedError

    def commands(self, number: int) -> list[Callable[[], object]]:
        raise NotImplementedError

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run everything. Raises Violation if an invariant is broken."""
        for moved in self.procedure():
            self._advance(moved=moved)

    def procedure(self) -> Iterator[bool]:
        """Run everything, yielding (whether anything moved) whenever time should advance. Raises Violation."""
        if self.fate == "whole":
            yield from self._until(self.is_done, "every stream to end")
            self.is_ending = True
            yield from self._until(self.is_ended, "both connections to end")
        else:
            yield from self._until(self._has_fate_happened, "every stream to end")
            yield from self._until(self._is_noticed, f"both ends to notice that one is {self.fate}")
            for number, connection in enumerate(self.connections):
                if connection.failure is not None:
                    self._check_refused(number)
        self.check_end()

    def kill(self, number: int) -> None:
        """Kill the host of one end, in a run that was created for it."""
        assert self.fate == "dead", "the ends of this run have no heartbeat that would notice"
        self.victim, self._fate_ns = number, self.world.now_ns

    def _until(self, condition: Callable[[], bool], what: str) -> Iterator[bool]:
        while not condition():
            yield self._step()
            if self.steps > MAX_STEPS or self.world.now_ns > self._start_ns + HEAL_NS + TIMEOUT_NS:
                seconds = (self.world.now_ns - self._start_ns) / NS_PER_SECOND
                raise Violation(
                    f"timed out after {seconds:.1f} s and {self.steps} steps waiting for {what}; fate: {self.fate}"
                )

    def _step(self) -> bool:
        self.steps += 1
        now_ns = self.world.now_ns
        self._longest_step_ns = max(self._longest_step_ns, now_ns - self._stepped_ns)
        self._stepped_ns = now_ns
        if not self.is_healed and now_ns >= self._heal_ns:
            self._heal()
        if self.fate != "whole" and now_ns >= self._fate_ns:
            self._apply_fate()
        moved = False
        for number, carrier in enumerate(self.carriers):
            moved |= carrier.receive() > 0
            if not carrier.is_over:
                moved |= self.act(number)
            moved |= carrier.send() > 0
            self._check_silence(carrier)
            self.check(number)
            if carrier.connection.failure is not None:
                self._check_failure(carrier, carrier.connection.failure)
        return moved

    def _advance(self, *, moved: bool) -> None:
        now_ns = self.world.now_ns
        self._tick_ns = TICK_NS if moved else min(2 * self._tick_ns, IDLE_TICK_NS)
        step_ns = self._tick_ns
        due_ns = self.stream.next_due_ns()
        if due_ns is not None and due_ns > now_ns:
            step_ns = min(step_ns, due_ns - now_ns)
        self.world.clock.advance_ns(step_ns)

    def _heal(self) -> None:
        self.is_healed = True
        for direction in self.directions:
            direction.read_probability = 1.0
        clogged = self.fate == "clogged" and self.world.now_ns >= self._fate_ns
        self.stream.heal()
        if clogged:
            self.stream.clog(self.victim)

    def _apply_fate(self) -> None:
        carrier = self.carriers[self.victim]
        self.world.trace.note(f"{carrier.name}: {self.fate}", self.world.now_ns)
        if self.fate == "reset":
            self.stream.reset()
        elif self.fate == "dead":
            carrier.is_dead = True
        elif self.fate == "clogged":
            self.stream.clog(self.victim)
        elif self.fate == "left":
            if not carrier.is_left:
                carrier.leave()
                carrier.connection.fail(ClosedError("the program left"))
                carrier.dispatch()
        else:
            self.shut_down_early()

    def shut_down_early(self) -> None:
        """Cause the fate that is specific to the protocol. Called in each step from its time on."""
        raise NotImplementedError

    def _has_fate_happened(self) -> bool:
        """Whether the fate has happened. If everything is done before then, both ends begin to finish."""
        if not self.is_ending and self.is_done():
            self.is_ending = True
        return self.world.now_ns > self._fate_ns or (self.is_ending and self.is_ended())

    def _is_noticed(self) -> bool:
        return all(carrier.is_over or carrier.has_finished for carrier in self.carriers)

    def _check_refused(self, number: int) -> None:
        for command in self.commands(number):
            try:
                command()
            except ClosedError:
                continue
            failure = self.connections[number].failure
            raise Violation(f"{self.NAMES[number]} accepted a command after its connection had ended: {failure}")

    def _check_silence(self, carrier: Carrier) -> None:
        """Check that a silent peer is presumed dead in time."""
        settings = carrier.connection.settings
        if settings.ping_interval is None:
            return
        limit_ns = seconds_ns(settings.ping_interval + settings.ping_timeout) + 3 * self._longest_step_ns
        silent_ns = self.world.now_ns - carrier.heard_ns
        is_waiting = not carrier.is_over and not carrier.wants_to_leave
        if is_waiting and silent_ns > limit_ns:
            raise Violation(
                f"{carrier.name} has waited {silent_ns / NS_PER_SECOND:.1f} s for a silent peer "
                f"(limit {limit_ns / NS_PER_SECOND:.1f} s)"
            )

    def _check_failure(self, carrier: Carrier, failure: MainstemError) -> None:
        """Check why a connection ended: only this run's fate may end it, and correct peers never cause a protocol error."""
        fate, struck = self.fate, self.world.now_ns >= self._fate_ns
        if isinstance(failure, RemoteProtocolError):
            allowed = fate == "left" and struck and failure.rule in ("truncated-packet", "truncated-message")
        elif isinstance(failure, Timeout):
            allowed = fate in ("dead", "clogged") and struck
            # The handshake has its own deadline.
            is_open = carrier.received > HANDSHAKE_LENGTH
            if allowed and is_open and self.world.now_ns - carrier.heard_ns < seconds_ns(PING_TIMEOUT_S):
                raise Violation(
                    f"{carrier.name} timed out less than {PING_TIMEOUT_S} s after it last heard from its peer"
                ) from failure
        elif isinstance(failure, ConnectionLost):
            allowed = (fate != "whole" and struck) or self.is_ending
        else:
            # An end whose stream is clogged presumes its peer dead and leaves, which the peer can see as a regular end.
            is_left = fate in ("left", "shut down", "clogged") and struck
            allowed = isinstance(failure, ClosedError) and (is_left or self.is_ending)
        if not allowed:
            raise Violation(f"{carrier.name} failed, which fate {fate!r} does not explain: {failure}") from failure
