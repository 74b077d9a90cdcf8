"""Peers that connect and stay silent, do not speak TLS, or arrive in large numbers do not lock others out."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import resource
import socket
import ssl
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import STALL_S, settle, soon, until

from mainstem import bymux
from mainstem.errors import ConfigurationError, MainstemError
from mainstem.jmux import aio as jmux
from mainstem.mux.pending_connections import ConnectionAdmission, PendingConnection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from mainstem.mux.sockets import Server

pytestmark = pytest.mark.system

SLOTS = 8
MANY = {"max_connections": SLOTS, "max_connections_per_address": SLOTS}

ALERT = b"\x15"  # the first byte of a TLS record with an alert


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    directory: Path = tmp_path_factory.mktemp("tls")
    cert, key = directory / "cert.pem", directory / "key.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
        f"-keyout {key} -out {cert}"
    )
    if subprocess.run(command.split(), capture_output=True, check=False).returncode:
        pytest.skip("openssl cannot make a certificate here")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    return server, ssl.create_default_context(cafile=str(cert))


@contextlib.asynccontextmanager
async def listening(protocol: Any, **more: Any) -> AsyncIterator[Server[Any]]:
    async def echo(stream: Any) -> None:
        async for data in stream:
            stream.write(data)

    async with await protocol.serve(echo, "127.0.0.1", 0, **more) as listener:
        yield listener


async def is_served(protocol: Any, port: int, context: ssl.SSLContext | None = None) -> bool:
    """Return whether an honest client gets its bytes echoed."""
    more = {} if context is None else {"ssl": context, "server_hostname": "localhost"}
    async with await protocol.connect("127.0.0.1", port, **more) as client:
        if protocol is jmux:
            return bool(await client.request(b"honest") == b"honest")
        async with await client.open_stream() as stream:
            stream.write(b"honest")
            return bool(await stream.readexactly(6) == b"honest")


@contextlib.contextmanager
def silent(port: int, count: int, *, address: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    """Open connections that send nothing."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), source_address=(address, 0)))
            for _ in range(count)
        ]


