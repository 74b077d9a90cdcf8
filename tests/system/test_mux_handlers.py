"""Closing a listener ends its handlers and reports any that did not end."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.support.waiting import STALL_S, settle, soon, until, wait_for

from mainstem import bymux
from mainstem import jmux as jmux_blocking
from mainstem.errors import MainstemError
from mainstem.jmux import aio as jmux

pytestmark = pytest.mark.system


class Stubborn:
    """A handler that ignores its cancellation until it is released."""

    def __init__(self) -> None:
        self.started, self.release = asyncio.Event(), asyncio.Event()

    async def __call__(self, stream: Any) -> None:
        self.started.set()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                continue


@pytest.mark.parametrize("protocol", [bymux.aio, jmux])
async def test_close_waits_for_handlers_that_clean_up(protocol: Any) -> None:
    started, cleaning, go_on, cleaned = (asyncio.Event() for _ in range(4))

    async def slow(stream: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await go_on.wait()
            cleaned.set()

    listener = await protocol.serve(slow, "127.0.0.1", 0)
    client = await protocol.connect("127.0.0.1", listener.port)
    stream = await (client.open_stream() if protocol is bymux.aio else client.open_session())
    stream.write(b"x")
    await soon(started.wait())
    closing = asyncio.ensure_future(listener.close(timeout=STALL_S))
    await soon(cleaning.wait())
    await until(lambda: all(connection._ended.done() for connection in listener._connections))
    await settle()
    assert not closing.done()
    go_on.set()
    await soon(closing)
    assert cleaned.is_set()
    await client.close()


@pytest.mark.parametrize("protocol", [bymux.aio, jmux])
async def test_shutdown_does_not_wait_for_handlers_of_connections_that_have_ended(protocol: Any) -> None:
    handler = Stubborn()
    listener = await protocol.serve(handler, "127.0.0.1", 0, close_timeout=0.1)
    client = await protocol.connect("127.0.0.1", listener.port)
    stream = await (client.open_stream() if protocol is bymux.aio else client.open_session())
    stream.write(b"x")
    await soon(handler.started.wait())
    client.abort()
    await until(lambda: all(connection.over for connection in listener._connections))
    await soon(listener.shutdown())
    assert not handler.release.is_set()
    handler.release.set()


@pytest.mark.parametrize("protocol", [bymux.aio, jmux])
async def test_close_does_not_wait_forever(protocol: Any, caplog: pytest.LogCaptureFixture) -> None:
    handler = Stubborn()
    listener = await protocol.serve(handler, "127.0.0.1", 0)
    client = await protocol.connect("127.0.0.1", listener.port)
    stream = await (client.open_stream() if protocol is bymux.aio else client.open_session())
    stream.write(b"x")
    await soon(handler.started.wait())
    with caplog.at_level(logging.WARNING):
        await soon(listener.close(timeout=0.1))
    assert "did not end" in caplog.text
    handler.release.set()
    await client.close()


async def test_closing_a_server_cancels_handlers_whose_streams_have_ended() -> None:
    waits, cancelled = asyncio.Event(), asyncio.Event()

    async def after(stream: bymux.aio.Stream) -> None:
        await stream.read(-1)
        await stream.close()
        try:
            waits.set()
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    listener = await bymux.aio.serve(after, "127.0.0.1", 0)
    async with bymux.aio.connect("127.0.0.1", listener.port) as connection, await connection.open_stream() as stream:
        stream.finish()
        await stream.read(-1)
        await soon(waits.wait())
    await until(lambda: all(connection._ended.done() for connection in listener._connections))
    await settle()
    assert not cancelled.is_set()
    await listener.close()
    assert cancelled.is_set()


@pytest.mark.parametrize("protocol", [bymux.aio, jmux])
async def test_a_handler_can_shut_down_its_own_server(protocol: Any) -> None:
    ended = asyncio.get_running_loop().create_future()

    async def stop(stream: Any) -> None:
        await stream.read(1)
        try:
            await server.shutdown()
        except BaseException as error:
            ended.set_exception(error)
            raise
        ended.set_result(server.closed)

    server = await protocol.serve(stop, "127.0.0.1", 0)
    client = await protocol.connect("127.0.0.1", server.port)
    stream = await (client.open_stream() if protocol is bymux.aio else client.open_session())
    stream.write(b"x")
    assert await soon(ended)
    with pytest.raises(MainstemError):
        await soon(stream.read(-1))
    await client.close()


@pytest.mark.parametrize("protocol", [bymux, jmux_blocking], ids=["bymux", "jmux"])
def test_a_handler_in_a_thread_can_shut_down_its_own_server(protocol: Any) -> None:
    outcomes: list[BaseException | bool] = []

    def stop(stream: Any) -> None:
        stream.read(1)
        try:
            server.shutdown()
        except BaseException as error:
            outcomes.append(error)
            raise
        outcomes.append(server.closed)

    server = protocol.serve(stop, "127.0.0.1", 0)
    with protocol.connect("127.0.0.1", server.port) as client:
        stream = (client.open_stream if protocol is bymux else client.open_session)()
        stream.write(b"x")
        wait_for(lambda: outcomes)
        assert outcomes == [True]
        with pytest.raises(MainstemError):
            stream.read(-1)
        stream.abort()
    server.close()
