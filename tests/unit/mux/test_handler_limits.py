"""A handler counts against the limits until it ends, whatever its peer does."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.mux_pair import bymux_pair, jmux_pair
from tests.support.waiting import settle, soon, until

from mainstem import bymux
from mainstem.jmux.aio_server import MAX_HANDLERS


class Stubborn:
    """A handler that ignores cancellation until ``release`` is set; it counts how many run at once."""

    def __init__(self) -> None:
        self.running = self.most = self.started = 0
        self.release = asyncio.Event()

    async def __call__(self, stream: Any) -> None:
        self.started += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.Event().wait()
        finally:
            await self.release.wait()
            self.running -= 1


async def test_aborted_bymux_streams_count_against_the_limit_until_their_handlers_end() -> None:
    handler = Stubborn()
    client, _ = bymux_pair(handler, settings=bymux.Settings(peer_streams=4))

    async def flood() -> None:
        for _ in range(40):
            stream = await client.open_stream()
            await settle()
            stream.abort()

    flooding = asyncio.ensure_future(flood())
    await until(lambda: handler.running == 4)
    await settle()
    assert handler.started == 4
    assert not client._protocol.engine.can_open  # back pressure: the client has no credit for a fifth stream
    handler.release.set()
    await soon(flooding)
    assert handler.most <= 4
    await until(lambda: handler.started == 40 and not handler.running)


async def test_unaccepted_streams_count_against_the_limit_after_the_peer_aborts_them() -> None:
    client, server = bymux_pair(settings=bymux.Settings(peer_streams=4))
    for _ in range(4):
        (await client.open_stream()).abort()
    await settle()
    assert not client._protocol.engine.can_open
    assert await server.accept_stream() is not None
    await settle()
    assert client._protocol.engine.can_open


async def test_aborted_jmux_sessions_count_against_the_limit_until_their_handlers_end() -> None:
    handler = Stubborn()
    client, endpoint = jmux_pair(handler)
    for _ in range(5 * MAX_HANDLERS):
        session = await client.open_session()
        session.write(b"x")
        await settle()
        session.abort()
        await settle()
    server = endpoint.servers[0]
    assert handler.running == MAX_HANDLERS
    assert len(server._waiting) <= MAX_HANDLERS
    waiting = await client.open_session()
    waiting.write(b"x")
    await settle()
    assert handler.started == MAX_HANDLERS
    handler.release.set()
    await until(lambda: handler.started == MAX_HANDLERS + 1)  # a session aborted before its turn has no handler
    assert handler.most == MAX_HANDLERS


async def test_jmux_requests_waiting_for_a_handler_can_be_retried_after_shutdown() -> None:
    handler = Stubborn()
    client, endpoint = jmux_pair(handler)
    for _ in range(MAX_HANDLERS):
        session = await client.open_session()
        session.write(b"x")
        await settle()
        session.abort()
        await settle()
    waiting = await client.open_session()
    waiting.write(b"x")
    await settle()
    shutting = asyncio.ensure_future(endpoint.servers[0].shutdown(asyncio.get_running_loop().time()))
    await settle()
    assert not shutting.done()
    handler.release.set()
    await shutting
    await settle()
    assert waiting.may_retry
    assert handler.started == MAX_HANDLERS


async def test_control_limit_does_not_cut_off_a_peer_that_reads() -> None:
    async def echo(stream: bymux.aio.Stream) -> None:
        async for data in stream:
            stream.write(data)

    client, _ = bymux_pair(echo, settings=bymux.Settings(control_limit=1))

    async def exchange() -> bytes:
        async with client.open_stream() as stream:
            stream.write(b"tide")
            stream.finish()
            return await stream.read(-1)

    assert await soon(asyncio.gather(*(exchange() for _ in range(200)))) == [b"tide"] * 200
