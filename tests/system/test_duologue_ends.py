"""How duologues end when their driver does, or their program: both APIs, both ends."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING

import pytest
from tests.support.duologues import client_settings, server_settings
from tests.support.interruptions import Alarm
from tests.support.live_driver import shared_memory
from tests.support.patience import STALL_S, soon, until
from tests.support.ports import free_port

from mainstem.aeron.agent import AgentRunner
from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.duologue import Client, Echo, Handler, Server, aio, connect, serve
from mainstem.duologue.client_core import Step
from mainstem.duologue.settings import reserved_sessions
from mainstem.errors import BackPressured, ClosedError, MainstemError, Timeout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.duologue import Duologue

pytestmark = pytest.mark.system


@pytest.fixture
def port() -> int:
    return free_port(128)


@pytest.fixture
def driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch(**reserved_sessions(), term_buffer_length=1 << 16) as made:
        yield made


@pytest.fixture
def aeron(driver: MediaDriver) -> Iterator[Aeron]:
    with Aeron.connect(driver.directory) as made:
        yield made


class Noting(Echo):
    """Notes why duologues end."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def on_close(self, duologue: Duologue, reason: str) -> None:
        self.reasons.append(reason)


def test_a_server_and_a_client_end_with_their_driver(driver: MediaDriver, aeron: Aeron, port: int) -> None:
    handler = Noting()
    with (
        serve(handler, settings=server_settings(port), aeron=aeron) as server,
        connect(settings=client_settings(port), aeron=aeron) as client,
    ):
        client.send("ECHO hello")
        assert client.receive(timeout=STALL_S) == b"ECHO hello"  # the server has opened the duologue too
        driver.close()
        with pytest.raises(MainstemError):
            client.receive(timeout=STALL_S)
        assert server.wait(STALL_S)
        assert isinstance(server.error, MainstemError)
        assert handler.reasons == [str(server.error)]


async def test_a_server_in_the_event_loop_ends_its_tasks_with_its_driver(
    driver: MediaDriver, aeron: Aeron, port: int
) -> None:
    reasons: list[str | None] = []

    async def talk(duologue: aio.Duologue) -> None:
        try:
            while True:
                await duologue.send(await duologue.receive())
        finally:
            reasons.append(duologue.reason)

    async with (
        aio.serve(talk, settings=server_settings(port), aeron=aeron) as server,
        aio.connect(settings=client_settings(port), aeron=aeron) as client,
    ):
        await client.send("ECHO hello")
        assert await client.receive(timeout=STALL_S) == b"ECHO hello"  # the server has opened the duologue too
        await asyncio.to_thread(driver.close)
        with pytest.raises(MainstemError):
            await client.receive(timeout=STALL_S)
        await soon(server.wait())
        assert isinstance(server.error, MainstemError)
        await until(lambda: reasons)
        assert reasons == [str(server.error)]


async def test_waiting_for_a_server_may_be_cancelled_and_ends_with_its_close(aeron: Aeron, port: int) -> None:
    server = await aio.serve(Echo(), settings=server_settings(port), aeron=aeron)
    given_up = asyncio.ensure_future(server.wait())
    waiting = asyncio.ensure_future(server.wait())
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    async with aio.connect(settings=client_settings(port), aeron=aeron) as client:
        await client.send("ECHO on")
        assert await client.receive(timeout=STALL_S) == b"ECHO on"
    assert not waiting.done()
    assert not await server.wait(timeout=0.01)
    await server.close()
    assert await server.wait(timeout=0.01)
    await soon(waiting)
    await soon(server.wait())
    assert server.error is None


async def test_what_is_not_open_says_so(aeron: Aeron, port: int) -> None:
    server = aio.Server(Echo(), server_settings(port), aeron=aeron)
    client = aio.Client(client_settings(port), aeron=aeron)
    for use in (lambda: server.broadcast("x"), lambda: server.core, lambda: client.core):
        with pytest.raises(ClosedError):
            use()
    with pytest.raises(ClosedError):
        await client.receive()
    await client.close()
    await server.close()


