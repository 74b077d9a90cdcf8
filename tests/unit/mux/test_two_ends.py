"""Two ends of each multiplexer over pipes that split bytes anywhere, checked against a model of the expected output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mainstem import bymux, jmux
from mainstem.bymux.engine import BymuxEngine
from mainstem.errors import Delivery
from mainstem.jmux import events as jmux_events
from mainstem.jmux.client_engine import ClientEngine
from mainstem.jmux.server_engine import ServerEngine
from mainstem.jmux.state import HalfState as JmuxHalf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.bymux.stream import StreamState
    from mainstem.jmux.session import Session

PROFILE = settings(max_examples=80, stateful_step_count=60, deadline=None)


class Pipe:
    """Bytes in flight in one direction."""

    def __init__(self) -> None:
        self.data = bytearray()

    def cut(self, count: int) -> bytes:
        piece = bytes(self.data[:count])
        del self.data[:count]
        return piece


class Ends(RuleBasedStateMachine):
    """Two ends and the pipe from each to the other. A subclass handles events in ``settle``."""

    ends: Sequence[Any]

    def __init__(self) -> None:
        super().__init__()
        self.pipes = [Pipe(), Pipe()]

    def settle(self, end: int) -> None:
        raise NotImplementedError

    @rule(end=st.integers(0, 1), limit=st.integers(1, 300))
    def send(self, end: int, limit: int) -> None:
        self.pipes[end].data += self.ends[end].data_to_send(limit)
        self.settle(end)

    @rule(end=st.integers(0, 1), count=st.integers(1, 100))
    def deliver(self, end: int, count: int) -> None:
        if piece := self.pipes[1 - end].cut(count):
            self.ends[end].receive_data(piece)
            self.settle(end)

    @rule(end=st.integers(0, 1))
    def carry(self, end: int) -> None:
        """Deliver everything that one end has to send, after the bytes already in flight."""
        self.send(end, 10_000)
        self.deliver(1 - end, 1_000_000)


class BymuxEnds(Ends):
    """Model: for each stream and direction, what was written and read, and who closed what."""

    WINDOW = 50

    def __init__(self) -> None:
        super().__init__()
        config = bymux.Settings(stream_window=self.WINDOW, peer_streams=3, packet_limit=20)
        self.ends = [BymuxEngine(role, config) for role in bymux.Role]
        self.open: list[list[StreamState]] = [[], []]
        self.written: dict[tuple[int, int, int], bytearray] = {}
        self.read: dict[tuple[int, int, int], bytearray] = {}
        self.closed: set[tuple[int, int, int]] = set()
        self.finished: set[tuple[int, int, int]] = set()
        self.lost: dict[tuple[int, int, int], int] = {}
        self.generation: list[dict[int, int]] = [{}, {}]

    @initialize(streams=st.integers(1, 3))
    def meet(self, streams: int) -> None:
        self.carry(0)
        self.carry(1)
        for end in (0, 1):
            for _ in range(streams):
                self.create(end)
        self.carry(0)
        self.carry(1)

    def key(self, writer: int, end: int, stream: StreamState) -> tuple[int, int, int]:
        return writer, stream.id, self.generation[end][id(stream)]

    def begin(self, end: int, stream: StreamState) -> None:
        self.open[end].append(stream)
        count = sum(1 for other in self.open[end] if other.id == stream.id)
        self.generation[end][id(stream)] = count
        for writer in (0, 1):
            key = (writer, stream.id, count)
            self.written.setdefault(key, bytearray())
            self.read.setdefault(key, bytearray())

    def settle(self, end: int) -> None:
        connection = self.ends[end]
        while (event := connection.next_event()) is not None:
            if isinstance(event, bymux.events.StreamOpened):
                self.begin(end, event.stream)
            elif isinstance(event, bymux.events.DataReceived):
                self.read[self.key(1 - end, end, event.stream)] += event.data
            elif isinstance(event, bymux.events.StreamFinished):
                self.finished.add(self.key(1 - end, end, event.stream))
            elif isinstance(event, bymux.events.StreamReadStopped):
                self.lost[self.key(end, end, event.stream)] = event.lost

    @rule(end=st.integers(0, 1))
    def create(self, end: int) -> None:
        if self.ends[end].can_open:
            self.begin(end, self.ends[end].open_stream())

    def usable(self, end: int, pick: int) -> StreamState | None:
        streams = [s for s in self.open[end] if not s.close_wanted and not s.local & bymux.HalfState.CLOSED]
        return streams[pick % len(streams)] if streams else None

    @rule(end=st.integers(0, 1), pick=st.integers(0, 99), data=st.binary(max_size=150))
    def write(self, end: int, pick: int, data: bytes) -> None:
        if stream := self.usable(end, pick):
            self.ends[end].write(stream, data)
            self.written[self.key(end, end, stream)] += data

    @rule(end=st.integers(0, 1), pick=st.integers(0, 99))
    def close(self, end: int, pick: int) -> None:
        if stream := self.usable(end, pick):
            self.ends[end].close(stream)
            self.closed.add(self.key(end, end, stream))

    @rule(end=st.integers(0, 1), pick=st.integers(0, 99))
    def stop_read(self, end: int, pick: int) -> None:
        streams = [s for s in self.open[end] if not s.local & bymux.HalfState.STOPPED]
        if streams:
            self.ends[end].stop_read(streams[pick % len(streams)])

    @rule(end=st.integers(0, 1), pick=st.integers(0, 99), part=st.floats(0, 1))
    def consume(self, end: int, pick: int, part: float) -> None:
        if self.open[end]:
            stream = self.open[end][pick % len(self.open[end])]
            self.ends[end].consume(stream, round(stream.unconsumed * part))

    @rule(end=st.integers(0, 1), pick=st.integers(0, 99))
    def ping(self, end: int, pick: int) -> None:
        streams: list[StreamState | None] = [None]
        streams += [s for s in self.open[end] if s.local is not bymux.HalfState.DONE and len(s.pings or ()) < 60]
        if len(self.ends[end]._pings) < 60:
            self.ends[end].ping(streams[pick % len(streams)])

    @invariant()
    def what_was_read_is_a_beginning_of_what_was_written(self) -> None:
        for key, data in self.read.items():
            assert self.written[key].startswith(data)

    @invariant()
    def nobody_holds_more_than_was_promised(self) -> None:
        for connection in self.ends:
            for stream in connection.streams.values():
                assert stream.unconsumed + stream.receive_credit <= self.WINDOW

    @invariant()
    def an_end_of_stream_is_never_short(self) -> None:
        for key in self.finished:
            if key in self.read and key not in self.lost:
                stopped = any(s.discarding for streams in self.open for s in streams if s.id == key[1])
                assert stopped or self.read[key] == self.written[key]

    def teardown(self) -> None:
        """Whatever happened, reading to the end on both sides empties every queue."""
        for _ in range(400):
            for end in (0, 1):
                for stream in self.open[end]:
                    self.ends[end].consume(stream, stream.unconsumed)
                self.send(end, 10_000)
                self.deliver(1 - end, 100_000)
        for end in (0, 1):
            for stream in self.open[end]:
                assert stream.queued == 0
        for key in self.closed:
            assert key in self.finished
        self.an_end_of_stream_is_never_short()


class JmuxEnds(Ends):
    """Model: for each request, the bytes of the request and response, and whether it succeeded."""

    RATION = 256

    def __init__(self) -> None:
        super().__init__()
        config = jmux.Settings(initial_ration=self.RATION, fragment_limit=100)
        self.ends = (ClientEngine(config), ServerEngine(config))
        self.requests: list[Session] = []
        self.responses: list[Session] = []
        self.partner: dict[int, Session] = {}
        self.written: dict[int, bytearray] = {}
        self.read: dict[int, bytearray] = {}
        self.whole: set[int] = set()

    @initialize(sessions=st.integers(1, 5))
    def meet(self, sessions: int) -> None:
        self.carry(0)
        self.carry(1)
        for _ in range(sessions):
            self.request()
            self.write(0, 0, b"first")
        self.carry(0)

    def settle(self, end: int) -> None:
        while (event := self.ends[end].next_event()) is not None:
            if isinstance(event, jmux_events.SessionOpened):
                session = event.session
                self.responses.append(session)
                # Take the newest request with that id: one aborted before the server saw it has passed its id on.
                mine = next(s for s in reversed(self.requests) if s.id == session.id)
                assert id(mine) not in self.partner
                self.partner[id(mine)] = session
                self.partner[id(session)] = mine
                self.written[id(session)] = bytearray()
                self.read[id(session)] = bytearray()
            elif isinstance(event, jmux_events.DataReceived):
                self.read[id(event.session)] += event.data
            elif isinstance(event, jmux_events.DataFinished):
                self.whole.add(id(event.session))

    @precondition(lambda self: self.ends[0].can_open and len(self.requests) < 20)
    @rule()
    def request(self) -> None:
        session = self.ends[0].open_session()
        self.requests.append(session)
        self.written[id(session)] = bytearray()
        self.read[id(session)] = bytearray()

    def sending(self, end: int, pick: int) -> Session | None:
        mine = self.requests if end == 0 else self.responses
        found = [s for s in mine if not s.eof_wanted and not s.ended and s.local < JmuxHalf.FINISHED]
        return found[pick % len(found)] if found else None

    @rule(end=st.integers(0, 1), pick=st.integers(0, 99), data=st.binary(max_size=400))
    def write(self, end: int, pick: int, data: bytes) -> None:
        if session := self.sending(end, pick):
            self.ends[end].write(session, data)
            self.written[id(session)] += data

    @rule(end=st.integers(0, 1), pick=st.integers(0, 99), ack=st.booleans())
    def finish(self, end: int, pick: int, ack: bool) -> None:
        if session := self.sending(end, pick):
            if end == 0:
                self.ends[0].finish(session)
            else:
                self.ends[1].finish(session, ack_required=ack)

    @rule(pick=st.integers(0, 99))
    def close_early(self, pick: int) -> None:
        found = [s for s in self.responses if s.eof_wanted and not s.ended]
        if found:
            self.ends[1].close(found[pick % len(found)])

    @rule(end=st.integers(0, 1), pick=st.integers(0, 99))
    def abort(self, end: int, pick: int) -> None:
        if session := self.sending(end, pick):
            self.ends[end].abort(session)

    @rule(pick=st.integers(0, 99))
    def acknowledge(self, pick: int) -> None:
        found = [s for s in self.requests if s.ack.name == "REQUESTED" and not s.ended]
        if found:
            self.ends[0].acknowledge(found[pick % len(found)])

    @rule(end=st.integers(0, 1), pick=st.integers(0, 99), part=st.floats(0, 1))
    def consume(self, end: int, pick: int, part: float) -> None:
        mine = self.requests if end == 0 else self.responses
        if mine:
            session = mine[pick % len(mine)]
            self.ends[end].consume(session, round(session.unconsumed * part))

    @invariant()
    def what_was_read_is_a_beginning_of_what_was_written(self) -> None:
        for session in (*self.requests, *self.responses):
            other = self.partner.get(id(session))
            if other is not None:
                assert self.written[id(other)].startswith(self.read[id(session)])

    @invariant()
    def nobody_holds_more_than_was_promised(self) -> None:
        for session in (*self.requests, *self.responses):
            if not session.discarding:
                assert session.unconsumed + session.inbound <= self.RATION

    @invariant()
    def a_complete_answer_is_never_short(self) -> None:
        for session in self.requests:
            if session.delivery is Delivery.COMPLETE and not session.discarding:
                assert self.read[id(session)] == self.written[id(self.partner[id(session)])]
            if session.local is JmuxHalf.NONE:
                assert session.may_retry

    def teardown(self) -> None:
        for _ in range(400):
            for end, mine in ((0, self.requests), (1, self.responses)):
                for session in mine:
                    self.ends[end].consume(session, session.unconsumed)
                self.send(end, 10_000)
                self.deliver(1 - end, 100_000)
        for session in (*self.requests, *self.responses):
            assert session.queued == 0
        self.a_complete_answer_is_never_short()


TestBymuxEnds = BymuxEnds.TestCase
TestBymuxEnds.settings = PROFILE
TestJmuxEnds = JmuxEnds.TestCase
TestJmuxEnds.settings = PROFILE
