"""A server and its clients in one simulated world without faults: what each refuses, and what ends a duologue."""

from __future__ import annotations

from collections import deque
from itertools import repeat
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from mainstem.clock import NS_PER_SECOND
from mainstem.duologue.client_core import ClientCore
from mainstem.duologue.handler import Echo, Handler
from mainstem.duologue.server_core import ServerCore
from mainstem.duologue.settings import ClientSettings, ServerSettings
from mainstem.errors import BackPressured, BadMessage, ClosedError, ConnectRefused, DriverTimeout
from mainstem.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstem.duologue.session import Duologue
    from mainstem.sim.host import Host


class Recorder(Handler):
    """Echoes what is no command, and records what it is called for."""

    def __init__(self) -> None:
        self.duologues: list[Duologue] = []
        self.reasons: list[str] = []
        self.fails_at_open = self.fails_at_close = False

    def on_open(self, duologue: Duologue) -> None:
        self.duologues.append(duologue)
        if self.fails_at_open:
            raise ZeroDivisionError

    def on_message(self, duologue: Duologue, message: bytes) -> None:
        if message == b"bad":
            raise BadMessage
        duologue.send(message)

    def on_close(self, duologue: Duologue, reason: str) -> None:
        self.reasons.append(reason)
        if self.fails_at_close:
            raise ZeroDivisionError


class Ends:
    """The world, the server, and the clients whose duty cycles run with it."""

    def __init__(self, world: World, *, handler: Handler | None = None, **settings: Any) -> None:
        self.world = world
        self.near = world.add_host("server")
        self.handler = Recorder()
        self.settings = ServerSettings(**{"address": self.near.address, "max_clients": 4, **settings})
        self.server = ServerCore(
            self.near.aeron, self.settings, handler or self.handler, chance=Random(1), assert_thread=lambda: None
        )
        self.far: list[Host] = []
        self.clients: list[ClientCore] = []

    def client(self, **settings: Any) -> ClientCore:
        """A client on a machine of its own, which has not begun."""
        self.far.append(self.world.add_host(f"client-{len(self.far)}"))
        asking = ClientSettings(server=self.near.address, **settings)
        self.clients.append(
            ClientCore(self.far[-1].aeron, asking, chance=Random(len(self.far)), now_ns=self.world.now_ns)
        )
        return self.clients[-1]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Runs every duty cycle until the condition holds."""

        def step() -> bool:
            self.server.do_work(self.world.now_ns)
            for client in self.clients:
                client.do_work(self.world.now_ns)
            return condition()

        self.world.run_until(step, what=what)

    def joined(self, **settings: Any) -> ClientCore:
        """A client whose duologue is open at both ends."""
        client = self.client(**settings)
        before = len(self.handler.duologues)
        self.until(lambda: client.is_open and len(self.handler.duologues) > before, "an open duologue")
        return client

    def refused(self, client: ClientCore) -> str:
        """The reason of the server's refusal."""
        with pytest.raises(ConnectRefused) as refusal:
            self.until(lambda: False, "a refusal")
        self.clients.remove(client)
        return refusal.value.reason


@pytest.fixture
def world() -> Iterator[World]:
    with World(1) as world:
        yield world


def test_a_message_that_is_too_long_is_refused_at_either_end_and_ends_nothing(world: World) -> None:
    ends = Ends(world)
    client = ends.joined()
    (duologue,) = ends.handler.duologues
    assert client.max_message_length == duologue.max_message_length == 8192
    with pytest.raises(ValueError, match="8193 bytes is above the 8192"):
        client.send(bytes(8193), world.now_ns)
    with pytest.raises(ValueError, match="8193 bytes is above the 8192"):
        duologue.send(bytes(8193))
    client.send(bytes(8192), world.now_ns)
    ends.until(lambda: (message := client.receive()) is not None and len(message) == 8192, "the longest message")


