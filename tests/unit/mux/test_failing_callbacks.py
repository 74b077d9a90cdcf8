"""An exception in an event loop callback ends the connection. The loop alone would log it and leave the peer waiting."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import pytest
from tests.support.waiting import soon, until

from mainstem import bymux
from mainstem.errors import ConnectionLost
from mainstem.mux.pending_connections import ConnectionAdmission, PendingConnection
from mainstem.mux.sockets import ServerAddress
from mainstem.mux.transports import SocketTransport


def fail(*_: object) -> None:
    raise ZeroDivisionError("a fault")


async def echo(stream: bymux.aio.Stream) -> None:
    stream.write(await stream.read(-1))


@pytest.mark.parametrize("callback", ["dispatch", "flush"])
async def test_an_exception_in_a_step_ends_the_connection(
    callback: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connections: list[bymux.aio.Connection] = []

    async def spoil(connection: bymux.aio.Connection) -> None:
        connections.append(connection)
        monkeypatch.setattr(connection._protocol, callback, fail)

    async with (
        bymux.aio.serve(echo, "127.0.0.1", 0, on_connection=spoil) as listener,
        bymux.aio.connect("127.0.0.1", listener.port) as connection,
    ):
        await until(lambda: connections)
        stream = await connection.open_stream()
        stream.write(b"tide")
        with pytest.raises(ConnectionLost):
            await soon(stream.readexactly(1))
        await soon(connections[0].wait_closed())
    assert isinstance(connections[0].error, ConnectionLost)
    assert "ZeroDivisionError: a fault" in str(connections[0].error)
    assert [record.levelno for record in caplog.records if "a callback failed" in record.message] == [logging.ERROR]


async def test_an_exception_in_a_timer_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = bymux.Settings(ping_interval=0.01, ping_timeout=10.0)
    async with (
        bymux.aio.serve(echo, "127.0.0.1", 0) as listener,
        bymux.aio.connect("127.0.0.1", listener.port, settings=settings) as connection,
    ):
        monkeypatch.setattr(connection._protocol.engine, "handle_timeout", fail)
        await soon(connection.wait_closed())
    assert isinstance(connection.error, ConnectionLost)


class Broken:
    """A transport handler that fails when the transport is ready."""

    transport_ready = data_received = writing_resumed = staticmethod(fail)

    def __init__(self) -> None:
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def transport_lost(self, error: Exception | None) -> None:
        self.lost.set_result(error)


async def test_a_transport_that_fails_during_setup_reports_the_error() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    async with server:
        handler = Broken()
        transport = await SocketTransport.connected(
            lambda protocol: loop.create_connection(protocol, *server.sockets[0].getsockname())
        )
        with pytest.raises(ZeroDivisionError):
            transport.start(handler)
        assert isinstance(await soon(handler.lost), ZeroDivisionError)


async def test_connecting_raises_what_the_handler_raised_and_not_that_nobody_was_reached() -> None:
    raised = ConnectionLost("the handler lost another connection")

    class Losing(Broken):
        def transport_ready(self, _transport: object) -> None:
            raise raised

    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(ConnectionLost) as caught:
            await ServerAddress(host, port, None, None, None).connect(Losing(), 10.0)  # type: ignore[arg-type]
    assert caught.value is raised


async def test_an_error_of_the_server_is_not_taken_for_a_failed_handshake() -> None:
    def fail() -> Any:
        raise PermissionError("the application may not do that")

    refused: list[tuple[str, str, str]] = []
    admission = ConnectionAdmission(fail, bymux.Settings(), lambda *reasons: refused.append(reasons))
    near, far = socket.socketpair()
    with far:
        near.setblocking(False)
        PendingConnection(admission, near, None).start()
        (task,) = admission.tasks
        await asyncio.wait([task])
        assert isinstance(task.exception(), PermissionError)
        assert far.recv(1) == b""
    assert (refused, len(admission)) == ([], 0)
