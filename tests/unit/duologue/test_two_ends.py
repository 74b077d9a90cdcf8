"""A server and its clients in a simulated world without faults: refusals, and how duologues end."""

from __future__ import annotations

from collections import deque
from itertools import repeat
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.duologue.channels import ClientChannels, ServerChannels
from mainstem.duologue.client_core import ClientCore
from mainstem.duologue.server_core import ServerCore
from mainstem.duologue.session import MESSAGES_AT_ONCE
from mainstem.duologue.settings import Settings
from mainstem.duologue.stats import DuologueStats
from mainstem.duologue.streams import MAX_RECEIVED, MAX_RECEIVED_BYTES
from mainstem.errors import Aborted, BackPressured, ClosedError, ConnectionLost, ConnectRefused, DriverTimeout, Timeout
from mainstem.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstem.duologue.session import Session
    from mainstem.sim.host import Host


class Ends:
    """The world, an echo server, and clients whose duty cycles run with it."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.world = world
        self.near = world.add_host("server")
        self.sessions: list[Session] = []
        channels = ServerChannels(self.near.address, settings=Settings(**{"max_clients": 4, **settings}))
        self.server = ServerCore(self.near.aeron, channels, self.sessions.append, rng=Random(1))
        self.is_reading = True
        self.far: list[Host] = []
        self.clients: list[ClientCore] = []

    def client(self, *, timeout: float = 5.0, **settings: Any) -> ClientCore:
        """Return a client on its own host that has not started."""
        self.far.append(self.world.add_host(f"client-{len(self.far)}"))
        channels = ClientChannels(self.near.address, settings=Settings(**settings))
        self.clients.append(
            ClientCore(
                self.far[-1].aeron,
                channels,
                timeout=timeout,
                rng=Random(len(self.far)),
                now_ns=self.world.now_ns,
            )
        )
        return self.clients[-1]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Run every duty cycle until the condition holds."""

        def step() -> bool:
            self.server.do_work(self.world.now_ns)
            if self.is_reading:
                self.echo()
            for client in self.clients:
                client.do_work(self.world.now_ns)
                if client.error is not None and not (client.exchange and client.exchange._received):
                    raise client.error
            return condition()

        self.world.run_until(step, what=what)

    def echo(self) -> None:
        """Handle the messages of each session."""
        for session in self.sessions:
            while session.is_open and (message := session.receive()) is not None:
                if message == b"bad":
                    session.bad_messages += 1
                    session.close("bad message")
                else:
                    session.queue(message)

    def leave(self, client: ClientCore) -> None:
        """Let the client leave in order, without waiting for the server."""
        self.clients.remove(client)
        client.finish()
        while not client.close():
            self.world.step()

    @property
    def reasons(self) -> list[str]:
        """The reasons of the sessions that have ended."""
        return [session.reason for session in self.sessions if session.reason]

    def joined(self, **settings: Any) -> ClientCore:
        """Return a client whose duologue is open at both ends."""
        client = self.client(**settings)
        before = len(self.sessions)
        self.until(lambda: client.is_open and len(self.sessions) > before, "an open duologue")
        return client

    def refused(self, client: ClientCore) -> str:
        """Return the reason for the server's refusal."""
        with pytest.raises(ConnectRefused) as refusal:
            self.until(lambda: False, "a refusal")
        self.clients.remove(client)
        return refusal.value.reason


@pytest.fixture
def world() -> Iterator[World]:
    with World(1) as world:
        yield world


def test_a_message_of_the_maximum_length_is_echoed(world: World) -> None:
    ends = Ends(world)
    client = ends.joined()
    (session,) = ends.sessions
    assert client.max_message_length == session.max_message_length == 8192
    ends.until(lambda: client.offer(bytes(8192)), "room")
    ends.until(lambda: (message := client.receive()) is not None and len(message) == 8192, "the longest message")
    for end in (client, session):
        assert end.stats() == DuologueStats(1, 8192, 1, 8192)