@pytest.mark.parametrize("protocol", [bymux.aio, jmux], ids=["bymux", "jmux"])
@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
async def test_silent_connections_are_replaced_by_active_ones(
    protocol: Any, with_tls: bool, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    server, client = tls if with_tls else (None, None)
    async with listening(protocol, ssl=server, **MANY) as listener:
        with silent(listener.port, SLOTS):
            await until(lambda: len(listener._admission) == SLOTS)
            assert await is_served(protocol, listener.port, client)
            assert listener.stats().connections_idle_closed == 1
            assert listener.stats().connections_refused == 0


@pytest.mark.parametrize("protocol", [bymux.aio, jmux], ids=["bymux", "jmux"])
@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
async def test_a_peer_must_send_its_first_byte_within_handshake_timeout(
    protocol: Any, with_tls: bool, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    server, _ = tls if with_tls else (None, None)
    async with listening(protocol, ssl=server, handshake_timeout=0.2) as listener:
        with silent(listener.port, 3):
            await until(
                lambda: listener.stats().connections_idle_closed + with_tls * 3 >= 3 and not len(listener._admission)
            )
        assert not listener._connections


@pytest.mark.parametrize("protocol", [bymux.aio, jmux], ids=["bymux", "jmux"])
async def test_a_peer_that_sent_data_has_no_deadline(protocol: Any) -> None:
    async with (
        listening(protocol, handshake_timeout=1.0) as listener,
        await protocol.connect("127.0.0.1", listener.port) as client,
    ):
        await until(lambda: len(listener._connections) == 1)
        # A silent peer that came later reaches its deadline, which is after the client's.
        with silent(listener.port, 1):
            await until(lambda: listener.stats().connections_idle_closed)
        await until(lambda: len(listener._admission) <= 1)
        assert len(listener._connections) == 1
        assert listener.stats().connections_idle_closed == 1
        if protocol is jmux:
            assert await client.request(b"later") == b"later"


@pytest.mark.parametrize("protocol", [bymux.aio, jmux], ids=["bymux", "jmux"])
async def test_handshakes_that_fail_leave_no_connection(
    protocol: Any, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    async with listening(protocol, ssl=tls[0], **MANY) as listener:
        for _ in range(3 * SLOTS):
            _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n" * 8)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        await until(lambda: not len(listener._admission))
        assert not listener._connections
        assert await is_served(protocol, listener.port, tls[1])


@pytest.mark.parametrize("protocol", [bymux.aio, jmux], ids=["bymux", "jmux"])
@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
async def test_connections_from_one_address_are_limited(
    protocol: Any, with_tls: bool, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    server, client = tls if with_tls else (None, None)
    async with listening(protocol, ssl=server, max_connections_per_address=2) as listener:
        with silent(listener.port, 5, address="127.0.0.2"), silent(listener.port, 2, address="127.0.0.3"):
            await until(lambda: listener.stats().connections_idle_closed == 3 and len(listener._admission) == 4)
            assert await is_served(protocol, listener.port, client)
            assert listener.stats().connections_idle_closed == 3


@pytest.mark.parametrize("limit", [{"max_connections": 2}, {"max_connections_per_address": 2}], ids=["all", "address"])
async def test_a_server_full_of_active_connections_refuses_the_next(limit: dict[str, int]) -> None:
    async with listening(jmux, **limit) as listener, contextlib.AsyncExitStack() as clients:
        for _ in range(2):
            client = await clients.enter_async_context(await jmux.connect("127.0.0.1", listener.port))
            assert await client.request(b"here") == b"here"
        with pytest.raises(MainstemError):
            await is_served(jmux, listener.port)
        assert listener.stats().connections_refused >= 1
        assert listener.stats().connections_idle_closed == 0


async def test_close_ends_handshakes_in_progress(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async with listening(bymux.aio, ssl=tls[0]) as listener:
        with silent(listener.port, 3) as sockets:
            await until(lambda: len(listener._admission) == 3)
            await listener.close()
            assert not len(listener._admission)
            for each in sockets:
                each.settimeout(STALL_S)
                with contextlib.suppress(ConnectionResetError):
                    # The end, or the alert that the TLS library sends before it.
                    assert each.recv(1) in (b"", ALERT)
                    while each.recv(64):
                        pass


@pytest.mark.parametrize("protocol", [bymux.aio, jmux], ids=["bymux", "jmux"])
@pytest.mark.parametrize("limit", [{"max_connections": 4}, {"max_connections_per_address": 4}], ids=["all", "address"])
async def test_reconnecting_does_not_raise_the_number_of_handlers(protocol: Any, limit: dict[str, int]) -> None:
    release = asyncio.Event()
    running = most = started = 0

    async def stubborn(stream: Any) -> None:
        nonlocal running, most, started
        running, started = running + 1, started + 1
        most = max(most, running)
        try:
            await asyncio.Event().wait()
        finally:
            await release.wait()
            running -= 1

    async with await protocol.serve(stubborn, "127.0.0.1", 0, **limit) as listener:
        for number in range(12):
            with contextlib.suppress(MainstemError):
                client = await protocol.connect("127.0.0.1", listener.port)
                stream = await (client.open_stream() if protocol is bymux.aio else client.open_session())
                stream.write(b"x")
                await stream.flush()
                if number < 4:
                    await until(lambda number=number: started == number + 1)  # type: ignore[misc]
                await (client.close(timeout=0) if protocol is bymux.aio else client.close())
        await until(lambda: not listener.stats().connections and listener.stats().connections_refused + started >= 12)
        assert (started, most) == (4, 4)
        assert len(listener._admission) == 4
        release.set()
        await until(lambda: not len(listener._admission))
        assert not listener._connections
        release.clear()
        client = await protocol.connect("127.0.0.1", listener.port)
        stream = await (client.open_stream() if protocol is bymux.aio else client.open_session())
        stream.write(b"x")
        await until(lambda: started == 5)
        release.set()
        await (client.close(timeout=0) if protocol is bymux.aio else client.close())


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
async def test_a_new_connection_waits_until_the_one_it_replaces_has_ended(
    with_tls: bool, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    server, client = tls if with_tls else (None, None)
    release, cleaning = asyncio.Event(), asyncio.Event()
    running = most = 0

    async def greet(connection: bymux.aio.Connection) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        # Serve streams meanwhile.
        connection.allow_streams(1)
        try:
            await connection.wait_closed()
        finally:
            cleaning.set()
            await release.wait()
            running -= 1

    async with listening(bymux.aio, ssl=server, max_connections=1, on_connection=greet) as listener:
        # A client that never sends.
        more = {} if client is None else {"ssl": client, "server_hostname": "localhost"}
        _, quiet = await asyncio.open_connection("127.0.0.1", listener.port, **more)
        with contextlib.closing(quiet):
            await until(lambda: running == 1)
            served = asyncio.ensure_future(is_served(bymux.aio, listener.port, client))
            await soon(cleaning.wait())
            await until(lambda: len(listener._admission) == 2)
            await settle()
            assert not served.done()
            release.set()
            assert await soon(served)
    assert most == 1


@pytest.mark.parametrize("protocol", [bymux.aio, jmux], ids=["bymux", "jmux"])
async def test_a_handshake_that_completes_after_the_stop_is_not_served(
    protocol: Any, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    executed = 0

    async def execute(stream: Any) -> None:
        nonlocal executed
        executed += 1

    listener = await protocol.serve(execute, "127.0.0.1", 0, ssl=tls[0])
    with socket.create_connection(("127.0.0.1", listener.port)) as late:
        late.setblocking(False)
        await until(lambda: len(listener._admission) == 1)
        if protocol is jmux:
            await listener.shutdown()
        else:
            listener._stop_listening()
        with pytest.raises(OSError):
            await asyncio.open_connection(sock=late, ssl=tls[1], server_hostname="localhost")
    assert not len(listener._admission)
    assert not listener._connections
    await listener.close()
    assert executed == 0


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
async def test_connections_accepted_during_a_stop_are_not_served(
    with_tls: bool, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    admission = ConnectionAdmission(lambda: pytest.fail("nothing is served"), bymux.Settings(), pytest.fail)
    accepted, peer = socket.socketpair()
    pending = PendingConnection(admission, accepted, tls[0] if with_tls else None)
    admission.stop()
    pending.start()
    assert accepted.fileno() == -1
    _, writer = await asyncio.open_unix_connection(sock=peer)
    pending.serve(writer.transport)  # like a handshake that completes in the same loop iteration as the stop
    assert writer.transport.is_closing()
    assert (len(admission), admission.places.refused, admission.tasks) == (0, 0, set())
    writer.close()


@pytest.mark.parametrize("name", ["max_connections", "max_connections_per_address", "handshake_timeout"])
@pytest.mark.parametrize("value", [0, -1, math.nan])
async def test_a_limit_below_its_minimum_is_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}={value}"):
        async with listening(bymux.aio, **{name: value}):
            pass


async def test_a_handshake_cancelled_before_it_began_is_counted_once(
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    timeout = 0.05
    admission = ConnectionAdmission(
        lambda: pytest.fail("nothing is served"), bymux.Settings(handshake_timeout=timeout), pytest.fail
    )
    accepted, peer = socket.socketpair()
    pending = PendingConnection(admission, accepted, tls[0])
    pending.start()
    (task,) = admission.tasks
    admission.stop()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await asyncio.sleep(timeout)  # a timer that started later than the handshake's expires after it
    assert (len(admission), admission.places.dropped_silent) == (0, 0)
    assert accepted.fileno() == -1
    peer.close()


@pytest.mark.parametrize("protocol", [bymux.aio, jmux], ids=["bymux", "jmux"])
async def test_a_silent_connection_gives_way_when_there_are_no_descriptors(protocol: Any) -> None:
    loop = asyncio.get_running_loop()
    async with listening(protocol) as server:
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
        await until(lambda: server.stats().connections >= 3)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The last descriptor is for the peer's socket, so that there is none for the server's.
        with socket.socket() as last, contextlib.ExitStack() as stack:
            last.setblocking(False)
            resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 1, limit[1]))
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limit)
            with contextlib.suppress(OSError):
                while True:
                    stack.enter_context(open(os.devnull))
            await loop.sock_connect(last, ("127.0.0.1", server.port))
            await until(lambda: server.stats().connections_idle_closed == 1)
        await silent[0][0].read()  # to its end
        for _, writer in silent:
            writer.transport.abort()
