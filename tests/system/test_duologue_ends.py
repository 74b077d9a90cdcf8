"""How duologues end when their driver or their process does: both APIs, both ends."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.support.duologues import HERE, calling, echo, echo_async, in_use, server_channels, serving
from tests.support.interruptions import Alarm
from tests.support.live_driver import shared_memory, wait_for
from tests.support.ports import free_port
from tests.support.waiting import STALL_S, soon, until

from mainstem.aeron.agent import AgentRunner
from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.duologue import Client, Server, aio, connect, serve
from mainstem.duologue.channels import ClientChannels
from mainstem.duologue.settings import reserved_sessions
from mainstem.errors import (
    Aborted,
    ClosedError,
    ConnectionLost,
    ConnectRefused,
    Delivery,
    MainstemError,
    Timeout,
)

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


@pytest.mark.parametrize("read", [1, 3])
def test_a_client_learns_that_the_handler_left_messages_unread(aeron: Aeron, port: int, read: int) -> None:
    may_end = threading.Event()

    def handler(duologue: Duologue) -> None:
        for _ in range(read):
            duologue.receive(timeout=STALL_S)
        assert may_end.wait(STALL_S)

    with serve(handler, **serving(port), aeron=aeron):
        client = connect(**calling(port), aeron=aeron)
        for number in range(3):
            client.send(b"%d" % number, timeout=STALL_S)
        may_end.set()
        with pytest.raises(ClosedError, match="ended the duologue"):
            client.receive(timeout=STALL_S)
        assert client.error is None  # the server has sent everything
        if read == 3:
            client.close(timeout=STALL_S)
        else:
            with pytest.raises(Aborted, match="without reading the last 2 of 3 messages"):
                client.close(timeout=STALL_S)


async def test_a_task_learns_that_the_handler_left_messages_unread(aeron: Aeron, port: int) -> None:
    may_end = asyncio.Event()

    async def handler(duologue: aio.Duologue) -> None:
        await duologue.receive(timeout=STALL_S)
        await may_end.wait()

    async with aio.serve(handler, **serving(port), aeron=aeron):
        client = await aio.connect(**calling(port), aeron=aeron)
        await client.send(b"read", timeout=STALL_S)
        await client.send(b"unread", timeout=STALL_S)
        may_end.set()
        with pytest.raises(ClosedError, match="ended the duologue"):
            await client.receive(timeout=STALL_S)
        with pytest.raises(Aborted, match="without reading the last 1 of 2 messages"):
            await client.close(timeout=STALL_S)


def test_server_and_client_end_with_their_driver(driver: MediaDriver, aeron: Aeron, port: int) -> None:
    errors: list[object] = []

    def noting(duologue: Duologue) -> None:
        try:
            echo(duologue)
        finally:
            errors.append(duologue.error)

    with (
        serve(noting, **serving(port), aeron=aeron) as server,
        connect(**calling(port), aeron=aeron) as client,
    ):
        client.send("ECHO hello")
        assert client.receive(timeout=STALL_S) == b"ECHO hello"  # the server has opened the duologue too
        driver.close()
        with pytest.raises(MainstemError):
            client.receive(timeout=STALL_S)
        server.wait(STALL_S)
        assert isinstance(server.error, MainstemError)
        wait_for(lambda: errors)
        assert errors == [server.error]


async def test_an_asyncio_server_ends_its_tasks_with_its_driver(driver: MediaDriver, aeron: Aeron, port: int) -> None:
    errors: list[object] = []

    async def talk(duologue: aio.Duologue) -> None:
        try:
            while True:
                await duologue.send(await duologue.receive())
        finally:
            errors.append(duologue.error)

    async with (
        aio.serve(talk, **serving(port), aeron=aeron) as server,
        aio.connect(**calling(port), aeron=aeron) as client,
    ):
        await client.send("ECHO hello")
        assert await client.receive(timeout=STALL_S) == b"ECHO hello"  # the server has opened the duologue too
        await asyncio.to_thread(driver.close)
        with pytest.raises(MainstemError):
            await client.receive(timeout=STALL_S)
        await soon(server.wait())
        assert isinstance(server.error, MainstemError)
        await until(lambda: errors)
        assert errors == [server.error]


async def test_waiting_for_a_server_can_be_cancelled_and_ends_with_its_close(aeron: Aeron, port: int) -> None:
    server = await aio.serve(echo_async, **serving(port), aeron=aeron)
    given_up = asyncio.ensure_future(server.wait())
    waiting = asyncio.ensure_future(server.wait())
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    async with aio.connect(**calling(port), aeron=aeron) as client:
        await client.send("ECHO on")
        assert await client.receive(timeout=STALL_S) == b"ECHO on"
    assert not waiting.done()
    with pytest.raises(Timeout, match=r"wait for the end of the server: timed out after 0\.01 s"):
        await server.wait(timeout=0.01)
    await server.close()
    await server.wait(timeout=0.01)
    await soon(waiting)
    await soon(server.wait())
    assert server.error is None


async def test_using_an_unopened_resource_is_an_error(aeron: Aeron, port: int) -> None:
    server = aio.Server.made(echo_async, server_channels(port), aeron=aeron)
    client = aio.Client.made(ClientChannels(HERE, port), aeron=aeron)
    for use in (lambda: server.broadcast("x"), server.stats, lambda: client.max_message_length):
        with pytest.raises(ClosedError):
            use()
    with pytest.raises(ClosedError):
        await client.receive()
    await client.close()
    await server.close()


def test_a_closed_client_refuses_calls(aeron: Aeron, port: int) -> None:
    with serve(echo, **serving(port), aeron=aeron) as server:
        client = connect(**calling(port), aeron=aeron)
        client.send("ECHO 1")
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


def test_dropping_an_unclosed_resource_warns_and_closes(aeron: Aeron, port: int) -> None:
    server = serve(echo, **serving(port), aeron=aeron)
    client = connect(**calling(port), aeron=aeron)
    runner = server._runner
    ends: list[Client | Server] = [server, client]
    del server, client
    for what in ("client of", "server on"):
        with pytest.warns(ResourceWarning, match=f"a duologue {what} 127.0.0.1:{port} was not closed"):
            ends.pop()
    assert runner.join(STALL_S)


async def test_a_cancelled_open_leaves_no_driver(port: int) -> None:
    for end in (aio.Server.made(echo_async, server_channels(port)), aio.Client.made(ClientChannels(HERE, port))):
        opening = asyncio.ensure_future(end._open())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert end.closed
    assert not shared_memory()


def test_broadcasts_work_until_close(aeron: Aeron, port: int) -> None:
    with (
        serve(echo, **serving(port), aeron=aeron) as server,
        connect(**calling(port), aeron=aeron) as client,
    ):
        client.send("ECHO hello")
        assert client.receive(timeout=STALL_S) == b"ECHO hello"  # the server has opened the duologue too
        server.broadcast("good-bye")
        server.close()
        assert client.receive(timeout=STALL_S) == b"good-bye"
        with pytest.raises(ClosedError, match="the server has ended"):
            server.broadcast("too late")


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared driver", "own drivers"])
def test_a_client_learns_at_once_that_its_server_was_closed(aeron: Aeron, port: int, is_shared: bool) -> None:
    resources = {"aeron": aeron} if is_shared else {}
    server = serve(echo, **serving(port), **resources)
    with connect(**calling(port), **resources) as client:
        client.send("ECHO hello")
        assert client.receive(timeout=STALL_S) == b"ECHO hello"
        server.close()
        begun = time.monotonic()
        with pytest.raises(ClosedError, match="ended the duologue"):
            client.receive(timeout=STALL_S)
        assert time.monotonic() - begun < 4.0, "less than the drivers' timeouts"
        for _ in range(2):
            with pytest.raises(ClosedError, match="ended the duologue"):
                client.send("ECHO too late")


def test_messages_sent_before_close_arrive(port: int) -> None:
    received: list[bytes] = []
    with serve(received.extend, **serving(port)) as server:
        with connect(**calling(port)) as client:
            for number in range(2_000):
                client.send(b"%d" % number + bytes(100))
        wait_for(lambda: in_use(server) == (0, 0))
    assert received == [b"%d" % number + bytes(100) for number in range(2_000)]


def test_close_reports_that_the_server_did_not_confirm(aeron: Aeron, port: int) -> None:
    is_over = threading.Event()
    with serve(lambda _: is_over.wait(STALL_S), **serving(port), aeron=aeron):
        client = connect(**calling(port), aeron=aeron)
        for _ in range(400):  # more than the server accepts for a handler that does not receive
            client.send(b"unread")
        with pytest.raises(ConnectionLost, match=r"did not confirm within 0\.2 s .* all 400 messages") as lost:
            client.close(timeout=0.2)
        assert lost.value.delivery is Delivery.UNKNOWN
        assert client.closed
        client.close()
        is_over.set()


def test_shutdown_rejects_new_clients_and_lets_handlers_finish(aeron: Aeron, port: int) -> None:
    with (
        serve(echo, **serving(port), aeron=aeron) as server,
        connect(**calling(port), aeron=aeron) as client,
    ):
        client.send("ECHO 1")
        assert client.receive(STALL_S) == b"ECHO 1"
        shutting_down = threading.Thread(target=server.shutdown)
        shutting_down.start()
        with pytest.raises(ConnectRefused, match="server shutting down"):
            connect(**calling(port), aeron=aeron)
        client.send("ECHO 2")
        assert client.receive(STALL_S) == b"ECHO 2"
        assert not server.closed
        client.close()
        shutting_down.join(STALL_S)
        assert server.closed


def test_shutdown_times_out(aeron: Aeron, port: int) -> None:
    ended: list[object] = []
    started = threading.Event()

    def patient(duologue: Duologue) -> None:
        started.set()
        try:
            duologue.receive()
        finally:
            ended.append(duologue.closed)

    with (
        serve(patient, **serving(port), aeron=aeron) as server,
        connect(**calling(port), aeron=aeron) as client,
    ):
        assert started.wait(STALL_S)
        server.shutdown(timeout=0.05)
        assert server.closed
        assert ended == [True]
        with pytest.raises(ClosedError):
            client.receive(STALL_S)


async def test_asyncio_shutdown_lets_handlers_finish(aeron: Aeron, port: int) -> None:
    server = await aio.serve(echo_async, **serving(port), aeron=aeron)
    async with aio.connect(**calling(port), aeron=aeron) as client:
        await client.send("ECHO 1")
        assert await client.receive(STALL_S) == b"ECHO 1"
        shutting_down = asyncio.ensure_future(server.shutdown())
        with pytest.raises(ConnectRefused, match="server shutting down"):
            await aio.connect(**calling(port), aeron=aeron)
        await client.send("ECHO 2")
        assert await client.receive(STALL_S) == b"ECHO 2"
    await soon(shutting_down)
    assert server.closed


def test_an_abort_raises_at_the_other_end(aeron: Aeron, port: int) -> None:
    errors: list[object] = []

    def noting(duologue: Duologue) -> None:
        try:
            if duologue.receive() == b"abort":
                duologue.abort()
            duologue.receive()
        except MainstemError as error:
            errors.append(error)
            raise

    with serve(noting, **serving(port), aeron=aeron) as server:
        client = connect(**calling(port), aeron=aeron)
        client.send(b"wait")
        wait_for(lambda: server.stats().duologues_joined == 1)
        client.abort()
        assert client.closed
        client.close()
        wait_for(lambda: errors)
        assert isinstance(errors[0], Aborted)
        with connect(**calling(port), aeron=aeron) as client:
            client.send(b"abort")
            with pytest.raises(Aborted):
                client.receive(STALL_S)
            assert isinstance(client.error, Aborted)
        with connect(**calling(port), aeron=aeron) as client:
            client.send(b"wait")
            wait_for(lambda: server.stats().duologues_joined == 3)
            server.abort()
            assert server.closed
            with pytest.raises(Aborted):
                client.receive(STALL_S)


def test_an_aborted_server_releases_everything_in_a_shared_client(driver: MediaDriver, aeron: Aeron, port: int) -> None:
    with Aeron.connect(driver.directory) as other, serve(echo, **serving(port), aeron=aeron) as server:
        client = connect(**calling(port), aeron=other)
        client.send("ECHO hello")
        client.receive(STALL_S)
        server.abort()
        assert in_use(server) == (0, 0)
        assert aeron.stats().subscriptions == aeron.stats().publications == ()
        client.abort()


@pytest.mark.parametrize("way", ["close", "abort"])
async def test_a_cancelled_server_close_releases_everything_in_a_shared_client(
    driver: MediaDriver, aeron: Aeron, port: int, way: str
) -> None:
    with Aeron.connect(driver.directory) as other:
        server = await aio.serve(echo_async, **serving(port), aeron=aeron)
        client = await aio.connect(**calling(port), aeron=other)
        await client.send("ECHO hello")
        await client.receive(STALL_S)
        if way == "abort":
            server.abort()
        closing = asyncio.ensure_future(server.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await until(lambda: not server._agent.is_connected)
        assert in_use(server) == (0, 0)
        assert aeron.stats().subscriptions == aeron.stats().publications == ()
        client.abort()
        await client.close()


def test_an_exception_in_the_with_block_aborts_the_client(aeron: Aeron, port: int) -> None:
    errors: list[object] = []

    def noting(duologue: Duologue) -> None:
        try:
            echo(duologue)
        finally:
            errors.append(duologue.error)

    with serve(noting, **serving(port), aeron=aeron):
        client = connect(**calling(port), aeron=aeron)
        client.send("ECHO half of it")
        assert client.receive(STALL_S) == b"ECHO half of it"
        with pytest.raises(ZeroDivisionError), client:
            raise ZeroDivisionError
        wait_for(lambda: errors)
        assert isinstance(errors[0], Aborted)


def test_a_server_that_cannot_bind_leaves_nothing_open(port: int) -> None:
    with pytest.raises(MainstemError):
        serve(echo, **serving(port, host="192.0.2.77"))
    assert not shared_memory()


def test_a_client_with_an_invalid_key_leaves_nothing_open(port: int) -> None:
    with pytest.raises(MainstemError):
        connect(**calling(port, server_key=bytes(32)))
    assert not shared_memory()


def test_a_timed_out_receive_loses_nothing(aeron: Aeron, port: int) -> None:
    with (
        serve(echo, **serving(port), aeron=aeron),
        connect(**calling(port), aeron=aeron) as client,
    ):
        assert not client.is_encrypted
        assert client.max_message_length == 8192
        with pytest.raises(Timeout, match=r"wait for a message: timed out after 0\.01 s"):
            client.receive(timeout=0.01)
        client.send("ECHO on")
        assert client.receive(timeout=STALL_S) == b"ECHO on"


def test_sending_a_message_without_room_can_time_out(aeron: Aeron, port: int) -> None:
    is_over = threading.Event()

    def lazy(duologue: Duologue) -> None:
        is_over.wait(STALL_S)
        for message in duologue:
            duologue.send(b"%d" % len(message))

    with (
        serve(lazy, **serving(port), aeron=aeron),
        connect(**calling(port), aeron=aeron) as client,
    ):
        sent, full_since = 0, time.monotonic()
        while time.monotonic() < full_since + 0.3:  # the server accepts what it can
            if client.try_send(bytes(8192)):
                sent, full_since = sent + 1, time.monotonic()
        with pytest.raises(Timeout, match="wait for room"):
            client.send(bytes(8192), timeout=0.1)
        is_over.set()
        lengths = [client.receive(STALL_S) for _ in range(sent)]
        assert set(lengths) == {b"8192"}
        client.send(b"last")
        assert client.receive(STALL_S) == b"4"


def test_a_handler_waits_for_a_slow_client(aeron: Aeron, port: int) -> None:
    messages = [b"%d" % number + bytes(8000) for number in range(100)]

    def pour(duologue: Duologue) -> None:
        for message in messages:
            duologue.send(message)

    with (
        serve(pour, **serving(port), aeron=aeron) as server,
        connect(**calling(port), aeron=aeron) as client,
    ):
        wait_for(lambda: server.stats().duologues_joined)
        time.sleep(0.2)  # the window fills up
        assert list(client) == messages


async def test_a_task_waits_for_a_slow_client(aeron: Aeron, port: int) -> None:
    messages = [b"%d" % number + bytes(8000) for number in range(100)]

    async def pour(duologue: aio.Duologue) -> None:
        for message in messages:
            await duologue.send(message)

    async with (
        aio.serve(pour, **serving(port), aeron=aeron),
        aio.connect(**calling(port), aeron=aeron) as client,
    ):
        await asyncio.sleep(0.2)  # the window fills up
        assert await soon(_all(client)) == messages


async def _all(client: aio.Client) -> list[bytes]:
    return [message async for message in client]


def test_an_interrupted_server_close_can_be_repeated(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    close = AgentRunner.close

    def interrupt(*arguments: object) -> bool:
        monkeypatch.setattr(AgentRunner, "close", close)
        raise Alarm

    server = serve(echo, **serving(port))
    driver = server._agent._connection
    assert driver is not None
    monkeypatch.setattr(AgentRunner, "close", interrupt)
    with pytest.raises(Alarm):
        server.close()
    server.close()
    server.wait(timeout=0)
    assert driver.aeron.closed