def test_a_closed_client_refuses_what_is_asked_of_it(aeron: Aeron, port: int) -> None:
    with serve(Echo(), settings=server_settings(port), aeron=aeron) as server:
        client = connect(settings=client_settings(port), aeron=aeron)
        client.send("ECHO 1")
        with pytest.raises(ZeroDivisionError):
            server.call(lambda core: 1 // 0).result(STALL_S)
        for wrong, error in ((5, TypeError), (None, TypeError), (bytes(8193), ValueError)):
            for send in (server.broadcast, client.send):
                with pytest.raises(error):
                    send(wrong)  # type: ignore[arg-type]
        while (message := client.poll()) is None:
            pass
        assert message == b"ECHO 1"
        client.close()
        client.close()
        with pytest.raises(ClosedError):
            client.send("ECHO 2")
        with pytest.raises(ClosedError):
            client.poll()
        assert list(client) == []


def test_what_is_dropped_without_a_close_warns_and_ends(aeron: Aeron, port: int) -> None:
    server = serve(Echo(), settings=server_settings(port), aeron=aeron)
    client = connect(settings=client_settings(port), aeron=aeron)
    runner = server._runner
    ends: list[Client | Server] = [server, client]
    del server, client
    for what in ("client of", "server on"):
        with pytest.warns(ResourceWarning, match=f"a duologue {what} 127.0.0.1 was not closed"):
            ends.pop()
    assert runner.join(STALL_S)


async def test_an_opening_that_is_cancelled_leaves_no_driver(port: int) -> None:
    for end in (aio.Server(Echo(), server_settings(port)), aio.Client(client_settings(port))):
        opening = asyncio.ensure_future(end._open())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert not end._life.is_connected


def test_a_call_is_run_before_the_server_ends_and_refused_afterwards(aeron: Aeron, port: int) -> None:
    with (
        serve(Echo(), settings=server_settings(port), aeron=aeron) as server,
        connect(settings=client_settings(port), aeron=aeron) as client,
    ):
        client.send("ECHO hello")
        assert client.receive(timeout=STALL_S) == b"ECHO hello"  # the server has opened the duologue too
        server.broadcast("good-bye")
        server.close()
        assert client.receive(timeout=STALL_S) == b"good-bye"
        with pytest.raises(ClosedError, match="the server has ended"):
            server.call(lambda core: core.duologues)
        with pytest.raises(ClosedError, match="the server has ended"):
            server.broadcast("too late")


def test_a_call_that_is_cancelled_is_not_run(aeron: Aeron, port: int) -> None:
    is_held, may_go_on = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        is_held.set()
        may_go_on.wait(STALL_S)

    with serve(Echo(), settings=server_settings(port), aeron=aeron) as server:
        holding = server.call(hold)
        assert is_held.wait(STALL_S)
        ran: list[object] = []
        cancelled = server.call(ran.append)
        assert cancelled.cancel()
        may_go_on.set()
        holding.result(STALL_S)
        failing = server.call(lambda _: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            failing.result(STALL_S)
        assert not ran


def test_a_server_that_cannot_bind_its_address_leaves_nothing(port: int) -> None:
    settings = replace(server_settings(port), address="192.0.2.77")
    with pytest.raises(MainstemError):
        serve(Echo(), settings=settings)
    assert not shared_memory()


def test_a_client_whose_key_is_none_leaves_nothing(port: int) -> None:
    with pytest.raises(MainstemError):
        connect(settings=client_settings(port, server_key=bytes(32)))
    assert not shared_memory()


def test_a_client_that_waits_in_vain_loses_nothing_by_it(aeron: Aeron, port: int) -> None:
    with (
        serve(Echo(), settings=server_settings(port), aeron=aeron),
        connect(settings=client_settings(port), aeron=aeron) as client,
    ):
        assert not client.is_encrypted
        assert client.max_message_length == 8192
        assert client.step is Step.TALK
        with pytest.raises(Timeout, match=r"no message came within 0\.01 s"):
            client.receive(timeout=0.01)
        client.send("ECHO on")
        assert client.receive(timeout=STALL_S) == b"ECHO on"


def test_a_server_that_does_not_read_is_an_error_to_who_sends(aeron: Aeron, port: int) -> None:
    class Pausing(Handler):
        def on_open(self, duologue: Duologue) -> None:
            duologue.paused = True

    with (
        serve(Pausing(), settings=server_settings(port), aeron=aeron),
        connect(settings=client_settings(port), aeron=aeron) as client,
        pytest.raises(BackPressured, match="the peer does not read"),
    ):
        deque(map(client.send, repeat(bytes(8192))), 0)


def test_a_server_whose_close_a_signal_handler_interrupted_can_be_closed(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = AgentRunner.close

    def interrupt(*arguments: object) -> bool:
        monkeypatch.setattr(AgentRunner, "close", close)
        raise Alarm

    server = serve(Echo(), settings=server_settings(port))
    driver = server._life._connection
    assert driver is not None
    monkeypatch.setattr(AgentRunner, "close", interrupt)
    with pytest.raises(Alarm):
        server.close()
    server.close()
    assert server.wait(timeout=0)
    assert driver.aeron.closed
