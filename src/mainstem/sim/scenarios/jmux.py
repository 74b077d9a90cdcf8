"""Jmux: requests and responses over a byte stream, between applications that are slow, abort, respond early, and shut down."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from mainstem.errors import Delivery, LocalProtocolError
from mainstem.jmux import codec, events
from mainstem.jmux.client_engine import ClientEngine
from mainstem.jmux.codec import CONNECTION_HEADER_LENGTH, Kind, decode_message
from mainstem.jmux.server_engine import ServerEngine
from mainstem.jmux.session import INFINITE
from mainstem.jmux.settings import Settings
from mainstem.jmux.state import Acknowledgment, HalfState
from mainstem.sim.checkers import Violation
from mainstem.sim.scenarios import mux
from mainstem.sim.scenarios.mux import (
    CONTROL_LIMIT,
    FATES,
    PING_TIMEOUT_S,
    READ_PROBABILITIES,
    Direction,
    MuxRun,
    drawn_ping_interval,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from mainstem.jmux.session import Session
    from mainstem.sim.world import World

CLIENT, SERVER = 0, 1
NAMES = ("the client", "the server")
MAX_REQUESTS = 10
RATIONS = (256, 1_024, 65_536, 1 << 20, 0)
FRAGMENT_LIMITS = (50, 1_000, 65_535)


class JmuxDirection(Direction):
    """The bytes of a request or a response: what was written and read so far, and what both ends will do."""

    def __init__(self, name: str, rng: Random, longest: int) -> None:
        super().__init__(name, rng, longest)
        self.abort_at = rng.randrange(self.goal + 1) if rng.random() < 0.08 else None
        self.read_probability = rng.choice(READ_PROBABILITIES)
        self.is_whole = False  # whether its reader received the end


class Exchange:
    """One request and its response, with the sessions at both ends."""

    def __init__(self, name: str, rng: Random, longest: tuple[int, int]) -> None:
        self.name = name
        # Indexed by writer.
        self.directions = (
            JmuxDirection(f"{name}'s request", rng, longest[SERVER]),
            JmuxDirection(f"{name}'s response", rng, longest[CLIENT]),
        )
        self.sessions: list[Session | None] = [None, None]
        self.reads_first = rng.random() < 0.1
        self.responds_early = rng.random() < 0.3
        self.closes_early = rng.random() < 0.3
        self.wants_ack = rng.random() < 0.3
        self.is_seen = False  # whether the server's application has seen part of it
        self.was_opened = False  # whether the server's connection has opened it
        self.ends: list[str] = []  # the events that ended it at the client
        self.has_acknowledged = False  # whether the client has acknowledged it
        self.acknowledgments: list[bool] = []  # as reported to the server

    def session(self, number: int) -> Session:
        session = self.sessions[number]
        assert session is not None
        return session


class Wire(mux.Wire):
    def __init__(self, number: int, settings: Settings) -> None:
        super().__init__(NAMES[number])
        self.settings = settings
        self.ration = settings.initial_ration or INFINITE  # how much the peer may send in each session
        self.allowed: dict[int, int] = {}

    def on_arrived(self, kind: Kind, session_id: int, amount: int) -> None:
        if kind is Kind.DATA:
            self.allowed[session_id] = self.peer.ration
        else:
            self.allowed[session_id] += amount

    def left(self, data: bytes) -> None:
        offset, end = 0, len(data)
        short: set[int] = set()
        if not self.sent:
            offset = CONNECTION_HEADER_LENGTH
        while offset < end:
            message = decode_message(data, offset)
            assert message is not None
            kind, session_id = message.kind, message.session_id
            self.counts[kind] += 1
            offset += codec.MESSAGE_HEADER_LENGTH
            if kind is Kind.DATA:
                self._data(session_id, message.flags, message.value, short)
                if message.flags & codec.OPEN:
                    self.send_later(offset, kind, session_id, 0)
            elif kind is Kind.INCREMENT_RATION:
                self._increments(session_id, message.increment)
                self.send_later(offset, kind, session_id, message.increment)
            if kind in codec.WITH_BODY:
                offset += message.value
        if offset != end:
            raise Violation(f"{self.name} sent a message in two pieces")
        self.sent += end

    def _data(self, session_id: int, flags: int, length: int, short: set[int]) -> None:
        if flags & codec.OPEN:
            self.allowed[session_id] = self.peer.ration
        elif not length and not flags & codec.EOF:
            raise Violation(f"{self.name} sent an empty Data of session {session_id}")
        allowed = self.allowed[session_id]
        limit = min(allowed, self.settings.fragment_limit)
        if length > limit:
            raise Violation(f"{self.name} sent {length} bytes of session {session_id}, limit {limit}")
        if session_id in short and not flags & codec.OPEN:
            raise Violation(f"{self.name} sent two Data of session {session_id} where one would have been enough")
        short.discard(session_id)
        if length < limit:
            short.add(session_id)
        self.data_bytes += length
        if allowed < INFINITE:
            self.allowed[session_id] = allowed - length

    def _increments(self, session_id: int, amount: int) -> None:
        """Check an increment: it must restore at least half of the ration. Large increments are rounded."""
        rounding = 0 if self.ration <= codec.MAX_LENGTH else 1_024
        if 2 * amount + rounding < self.ration:
            raise Violation(
                f"{self.name} added {amount} bytes to session {session_id}'s ration, less than half of {self.ration}"
            )


class JmuxRun(MuxRun):
    """The client sends a few requests, the server responds, and one of the two ends the connection."""

    FATES: ClassVar[tuple[str, ...]] = (*FATES, "shut down")
    NAMES = NAMES

    def __init__(self, world: World, *, is_killed_later: bool = False) -> None:
        super().__init__(world, is_killed_later=is_killed_later)
        rng = world.rng
        rations = (rng.choice(RATIONS), rng.choice(RATIONS))
        limits = (rng.choice(FRAGMENT_LIMITS), rng.choice(FRAGMENT_LIMITS))
        # The longest message for each reader: several times its ration, so that the ration runs out, but not too many messages.
        longest = tuple(min(3 * min(rations[end] or 10_000, 16_384), 60 * limits[1 - end]) for end in range(2))
        settings = [self._settings(rations[end], limits[end]) for end in range(2)]
        self.client = ClientEngine(settings[CLIENT], now_ns=world.now_ns, peer=NAMES[SERVER])
        self.server = ServerEngine(settings[SERVER], now_ns=world.now_ns, peer=NAMES[CLIENT])
        self.carry(CLIENT, self.client, Wire(CLIENT, settings[CLIENT]))
        self.carry(SERVER, self.server, Wire(SERVER, settings[SERVER]))
        self.waiting = deque(
            Exchange(f"exchange {index}", rng, (longest[0], longest[1])) for index in range(rng.randrange(MAX_REQUESTS))
        )
        self.directions = [direction for exchange in self.waiting for direction in exchange.directions]
        self.exchanges: list[Exchange] = []
        self.live: tuple[list[Exchange], list[Exchange]] = ([], [])
        self.newest: dict[int, Exchange] = {}
        self.shuts_down = rng.random() < 0.5  # whether the server shuts down at the end; otherwise the client leaves

    def _settings(self, ration: int, limit: int) -> Settings:
        return Settings(
            initial_ration=ration,
            fragment_limit=limit,
            control_limit=CONTROL_LIMIT,
            ping_interval=drawn_ping_interval(self.rng, self.fate),
            ping_timeout=PING_TIMEOUT_S,
            handshake_timeout=PING_TIMEOUT_S,
        )

    # -- the applications ----------------------------------------------------------------------------------------------

    def act(self, number: int) -> bool:
        rng, acted = self.rng, False
        connection = self.connections[number]
        if number == CLIENT:
            while self.waiting and self.client.can_open and rng.random() < 0.8:
                self._open(self.waiting.popleft())
                acted = True
        for exchange in self.live[number]:
            if rng.random() < 0.7:
                acted |= self._request(exchange) if number == CLIENT else self._respond(exchange)
                acted |= self._read(number, exchange)
        if self.pings_left[number] and connection.established and rng.random() < 0.02:
            self.pings_left[number] -= 1
            connection.ping(now_ns=self.world.now_ns)
        if self.is_ending and number == (SERVER if self.shuts_down else CLIENT):
            self._end(number)
        return acted

    def _open(self, exchange: Exchange) -> None:
        session = self.client.open_session()
        session.owner = exchange
        exchange.sessions[CLIENT] = session
        self.newest[session.id] = exchange
        self.exchanges.append(exchange)
        self.live[CLIENT].append(exchange)
        if exchange.reads_first:
            self.client.flush(session)

    def _request(self, exchange: Exchange) -> bool:
        client, session, direction = self.client, exchange.session(CLIENT), exchange.directions[CLIENT]
        if session.ack is Acknowledgment.REQUESTED and not session.ended and self.rng.random() < 0.5:
            exchange.has_acknowledged = True
            client.acknowledge(session)
            return True
        if session.ended or direction.is_closed or direction.waits:
            return False
        if direction.abort_at is not None and direction.written >= direction.abort_at:
            direction.is_closed = True
            client.abort(session, b"no longer needed")
            return True
        if session.local >= HalfState.FINISHED:
            direction.is_closed = True
            return False
        return self._write(CLIENT, session, direction) or self._finish(CLIENT, exchange)

    def _respond(self, exchange: Exchange) -> bool:
        server, session = self.server, exchange.session(SERVER)
        request, response = exchange.directions
        if session.ended or session.local is HalfState.TERMINATED or not (request.is_whole or exchange.responds_early):
            return False
        if response.is_closed:
            if exchange.closes_early and not session.close_wanted:
                server.close(session)
            return False
        if response.abort_at is not None and response.written >= response.abort_at:
            response.is_closed = True
            # The application may claim that nothing was processed only if that is true.
            is_partial = exchange.is_seen or self.rng.random() < 0.3
            server.abort(session, b"too busy", partial=is_partial)
            return True
        if response.waits:
            return False
        self._see(exchange)
        return self._write(SERVER, session, response) or self._finish(SERVER, exchange)

    def _see(self, exchange: Exchange) -> None:
        exchange.is_seen = exchange.session(SERVER).processing = True

    def _write(self, number: int, session: Session, direction: JmuxDirection) -> bool:
        if direction.written == direction.goal:
            return False
        self.write(number, session, direction)
        return True

    def _finish(self, number: int, exchange: Exchange) -> bool:
        exchange.directions[number].is_closed = True
        if number == CLIENT:
            self.client.finish(exchange.session(CLIENT))
        else:
            self.server.finish(exchange.session(SERVER), ack_required=exchange.wants_ack)
        return True

    def _read(self, number: int, exchange: Exchange) -> bool:
        session, direction = exchange.session(number), exchange.directions[1 - number]
        if not session.unconsumed or self.rng.random() >= direction.read_probability:
            return False
        if number == SERVER:
            self._see(exchange)
        self.consume(number, session)
        return True

    def shut_down_early(self) -> None:
        """Shut the server down as soon as allowed, which requires that no unfinished request is being processed."""
        server = self.server
        if server.failure is not None or self.carriers[SERVER].is_left:
            return
        busy = any(s.local is HalfState.OPEN and s.processing for s in server.sessions.values())
        try:
            server.shut_down(b"restarting")
        except LocalProtocolError:
            if not busy:
                raise
            return
        if busy:
            raise Violation(
                "the server shut down while it was processing a request, which tells the client that it was not processed"
            )
        self.carriers[SERVER].dispatch()

    def _end(self, number: int) -> None:
        if number == CLIENT:
            self.carriers[CLIENT].wants_to_leave = True
            return
        self.shut_down_early()
        if self.server.failure is None:
            raise Violation("the server refused to shut down after every session had ended")

    # -- events --------------------------------------------------------------------------------------------------------

    def on_event(self, number: int, event: events.Event) -> None:
        if isinstance(event, events.DataReceived):
            self._on_data(event.session.owner.directions[1 - number], event.data)
        elif isinstance(event, events.SessionOpened):
            self._on_opened(event.session)
        elif isinstance(event, events.DataFinished):
            self._on_whole(number, event.session.owner)
        elif isinstance(event, events.SessionDrained):
            self.on_drained(event.session, event.session.owner.directions[number])
        elif isinstance(event, events.Acknowledged):
            event.session.owner.acknowledgments.append(event.positive)
        elif isinstance(event, events.SessionAborted):
            self._on_aborted(number, event.session.owner, event.partial)
        elif isinstance(event, events.SessionEnded | events.SessionFailed):
            if number == CLIENT:
                event.session.owner.ends.append(type(event).__name__)
        elif isinstance(event, events.PingAcknowledged):
            if event.rtt_ns < 0:
                raise Violation(f"{NAMES[number]}: a ping took {event.rtt_ns} ns, expected 0 or more")
        elif isinstance(event, events.ErrorReceived):
            raise Violation(f"{NAMES[number]} was told of a protocol error: {event.detail!r}")

    def _on_opened(self, session: Session) -> None:
        exchange = self.newest[session.id]
        if exchange.was_opened:
            raise Violation(f"{exchange.name} was opened twice")
        exchange.was_opened = True
        session.owner = exchange
        exchange.sessions[SERVER] = session
        self.live[SERVER].append(exchange)

    def _on_data(self, direction: JmuxDirection, data: bytes) -> None:
        direction.receive(data)
        if direction.is_whole:
            raise Violation(f"{direction}: bytes arrived after the reader had reached the end")

    def _on_whole(self, number: int, exchange: Exchange) -> None:
        direction, session = exchange.directions[1 - number], exchange.session(number)
        if direction.is_whole:
            raise Violation(f"{direction} ended twice")
        direction.is_whole = True
        if not session.discarding and (direction.read != direction.goal or not direction.is_closed):
            raise Violation(f"{direction} ended early")

    def _on_aborted(self, number: int, exchange: Exchange, is_partial: bool) -> None:
        session = exchange.session(number)
        session.owner.directions[number].is_closed = True
        if number == CLIENT and session.may_retry == is_partial:
            raise Violation(
                f"{exchange.name} was aborted with partial={is_partial}, but its delivery is {session.delivery.name}"
            )

    # -- invariants ----------------------------------------------------------------------------------------------------

    def check(self, number: int) -> None:
        connection = self.connections[number]
        ration = connection.settings.initial_ration
        if ration:
            for session in connection.sessions.values():
                held = session.inbound + session.unconsumed
                if held > ration and not session.discarding:
                    raise Violation(f"{NAMES[number]} buffers and allows {held} bytes of {session}, limit {ration}")
        live = self.live[number]
        for exchange in live:
            if number == CLIENT:
                self._check_promise(exchange)
            session = exchange.session(number)
            direction = exchange.directions[number]
            if session.sent + session.queued + session.unsent != direction.written:
                raise Violation(
                    f"{direction}: {session.sent} sent, {session.queued} queued and {session.unsent} dropped do not add up"
                )
        if any(self._is_over(number, exchange) for exchange in live):
            live[:] = [exchange for exchange in live if not self._is_over(number, exchange)]

    def _check_promise(self, exchange: Exchange) -> None:
        """Check that the delivery status of a request is true whenever the client asks for it."""
        session = exchange.session(CLIENT)
        delivery = session.delivery
        if delivery is Delivery.NONE and exchange.is_seen:
            raise Violation(f"{exchange.name} has delivery NONE, although the server has seen part of it")
        if delivery is Delivery.COMPLETE and not exchange.directions[SERVER].is_whole:
            raise Violation(f"{exchange.name} has delivery COMPLETE without the end of its response")

    def _is_over(self, number: int, exchange: Exchange) -> bool:
        session = exchange.session(number)
        if number == CLIENT:
            return session.ended and not session.unconsumed
        is_terminated = session.ended or session.local is HalfState.TERMINATED
        return is_terminated and not session.unconsumed and session.peer >= HalfState.FINISHED

    def is_done(self) -> bool:
        return not self.waiting and not any(self.live) and all(e.session(CLIENT).ended for e in self.exchanges)

    def is_ended(self) -> bool:
        return all(carrier.is_over or carrier.has_finished for carrier in self.carriers)

    def commands(self, number: int) -> list[Callable[[], object]]:
        connection = self.connections[number]
        commands: list[Callable[[], object]] = [connection.ping, connection.no_operation]
        commands.append(self.client.open_session if number == CLIENT else self.server.shut_down)
        for exchange in self.exchanges:
            session = exchange.sessions[number]
            if session is not None:
                commands += [partial(connection.finish, session), partial(connection.write, session, b"more")]
                if not session.ended:
                    raise Violation(f"{exchange.name} is open at {NAMES[number]} after its connection ended")
        return commands

    def check_end(self) -> None:
        """Check that exchanges ended once at the client, acknowledgments are complete, and pongs do not outnumber pings."""
        for exchange in self.exchanges:
            session = exchange.session(CLIENT)
            if not self.carriers[CLIENT].is_dead:
                # If the response was complete before the connection ended, the exchange has no separate event for that.
                most, least = 1, 0 if session.response_complete else 1
                if not least <= len(exchange.ends) <= most:
                    raise Violation(
                        f"{exchange.name} ended with {exchange.ends}, expected {least} to {most} events: {session}"
                    )
            asked = (
                exchange.sessions[SERVER] is not None
                and exchange.session(SERVER).ack is not Acknowledgment.NOT_REQUESTED
            )
            is_silent = self.carriers[SERVER].is_dead  # then the server's application receives nothing any more
            if len(exchange.acknowledgments) > 1 or (asked and not exchange.acknowledgments and not is_silent):
                raise Violation(
                    f"{exchange.name}: the server got acknowledgments {exchange.acknowledgments}, expected one if it asked for it"
                )
            if exchange.acknowledgments == [True] and not exchange.has_acknowledged:
                raise Violation(f"{exchange.name} was acknowledged although the client had not done so")
        for wire in self.wires:
            wire.check_answered(Kind.PING, Kind.PING_ACK)


def jmux(world: World) -> str:
    """Requests and responses arrive complete, once and in order, or their ends are reported. No request is processed twice."""
    run = JmuxRun(world)
    run.run()
    data = sum(wire.data_bytes for wire in run.wires)
    messages = sum(sum(wire.counts.values()) for wire in run.wires)
    return f"{run.fate}: {len(run.exchanges)} exchanges, {data} bytes in {messages} messages, {run.steps} steps"
