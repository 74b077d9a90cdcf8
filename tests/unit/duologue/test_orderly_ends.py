"""Only an end that the peer itself has said is orderly: whatever dies, the reader gets everything that was sent, or an error."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.case_selection import long_after

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.duologue.channels import ClientChannels, ServerChannels
from mainstem.duologue.client_core import ClientCore
from mainstem.duologue.crypto import ServerKey
from mainstem.duologue.messages import SAYS_END, Connect, encrypt_session, parse_hello
from mainstem.duologue.server_core import ServerCore
from mainstem.duologue.settings import Settings, reserved_sessions
from mainstem.errors import Aborted, ClosedError, ConnectionLost, ConnectRefused, MainstemError
from mainstem.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstem.duologue.session import Session
    from mainstem.duologue.streams import Link
    from mainstem.sim.host import Host

KEY = ServerKey(bytes(range(32)))
SEEDS = long_after(6, [(seed, seed) for seed in range(20)])
# Longer than every liveness timeout of a driver and its clients.
SUSPENSION_NS = 13 * NS_PER_SECOND


class End:
    """An end that sends numbered messages and notes what it receives, until it learns of the end."""

    def __init__(self, host: Host, work: Callable[[], object]) -> None:
        self.host = host
        self.work = work
        self.link: Link | None = None
        self.is_running = True
        self.is_suspended = self.has_no_driver = False
        self.sends = True
        self.sent = 0
        self.received: list[bytes] = []
        self.error: MainstemError | None = None

    def step(self) -> None:
        if self.is_suspended or not self.is_running:
            return
        if self.has_no_driver:
            self.host.aeron.invoke()  # the world does not run the client of a host whose driver is gone
        if self.error is not None:
            with suppress(MainstemError):
                self.work()
            return
        try:
            self.work()
        except MainstemError as error:
            self.error = error
        if self.link is None:
            return
        with suppress(MainstemError):  # `receive` raises it too, once everything is received
            if self.sends and self.link.offer(message(self.sent)):
                self.sent += 1
        try:
            while (received := self.link.receive()) is not None:
                self.received.append(received)
        except MainstemError as error:
            self.error = error


def message(number: int) -> bytes:
    return b"%d" % number + bytes(number * 37 % 3000)


class Pair:
    """A server and a client with an open duologue, each on a host of its own; unless ``both``, open for the client at least."""

    def __init__(self, world: World, rng: Random, *, encrypted: bool, both: bool = True) -> None:
        self.world = world
        world.tick_ns, world.grain_ns = 5 * NS_PER_MS, NS_PER_MS
        world.expected_errors = (MainstemError,)
        near, far = (world.add_host(name, **reserved_sessions()) for name in ("server", "client"))
        sessions: list[Session] = []
        channels = ServerChannels(near.address, settings=Settings(idle_timeout=None))
        key = KEY if encrypted else None
        self.core = ServerCore(near.aeron, channels, sessions.append, rng=rng, key=key)
        self.client = ClientCore(
            far.aeron,
            ClientChannels(near.address),
            rng=rng,
            now_ns=world.now_ns,
            server_key=KEY.public if encrypted else b"",
        )
        self.server_end = End(near, lambda: self.core.do_work(world.now_ns))
        self.client_end = End(far, lambda: self.client.do_work(world.now_ns))
        self.ends = (self.server_end, self.client_end)
        self.until(lambda: self.client.is_open and (not both or bool(sessions)), "an open duologue")
        self.client_end.link = self.client
        if both:
            (self.session,) = sessions
            self.server_end.link = self.session

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def step() -> bool:
            for end in self.ends:
                end.step()
            return condition()

        self.world.run_until(step, what=what, within_ns=60 * NS_PER_SECOND)

    def run_for(self, duration_ns: int) -> None:
        until_ns = self.world.now_ns + duration_ns
        self.until(lambda: self.world.now_ns >= until_ns, "the end of the time")


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with World(getattr(request, "param", 1)) as world:
        yield world


def kill_process(pair: Pair, end: End) -> None:
    end.is_running = False
    end.host.kill_client()


def crash_host(pair: Pair, end: End) -> None:
    end.is_running = False
    end.host.crash()


def suspend_process(pair: Pair, end: End) -> None:
    end.is_suspended = end.host.is_client_paused = True
    pair.run_for(SUSPENSION_NS)
    end.is_suspended = end.host.is_client_paused = False


def lose_driver(pair: Pair, end: End) -> None:
    end.host.driver.close()
    end.host.is_paused = end.has_no_driver = True


def close_aeron(pair: Pair, end: End) -> None:
    end.host.aeron.close()


def close_streams(pair: Pair, end: End) -> None:
    """Close an end's streams without a word, as a driver does for a client that died."""
    end.is_running = False
    streams = pair.session._streams if end is pair.server_end else pair.client._streams
    streams.close()