def test_nothing_is_sent_before_a_duologue_is_open_or_after_it_has_ended(world: World) -> None:
    ends = Ends(world)
    early = ends.client()
    with pytest.raises(ClosedError, match="not open"):
        early.send(b"too early", world.now_ns)
    ends.until(lambda: bool(ends.handler.duologues) and early.is_open, "an open duologue")
    (duologue,) = ends.handler.duologues
    duologue.close("noon")
    with pytest.raises(ClosedError, match="is closing"):
        duologue.send(b"too late")
    duologue.close("again")  # has no effect: the client receives the first reason
    assert ends.refused(early) == "noon"
    ends.until(lambda: not ends.server.sessions_in_use, "the end of the duologue")
    assert ends.handler.reasons == ["closed by the server"]
    assert "closed" in repr(duologue)
    assert not ends.server.ports_in_use


def test_a_message_that_the_handler_refuses_ends_the_duologue_and_is_counted(world: World) -> None:
    ends = Ends(world)
    client = ends.joined()
    client.send(b"bad", world.now_ns)
    client.send(b"never read", world.now_ns)
    assert ends.refused(client) == "bad message"
    ends.until(lambda: not ends.server.sessions_in_use, "the end of the duologue")
    assert ends.server.stats.bad_messages == 1


def test_an_echo_of_what_is_no_text_ends_the_duologue(world: World) -> None:
    ends = Ends(world, handler=Echo())
    client = ends.client()
    ends.until(lambda: client.is_open and bool(ends.server.duologues), "an open duologue")
    client.send("ECHO Gezeiten ♒", world.now_ns)
    ends.until(lambda: client.receive() == "ECHO Gezeiten ♒".encode(), "the echo")
    client.send(b"ECHO \xff", world.now_ns)
    assert ends.refused(client) == "bad message"


def test_a_broadcast_reaches_every_client_that_is_there(world: World) -> None:
    ends = Ends(world)
    clients = [ends.joined(), ends.joined()]
    ends.server.broadcast("to all")
    received: list[bytes] = []

    def both() -> bool:
        received.extend(message for client in clients if (message := client.receive()) is not None)
        return len(received) == 2

    ends.until(both, "two messages")
    assert received == [b"to all", b"to all"]


def test_a_paused_duologue_reads_nothing_until_it_goes_on(world: World) -> None:
    ends = Ends(world, idle_timeout=None)
    client = ends.joined()
    (duologue,) = ends.handler.duologues
    duologue.paused = True
    client.send(b"wait", world.now_ns)
    end = world.now_ns + 2 * NS_PER_SECOND
    ends.until(lambda: world.now_ns >= end, "two seconds")
    assert client.receive() is None
    duologue.paused = False
    ends.until(lambda: client.receive() == b"wait", "the message that waited")


def test_a_silent_client_is_ended_and_its_place_is_free_again(world: World) -> None:
    ends = Ends(world, idle_timeout=1.0)
    client = ends.joined()
    with pytest.raises(ClosedError, match="ended the duologue"):
        ends.until(lambda: False, "the end of the duologue")
    ends.clients.remove(client)
    ends.until(lambda: not ends.server.sessions_in_use, "the end of the duologue")
    assert ends.handler.reasons == ["silent for too long"]


def test_a_fault_in_on_close_is_logged_and_the_server_goes_on(world: World, caplog: pytest.LogCaptureFixture) -> None:
    ends = Ends(world)
    client = ends.joined()
    ends.handler.fails_at_close = True
    ends.clients.remove(client)
    while not client.close():
        world.step()
    ends.until(lambda: not ends.server.sessions_in_use, "the end of the duologue")
    assert ends.handler.reasons == ["everybody left"]
    assert "ZeroDivisionError" in caplog.text
    assert ends.joined().is_open


def test_a_fault_in_on_open_ends_one_duologue_and_the_server_goes_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ends = Ends(world)
    ends.handler.fails_at_open = True
    client = ends.client()
    with pytest.raises(ClosedError, match="ended the duologue"):
        ends.until(lambda: False, "the end of the duologue")
    ends.clients.remove(client)
    assert ends.handler.reasons == ["internal error"]
    assert "ZeroDivisionError" in caplog.text
    ends.handler.fails_at_open = False
    assert ends.joined().is_open