def test_sending_requires_an_open_duologue(world: World) -> None:
    ends = Ends(world)
    early = ends.client()
    with pytest.raises(ClosedError, match="not open"):
        early.offer(b"too early")
    ends.until(lambda: bool(ends.sessions) and early.is_open, "an open duologue")
    (session,) = ends.sessions
    session.close("noon")
    with pytest.raises(ClosedError, match="closed by this side"):
        session.offer(b"too late")
    session.close("again")  # has no effect: the client receives the first reason
    assert ends.refused(early) == "noon"
    ends.until(lambda: not ends.server.sessions_in_use, "the end of the duologue")
    assert ends.reasons == ["closed by the server"]
    assert "closed" in repr(session)
    assert not ends.server.ports_in_use


def test_a_rejected_message_is_counted_and_ends_the_duologue(world: World) -> None:
    ends = Ends(world)
    client = ends.joined()
    client.offer(b"bad")
    client.offer(b"never read")
    assert ends.refused(client) == "bad message"
    ends.until(lambda: not ends.server.sessions_in_use, "the end of the duologue")
    assert ends.server.stats.bad_messages == 1


def test_a_broadcast_reaches_every_connected_client(world: World) -> None:
    ends = Ends(world)
    clients = [ends.joined(), ends.joined()]
    ends.server.broadcast("to all")
    received: list[bytes] = []

    def both() -> bool:
        received.extend(message for client in clients if (message := client.receive()) is not None)
        return len(received) == 2

    ends.until(both, "two messages")
    assert received == [b"to all", b"to all"]