def cut_one_way(pair: Pair, end: End) -> None:
    other = next(each for each in pair.ends if each is not end)
    network = pair.world.network
    network.partition(end.host.address, other.host.address)
    pair.run_for(pair.world.rng.choice((1, 8, 13)) * NS_PER_SECOND)
    network.heal(end.host.address, other.host.address)


def finish(pair: Pair, end: End) -> None:
    end.sends = False
    if end is pair.client_end:
        pair.client.finish()
    else:
        pair.session.close()


def abort(pair: Pair, end: End) -> None:
    end.sends = False
    if end is pair.client_end:
        pair.client.abort()
    else:
        pair.session.abort()


def close_server(pair: Pair, end: End) -> None:
    pair.server_end.sends = False
    pair.core.close()


FAULTS = (
    kill_process,
    crash_host,
    suspend_process,
    lose_driver,
    close_aeron,
    close_streams,
    cut_one_way,
    finish,
    abort,
    close_server,
)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize(("world", "seed"), SEEDS, indirect=["world"])
def test_a_reader_gets_everything_or_an_error(world: World, seed: int, encrypted: bool) -> None:
    rng = Random(seed)
    pair = Pair(world, rng, encrypted=encrypted)
    victim = rng.choice(pair.ends)
    pair.run_for(rng.randrange(500) * NS_PER_MS)
    fault = FAULTS[seed % len(FAULTS)]
    fault(pair, victim)
    if fault is cut_one_way:
        # The duologue may have survived. It ends in order now unless messages were lost.
        finish(pair, victim)

    def is_over() -> bool:
        # A host that crashed, or an end that left, sees nothing.
        return all(end.error is not None or not end.is_running or not end.sends for end in pair.ends)

    pair.until(is_over, "that both ends learn of the end")
    pair.run_for(200 * NS_PER_MS)
    for reader, writer in (pair.ends, pair.ends[::-1]):
        assert reader.received == [message(number) for number in range(len(reader.received))]
        says_orderly = isinstance(reader.error, ClosedError)
        if says_orderly and reader.sends:
            assert len(reader.received) == writer.sent, f"{fault.__name__}: an orderly end, and messages are missing"
            assert fault in (finish, cut_one_way, close_server), f"{fault.__name__}: {reader.error!r}"


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("victim", [0, 1], ids=["server", "client"])
@pytest.mark.parametrize("fault", [kill_process, suspend_process, close_streams])
def test_a_stream_ended_by_the_driver_is_a_lost_connection(
    world: World, fault: Callable[[Pair, End], None], victim: int, encrypted: bool
) -> None:
    pair = Pair(world, Random(1), encrypted=encrypted)
    gone, other = pair.ends[victim], pair.ends[not victim]
    fault(pair, gone)
    pair.until(lambda: other.error is not None, "that the other end notices")
    assert isinstance(other.error, ConnectionLost)
    if fault is suspend_process:
        pair.until(lambda: gone.error is not None, "that the suspended end notices")
        assert isinstance(gone.error, ConnectionLost)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("victim", [0, 1], ids=["server", "client"])
def test_an_end_is_said_even_if_the_peer_does_not_read(world: World, victim: int, encrypted: bool) -> None:
    pair = Pair(world, Random(1), encrypted=encrypted)
    writer, reader = pair.ends[victim], pair.ends[not victim]
    reader.is_suspended, reader.sends = True, False
    assert writer.link is not None
    while writer.link.offer(bytes(5000)):
        writer.sent += 1
    assert writer.sent > 2
    finish(pair, writer)
    pair.run_for(3 * NS_PER_SECOND)
    reader.is_suspended = False
    pair.until(lambda: reader.error is not None, "the end")
    assert isinstance(reader.error, ClosedError)
    assert len(reader.received) == writer.sent


def test_a_second_stream_of_the_peer_is_a_lost_connection(world: World) -> None:
    pair = Pair(world, Random(1), encrypted=False)
    pair.client_end.is_suspended = True
    exchange = pair.session.exchange
    assert exchange is not None
    assert exchange.image is not None
    pair.session._streams.arrivals.append(exchange.image)
    pair.until(lambda: pair.server_end.error is not None, "that the server notices")
    assert isinstance(pair.server_end.error, ConnectionLost)
    assert "interrupted" in str(pair.server_end.error)


def test_a_handler_does_not_take_the_close_of_its_server_for_an_orderly_end(world: World) -> None:
    pair = Pair(world, Random(1), encrypted=False)
    pair.core.close()
    assert isinstance(pair.session.error, ClosedError)
    pair.until(lambda: pair.client_end.error is not None, "the end")
    assert isinstance(pair.client_end.error, ClosedError)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize(("world", "seed"), SEEDS, indirect=["world"])
