"""An exception in an event loop callback ends the connection. The loop alone would log it and leave the peer waiting."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.support.waiting import soon

from mainstem import bymux
from mainstem.errors import ConnectionLost
from mainstem.mux.transports import SocketTransport, UnconnectedProtocol


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
        monkeypatch.setattr(connection._runner, callback, fail)

    async with (
        bymux.aio.serve(echo, "127.0.0.1", 0, on_connection=spoil) as listener,
        bymux.aio.connect("127.0.0.1", listener.port) as connection,
    ):
        async with asyncio.timeout(10):
            while not connections:
                await asyncio.sleep(0.01)
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
        monkeypatch.setattr(connection._runner.engine, "handle_timeout", fail)
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
    logged: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: logged.append(context))
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    async with server:
        handler = Broken()
        await loop.create_connection(
            lambda: UnconnectedProtocol(SocketTransport(handler).take_over), *server.sockets[0].getsockname()
        )
        assert isinstance(await soon(handler.lost), ZeroDivisionError)
    assert len(logged) == 1
