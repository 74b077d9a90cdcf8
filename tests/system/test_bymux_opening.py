"""asyncio's connect, serve, and attach can be awaited or entered with ``async with``."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.waiting import soon

from mainstem import bymux

pytestmark = pytest.mark.system


async def echo(stream: bymux.aio.Stream) -> None:
    async for data in stream:
        stream.write(data)
        await stream.drain()


async def test_an_opening_may_be_awaited_or_entered() -> None:
    server = await bymux.aio.serve(echo, "127.0.0.1", 0)
    connection = await bymux.aio.connect("127.0.0.1", server.port)
    assert await connection.ping() >= 0
    await connection.close()
    await connection.close()
    assert connection.closed
    async with bymux.aio.connect("127.0.0.1", server.port) as entered:
        assert await entered.ping() >= 0
        assert not entered.closed
    assert entered.closed
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    async with bymux.aio.attach(reader, writer, role=bymux.Role.PROACTIVE) as attached:
        assert await attached.ping() >= 0
    waiting = asyncio.ensure_future(server.wait())
    await server.shutdown()
    await soon(waiting)
    async with bymux.aio.serve(echo, "127.0.0.1", 0) as other:
        assert not other.closed
    assert other.closed
    other.abort()


async def test_an_opening_that_is_never_awaited_warns() -> None:
    with pytest.warns(RuntimeWarning, match="bymux.aio.connect was never awaited"):
        bymux.aio.connect("127.0.0.1", 1)


async def test_shutdown_lets_handlers_finish_and_sends_what_they_wrote() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(stream: bymux.aio.Stream) -> None:
        begun.set()
        await go.wait()
        stream.write(bytes(1_000_000))

    server = await bymux.aio.serve(slow, "127.0.0.1", 0)
    async with bymux.aio.connect("127.0.0.1", server.port) as connection:
        stream = await connection.open_stream()
        await soon(begun.wait())
        ending = asyncio.ensure_future(server.shutdown())
        await asyncio.sleep(0.05)
        assert not ending.done()
        go.set()
        assert len(await soon(stream.read(-1))) == 1_000_000
        await soon(ending)
    assert server.closed


async def test_shutdown_cancels_handlers_after_the_timeout() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def endless(_: bymux.aio.Stream) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    server = await bymux.aio.serve(endless, "127.0.0.1", 0)
    async with bymux.aio.connect("127.0.0.1", server.port) as connection:
        _stream = await connection.open_stream()
        await soon(begun.wait())
        await soon(server.shutdown(timeout=0.05))
        assert cancelled.is_set()
        await soon(connection.wait_closed())