def test_a_server_that_closes_while_a_client_joins_says_its_end(world: World, seed: int, encrypted: bool) -> None:
    pair = Pair(world, Random(seed), encrypted=encrypted, both=False)
    pair.core.close()
    pair.until(lambda: pair.client_end.error is not None, "the end")
    assert type(pair.client_end.error) is ClosedError
    assert "ended the duologue" in str(pair.client_end.error)
    pair.until(lambda: pair.core.release(world.now_ns), "the end of the streams")


# -- peers of other implementations, which say no end ------------------------------------------------------------------


def test_a_client_that_never_says_its_end_is_served_and_is_lost_when_it_leaves(world: World) -> None:
    world.tick_ns, world.grain_ns = 5 * NS_PER_MS, NS_PER_MS
    near, far = (world.add_host(name, **reserved_sessions()) for name in ("server", "client"))
    sessions: list[Session] = []
    core = ServerCore(near.aeron, ServerChannels(near.address), sessions.append, rng=Random(1))
    channels, stream_id = ClientChannels(near.address), Settings().stream_id

    def until(condition: Callable[[], Any], what: str) -> None:
        def step() -> bool:
            core.do_work(world.now_ns)
            for session in sessions:
                while session.is_open and (text := session.receive()) is not None:
                    session.queue(text)
            return bool(condition())

        world.run_until(step, what=what)

    publication = far.aeron.add_exclusive_publication(channels.publication(), stream_id)
    subscription = far.aeron.add_subscription(channels.subscription(), stream_id)
    until(lambda: publication.is_connected and subscription.is_connected, "the all-clients channel")
    assert publication.offer(b"HELLO 611786D9") > 0
    responses: list[bytes] = []
    until(lambda: responses.extend(subscription.poll_bytes()) or responses, "CONNECT")
    _, _, port, control_port, encrypted = responses[0].split()
    session_id = encrypt_session(int(encrypted, 16), 0x611786D9)
    joined = far.aeron.add_exclusive_publication(channels.publication(int(port), session_id), stream_id)
    back = far.aeron.add_subscription(channels.subscription(int(control_port), session_id), stream_id)
    until(lambda: joined.is_connected and back.is_connected and sessions, "the duologue")
    assert joined.offer(b"ECHO tide") > 0
    until(lambda: responses.extend(back.poll_bytes()) or responses[1:], "the echo")
    assert responses[1:] == [b"ECHO tide"]
    joined.close()
    until(lambda: sessions[0].error, "that the server notices")
    assert isinstance(sessions[0].error, ConnectionLost)
    # It is sent nothing that the guide does not know.
    until(lambda: not back.is_connected, "the end of the server's stream")
    assert back.poll_bytes() == []
    for stream in (publication, subscription, back):
        stream.close()


@pytest.mark.parametrize("way", ["the server leaves", "the client leaves", "an error"])
def test_a_server_that_never_says_its_end_can_be_used(world: World, way: str) -> None:
    world.tick_ns, world.grain_ns = 5 * NS_PER_MS, NS_PER_MS
    near, far = (world.add_host(name, **reserved_sessions()) for name in ("server", "client"))
    channels, stream_id, duologue_session = ServerChannels(near.address), Settings().stream_id, 0x7388BAC1
    responses = near.aeron.add_publication(channels.publication(), stream_id)
    requests = near.aeron.add_subscription(channels.subscription(), stream_id)
    publication = near.aeron.add_exclusive_publication(channels.publication(9051, duologue_session), stream_id)
    subscription = near.aeron.add_subscription(channels.subscription(9050, duologue_session), stream_id)
    client = ClientCore(far.aeron, ClientChannels(near.address), rng=Random(1), now_ns=world.now_ns)
    received: list[bytes] = []

    def step() -> None:
        client.do_work(world.now_ns)
        for asked in requests.poll_with_metadata():
            hello: Any = parse_hello(asked.payload)
            encrypted = encrypt_session(duologue_session, hello.key)
            assert asked.reserved_value == SAYS_END
            responses.offer(Connect(asked.session_id, 9050, 9051, encrypted).encode())
        for asked in subscription.poll_with_metadata():
            assert asked.reserved_value == 0
            received.append(asked.payload)
            publication.offer(asked.payload)

    def until(condition: Callable[[], Any], what: str) -> None:
        world.run_until(lambda: step() or bool(condition()), what=what)

    until(lambda: client.is_open, "the duologue")
    assert client.offer(b"ECHO tide")
    until(lambda: client.receive() == b"ECHO tide", "the echo")
    kind: type[MainstemError] = ClosedError
    if way == "the server leaves":
        kind = ConnectionLost
        publication.close()
    elif way == "the client leaves":
        client.finish()
        until(lambda: not subscription.is_connected, "the end of the client's stream")
        publication.close()
    else:
        kind = ConnectRefused
        assert publication.offer(b"ERROR bad message") > 0
    until(lambda: client.error, "the end")
    assert isinstance(client.error, kind)
    assert not isinstance(client.error, Aborted)
    assert received == [b"ECHO tide"]
    for stream in (responses, requests, publication, subscription):
        stream.close()