def test_a_stream_from_another_address_ends_the_duologue_that_it_joins(world: World) -> None:
    ends = Ends(world)
    client, stranger = ends.client(), world.add_host("stranger")
    ends.until(lambda: client.duologue_session != 0, "a response")
    ends.clients.remove(client)
    (duologue,) = ends.server._duologues.values()
    settings = client.settings.duologue_publication(duologue.ports[0], client.duologue_session)
    intruding = stranger.aeron.add_exclusive_publication(settings, client.settings.stream_id)
    ends.until(lambda: not ends.server.sessions_in_use, "the end of the duologue")
    assert not ends.handler.duologues
    intruding.close()


def test_a_client_that_has_left_keeps_its_place_for_the_time_of_the_setting(world: World) -> None:
    ends = Ends(world, left_timeout=60.0)
    client = ends.joined()
    (duologue,) = ends.handler.duologues
    ends.clients.remove(client)
    while not client.close():
        world.step()
    ends.until(lambda: not duologue.is_open, "that the client has left")
    left_ns = world.now_ns
    with pytest.raises(ClosedError, match="is left"):
        duologue.send(b"too late")
    ends.until(lambda: not ends.server.sessions_in_use, "the end of the duologue")
    assert world.now_ns - left_ns >= 60 * NS_PER_SECOND
    assert ends.handler.reasons == ["everybody left"]


def test_a_broadcast_leaves_out_a_client_that_does_not_read(world: World) -> None:
    ends = Ends(world)
    stuck, reading = ends.joined(), ends.joined()
    one, other = ends.handler.duologues
    ends.clients.remove(stuck)
    with pytest.raises(BackPressured, match="wait already"):
        deque(map(one.send, repeat(bytes(8192))), 0)
    ends.server.broadcast(b"to those who read")
    ends.until(lambda: reading.receive() == b"to those who read", "the message")
    assert one.queued
    assert other.is_open
    ends.until(lambda: not one.is_open, "the end of the duologue that does not read")
    (reason,) = ends.handler.reasons
    assert "the peer does not read" in reason


def test_a_response_that_no_client_can_receive_is_given_up(world: World) -> None:
    ends = Ends(world)
    host = world.add_host("deaf")
    settings = ClientSettings(server=ends.near.address)
    publication = host.aeron.add_publication(settings.initial_publication, settings.stream_id)
    asked = False

    def given_up() -> bool:
        nonlocal asked
        asked = asked or publication.offer(b"no HELLO") > 0
        return ends.server.stats.answers_lost > 0

    ends.until(given_up, "the end of the server's patience")
    publication.close()
    assert ends.joined().is_open


def test_a_driver_that_takes_no_command_costs_the_client_its_request_and_the_server_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = Ends(world)
    with monkeypatch.context() as patch:

        def refuse(*_: object, **__: object) -> None:
            raise DriverTimeout("the driver accepts no more commands")

        patch.setattr(ends.near.aeron, "async_add_exclusive_publication", refuse)
        assert ends.refused(ends.client()) == "internal error"
    ends.until(lambda: not ends.server.sessions_in_use, "that everything is given back")
    assert not ends.server.ports_in_use
    assert ends.joined().is_open


def test_clients_that_ask_at_once_have_a_duologue_each_and_leave_out_what_is_for_others(world: World) -> None:
    ends = Ends(world)
    one, other = ends.client(), ends.client()

    def both() -> bool:
        ends.server._publication.offer(b"no response at all")
        return one.is_open and other.is_open and len(ends.handler.duologues) == 2

    ends.until(both, "two duologues")
    assert one.duologue_session != other.duologue_session
    for client, text in ((one, b"one"), (other, b"other")):
        client.send(text, world.now_ns)
    ends.until(lambda: one.receive() == b"one", "the first echo")
    ends.until(lambda: other.receive() == b"other", "the second echo")