@pytest.mark.parametrize("length", [1000, 8000])
def test_a_client_gets_back_pressure_if_the_server_does_not_receive(world: World, length: int) -> None:
    limit = min(MAX_RECEIVED, MAX_RECEIVED_BYTES // length + 1)
    ends = Ends(world, idle_timeout=None)
    client = ends.joined()
    ends.is_reading = False
    sent = 0

    def is_full() -> bool:
        nonlocal sent
        while client.offer(b"%d" % sent + bytes(length)):
            sent += 1
        return sent >= limit

    ends.until(is_full, "more messages than the server takes in")
    end = world.now_ns + 2 * NS_PER_SECOND
    ends.until(lambda: is_full() and world.now_ns >= end, "two seconds in which the client tries to send more")
    (session,) = ends.sessions
    assert limit <= session.stats().messages_received <= limit + MESSAGES_AT_ONCE
    ends.is_reading = True
    received = 0

    def all_back() -> bool:
        nonlocal received
        while (message := client.receive()) is not None:
            assert message == b"%d" % received + bytes(length)
            received += 1
        return received == sent

    ends.until(all_back, "every message that waited")


def test_an_idle_client_is_disconnected_and_frees_its_slot(world: World) -> None:
    ends = Ends(world, idle_timeout=1.0)
    client = ends.joined()
    with pytest.raises(ConnectRefused, match="ended the duologue: idle for too long"):
        ends.until(lambda: False, "the end of the duologue")
    ends.clients.remove(client)
    ends.until(lambda: not ends.server.sessions_in_use, "the end of the duologue")
    assert ends.reasons == ["10.0.0.2 sent no message for 1 s (idle_timeout)"]
    with pytest.raises(Timeout):
        ends.sessions[0].receive()


def test_a_client_that_leaves_frees_its_slot(world: World) -> None:
    ends = Ends(world)
    client = ends.joined()
    ends.leave(client)
    ends.until(lambda: not ends.server.sessions_in_use, "the end of the duologue")
    assert ends.reasons == ["everybody left"]
    assert ends.sessions[0].error is None
    assert ends.joined().is_open


def test_a_running_handler_keeps_its_clients_slot(world: World) -> None:
    ends = Ends(world, max_clients=1)
    client = ends.joined()
    ends.sessions[0].has_handler = True
    ends.clients.remove(client)
    while not client.close():
        world.step()
    ends.until(lambda: bool(ends.reasons), "the end of the duologue")
    assert ends.refused(ends.client()) == "server full"
    ends.sessions[0].has_handler = False
    ends.until(lambda: not ends.server.sessions_in_use, "the end of the handler")
    assert ends.joined().is_open


def test_each_end_learns_that_the_other_aborted(world: World) -> None:
    ends = Ends(world)
    client = ends.joined()
    ends.clients.remove(client)
    client.abort()
    ends.until(lambda: not ends.server.sessions_in_use, "the end of the duologue")
    assert isinstance(ends.sessions[0].error, Aborted)
    client = ends.joined()
    ends.sessions[1].abort()
    with pytest.raises(ClosedError, match="closed by this side"):
        ends.sessions[1].receive()
    with pytest.raises(Aborted, match="aborted the duologue"):
        ends.until(lambda: False, "the abort")
    ends.clients.remove(client)
    client.close()
    ends.until(lambda: not ends.server.sessions_in_use, "the end of the duologue")


def test_each_end_learns_that_the_others_host_stopped(world: World) -> None:
    ends = Ends(world)
    client = ends.joined()
    (session,) = ends.sessions
    ends.clients.remove(client)
    ends.far[0].crash()
    ends.until(lambda: not ends.server.sessions_in_use, "the end of the duologue")
    with pytest.raises(ConnectionLost, match="no heartbeat from"):
        session.receive()
    client = ends.joined()
    ends.near.crash()

    def lost() -> bool:
        client.do_work(world.now_ns)
        return client.error is not None

    begun_ns = world.now_ns
    world.run_until(lost, what="that the client notices")
    assert isinstance(client.error, ConnectionLost)
    assert world.now_ns - begun_ns <= 6 * NS_PER_SECOND
    with pytest.raises(ConnectionLost):
        client.offer(b"too late")


def test_a_finishing_client_learns_that_everything_arrived(world: World) -> None:
    ends = Ends(world)
    client = ends.joined()
    (session,) = ends.sessions
    for number in range(20):
        assert client.offer(b"%d" % number)
    ends.clients.remove(client)
    client.finish()
    begun_ns = world.now_ns

    def confirmed() -> bool:
        ends.server.do_work(world.now_ns)
        client.do_work(world.now_ns)
        return client.error is not None

    world.run_until(confirmed, what="the server's end")
    assert isinstance(client.error, ClosedError)
    assert world.now_ns - begun_ns < NS_PER_SECOND
    assert [session.receive() for _ in range(20)] == [b"%d" % number for number in range(20)]
    with pytest.raises(ClosedError, match="everybody left"):
        session.receive()


def test_a_server_shutting_down_rejects_new_clients_and_serves_existing_ones(world: World) -> None:
    ends = Ends(world)
    client = ends.joined()
    ends.server.stop_accepting()
    assert ends.refused(ends.client()) == "server shutting down"
    client.offer(b"on")
    ends.until(lambda: client.receive() == b"on", "the echo")


def test_a_stream_from_another_address_ends_the_duologue_it_joins(world: World) -> None:
    ends = Ends(world)
    client, stranger = ends.client(), world.add_host("stranger")
    ends.until(lambda: client.duologue_session != 0, "a response")
    ends.clients.remove(client)
    (session,) = ends.server._sessions.values()
    settings = client.channels.publication(session.response.port, client.duologue_session)
    intruding = stranger.aeron.add_exclusive_publication(settings, client.channels.settings.stream_id)
    ends.until(lambda: not ends.server.sessions_in_use, "the end of the duologue")
    assert not ends.sessions
    intruding.close()


def test_a_client_that_left_keeps_its_slot_for_left_timeout(world: World) -> None:
    ends = Ends(world, left_timeout=60.0)
    client = ends.joined()
    (session,) = ends.sessions
    ends.leave(client)
    ends.until(lambda: not session.is_open, "that the client has left")
    left_ns = world.now_ns
    with pytest.raises(ClosedError, match="duologue"):
        session.offer(b"too late")
    ends.until(lambda: not ends.server.sessions_in_use, "the end of the duologue")
    assert world.now_ns - left_ns >= 60 * NS_PER_SECOND
    assert ends.reasons == ["everybody left"]


def test_a_broadcast_skips_a_client_that_does_not_read(world: World) -> None:
    ends = Ends(world)
    stuck, reading = ends.joined(), ends.joined()
    one, other = ends.sessions
    ends.clients.remove(stuck)
    with pytest.raises(BackPressured, match="the queue is full"):
        deque(map(one.queue, repeat(bytes(8192))), 0)
    ends.server.broadcast(b"to those who read")
    ends.until(lambda: reading.receive() == b"to those who read", "the message")
    assert one.queued
    assert other.is_open
    ends.until(lambda: not one.is_open, "the end of the duologue that does not read")
    ends.until(lambda: bool(ends.reasons), "the end of the duologue that does not read")
    assert "the peer does not read" in ends.reasons[0]


def test_a_response_without_a_receiving_client_is_dropped(world: World) -> None:
    ends = Ends(world)
    host = world.add_host("deaf")
    channels = ClientChannels(ends.near.address)
    publication = host.aeron.add_publication(channels.publication(), channels.settings.stream_id)
    asked = False

    def given_up() -> bool:
        nonlocal asked
        asked = asked or publication.offer(b"no HELLO") > 0
        return ends.server.stats.responses_lost > 0

    ends.until(given_up, "the end of the server's timeout")
    publication.close()
    assert ends.joined().is_open


def test_an_unresponsive_driver_fails_only_the_request(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = Ends(world)
    with monkeypatch.context() as patch:

        def refuse(*_: object, **__: object) -> None:
            raise DriverTimeout("the driver accepts no more commands")

        patch.setattr(ends.near.aeron, "async_add_exclusive_publication", refuse)
        assert ends.refused(ends.client()) == "internal error"
    ends.until(lambda: not ends.server.sessions_in_use, "that everything is given back")
    assert not ends.server.ports_in_use
    assert ends.joined().is_open


def test_concurrent_clients_get_separate_duologues(world: World) -> None:
    ends = Ends(world)
    one, other = ends.client(), ends.client()

    def both() -> bool:
        ends.server._publication.offer(b"no response at all")
        return one.is_open and other.is_open and len(ends.sessions) == 2

    ends.until(both, "two duologues")
    assert one.duologue_session != other.duologue_session
    for client, text in ((one, b"one"), (other, b"other")):
        client.offer(text)
    ends.until(lambda: one.receive() == b"one", "the first echo")
    ends.until(lambda: other.receive() == b"other", "the second echo")


def test_broadcasts_before_close_arrive(world: World) -> None:
    ends = Ends(world)
    client = ends.joined()
    ends.server.broadcast(b"good-bye")
    ends.server.close()
    received = []

    def heard() -> bool:
        client.do_work(world.now_ns)
        received.append(client.receive())
        return received[-1] is not None

    world.run_until(heard, what="the last broadcast")
    assert received[-1] == b"good-bye"
    ends.server.close()


def test_a_closed_client_does_nothing(world: World) -> None:
    ends = Ends(world)
    client = ends.joined()
    while not client.close():
        world.step()
    client.do_work(world.now_ns)
    assert not client.is_open


def test_hellos_above_the_rate_are_ignored(world: World) -> None:
    ends = Ends(world, hello_rate=0.001, hello_burst=1, max_clients_per_address=4)
    first = ends.joined()
    first.close()
    ends.clients.clear()
    host = ends.far[0]
    again = ClientCore(host.aeron, ClientChannels(ends.near.address), rng=Random(7), now_ns=world.now_ns)
    ends.clients.append(again)
    ends.until(lambda: ends.server.stats.hellos_ignored == 1, "a HELLO that is ignored")
    assert ends.server.stats.duologues_opened == 1


def test_a_full_server_ends_a_duologue_that_no_client_joined(world: World) -> None:
    ends = Ends(world, max_clients=1, join_timeout=30.0)
    absent = ends.client()
    ends.until(lambda: absent.duologue_session != 0, "a response")
    # Its host crashes before it joins, but the server has already reserved a session for it.
    ends.clients.remove(absent)
    ends.far[0].crash()
    end = world.now_ns + 3 * NS_PER_SECOND
    ends.until(lambda: world.now_ns >= end, "the time in which it could have joined")
    assert len(ends.server.sessions_in_use) == 1
    assert ends.joined().is_open
    assert ends.server.stats.duologues_evicted == 1


def test_a_full_server_ends_a_duologue_that_a_client_joined_by_half(world: World) -> None:
    ends = Ends(world, max_clients=1, join_timeout=30.0)
    half = ends.client()
    ends.until(lambda: half.duologue_session != 0, "a response")
    # It sends, but never receives.
    ends.clients.remove(half)
    streams = half._streams
    ends.until(lambda: streams.is_ready, "its streams")
    subscription, publication = streams.subscription, streams.publication
    assert subscription is not None
    assert publication is not None
    subscription.close()
    end = world.now_ns + 3 * NS_PER_SECOND
    ends.until(lambda: world.now_ns >= end, "the time in which it could have joined")
    assert publication.is_connected
    assert not ends.sessions
    assert ends.joined().is_open
    assert ends.server.stats.duologues_evicted == 1
    publication.close()


def test_a_client_without_a_request_is_refused_after_a_timeout(world: World) -> None:
    ends = Ends(world, handshake_timeout=1.0)
    host = world.add_host("quiet")
    channels = ClientChannels(ends.near.address)
    subscription = host.aeron.add_subscription(channels.subscription(), channels.settings.stream_id)
    publication = host.aeron.add_publication(channels.publication(), channels.settings.stream_id)
    ends.until(lambda: ends.server.stats.handshakes == 1, "an introduction")
    ends.until(lambda: ends.server.stats.handshakes_refused == 1, "the refusal")
    assert ends.server.stats.hellos == 0
    subscription.close()
    publication.close()


def test_a_client_over_the_request_rate_is_refused(world: World) -> None:
    ends = Ends(world, hello_burst=100)
    host = world.add_host("eager")
    channels = ClientChannels(ends.near.address)
    publication = host.aeron.add_publication(channels.publication(), channels.settings.stream_id)

    def asked() -> bool:
        if not ends.server.stats.handshakes_refused and publication.is_connected:
            publication.offer(b"no HELLO")
        return ends.server.stats.handshakes_refused > 0

    ends.until(asked, "the refusal")
    assert ends.server.stats.bad_hellos >= 1
    assert not ends.server.sessions_in_use


def test_an_oversized_message_ends_only_its_senders_duologue(world: World) -> None:
    ends = Ends(world)
    large, other = ends.joined(term_length=1 << 20), ends.joined()
    assert large.offer(bytes(100_000))
    assert ends.refused(large) == "bad message"
    other.offer(b"on")
    ends.until(lambda: other.receive() == b"on", "the other client's echo")
    assert ends.server.stats.bad_messages == 1


def test_server_and_client_end_with_their_aeron_client(world: World) -> None:
    ends = Ends(world)
    client = ends.joined()
    ends.far[0].aeron.close()
    client.do_work(world.now_ns)
    with pytest.raises(ConnectionLost, match="the connection to the media driver was lost"):
        client.receive()
    ends.near.aeron.close()
    with pytest.raises(ConnectionLost, match="the connection to the media driver was lost"):
        ends.server.do_work(world.now_ns)


def test_closing_a_server_ends_every_duologue_with_a_reason(world: World) -> None:
    ends = Ends(world)
    ends.joined()
    ends.server.close()
    assert ends.reasons == ["the server was closed"]
    assert not ends.server.sessions
    ends.server.close()
    assert ends.reasons == ["the server was closed"]