def test_what_was_called_before_the_close_is_run_and_what_comes_later_is_refused(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ends = Ends(world)
    client = ends.joined()
    ends.server.call_soon(lambda: 1 // 0)
    ends.server.call_soon(lambda: ends.server.broadcast(b"good-bye"))
    ends.server.close()
    assert "ZeroDivisionError" in caplog.text
    received = []

    def heard() -> bool:
        client.do_work(world.now_ns)
        received.append(client.receive())
        return received[-1] is not None

    world.run_until(heard, what="the last broadcast")
    assert received[-1] == b"good-bye"
    with pytest.raises(ClosedError, match="the server has ended"):
        ends.server.call_soon(lambda: None)
    ends.server.close()


def test_a_client_that_is_closed_does_nothing(world: World) -> None:
    ends = Ends(world)
    client = ends.joined()
    while not client.close():
        world.step()
    assert client.do_work(world.now_ns) == 0
    assert not client.is_open


def test_hellos_above_the_rate_are_ignored(world: World) -> None:
    ends = Ends(world, hello_rate=0.001, hello_burst=1, max_per_address=4)
    first = ends.joined()
    first.close()
    ends.clients.clear()
    host = ends.far[0]
    again = ClientCore(host.aeron, ClientSettings(server=ends.near.address), chance=Random(7), now_ns=world.now_ns)
    ends.clients.append(again)
    ends.until(lambda: ends.server.stats.hellos_ignored == 1, "a HELLO that is ignored")
    assert ends.server.stats.duologues_opened == 1


def test_a_full_server_ends_a_duologue_that_no_client_has_joined(world: World) -> None:
    ends = Ends(world, max_clients=1, join_timeout=30.0)
    absent = ends.client()
    ends.until(lambda: absent.duologue_session != 0, "a response")
    # Its machine stops before it joins; the server has given it a place.
    ends.clients.remove(absent)
    ends.far[0].crash()
    end = world.now_ns + 3 * NS_PER_SECOND
    ends.until(lambda: world.now_ns >= end, "the time in which it could have joined")
    assert len(ends.server.sessions_in_use) == 1
    assert ends.joined().is_open
    assert ends.server.stats.duologues_evicted == 1


def test_a_client_that_asks_for_nothing_is_refused_after_a_while(world: World) -> None:
    ends = Ends(world, handshake_timeout=1.0)
    host = world.add_host("quiet")
    settings = ClientSettings(server=ends.near.address)
    subscription = host.aeron.add_subscription(settings.initial_subscription, settings.stream_id)
    publication = host.aeron.add_publication(settings.initial_publication, settings.stream_id)
    ends.until(lambda: ends.server.stats.introductions == 1, "an introduction")
    ends.until(lambda: ends.server.stats.introductions_refused == 1, "the refusal")
    assert ends.server.stats.hellos == 0
    subscription.close()
    publication.close()


def test_a_client_that_asks_too_often_is_refused(world: World) -> None:
    ends = Ends(world, hello_burst=100)
    host = world.add_host("eager")
    settings = ClientSettings(server=ends.near.address)
    publication = host.aeron.add_publication(settings.initial_publication, settings.stream_id)

    def asked() -> bool:
        if not ends.server.stats.introductions_refused and publication.is_connected:
            publication.offer(b"no HELLO")
        return ends.server.stats.introductions_refused > 0

    ends.until(asked, "the refusal")
    assert ends.server.stats.bad_hellos >= 1
    assert not ends.server.sessions_in_use


def test_a_message_longer_than_the_servers_ends_the_duologue_of_its_sender_only(world: World) -> None:
    ends = Ends(world)
    large, other = ends.joined(term_length=1 << 20), ends.joined()
    large.send(bytes(100_000), world.now_ns)
    assert ends.refused(large) == "bad message"
    other.send(b"on", world.now_ns)
    ends.until(lambda: other.receive() == b"on", "the other client's echo")
    assert ends.server.stats.bad_messages == 1


def test_a_server_and_a_client_end_with_their_client_of_the_driver(world: World) -> None:
    ends = Ends(world)
    client = ends.joined()
    ends.far[0].aeron.close()
    with pytest.raises(ClosedError, match="media driver was closed"):
        client.do_work(world.now_ns)
    ends.near.aeron.close()
    with pytest.raises(ClosedError, match="media driver was closed"):
        ends.server.do_work(world.now_ns)


def test_a_closed_server_ends_every_duologue_with_its_reason(world: World) -> None:
    ends = Ends(world)
    ends.joined()
    ends.server.close()
    assert ends.handler.reasons == ["the server was closed"]
    assert not ends.server.duologues
    ends.server.close()
    assert ends.handler.reasons == ["the server was closed"]
