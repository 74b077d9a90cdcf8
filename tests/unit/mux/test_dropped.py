"""Objects dropped without being closed: they warn, are ended, and leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.cancellation import descriptors
from tests.support.mux_pair import bymux_pair, jmux_pair
from tests.support.waiting import settle, until, wait_for

from mainstem import bymux, jmux
from mainstem.errors import ClosedError, MainstemError

if TYPE_CHECKING:
    from mainstem.mux.aio_stream import BaseStream

WARNS = "was dropped without being closed"


async def echo(stream: BaseStream) -> None:
    async for data in stream:
        stream.write(data)
        await stream.drain()


def block(stream: Any) -> None:
    stream.read(-1)


async def test_timed_out_calls_leave_no_waiters() -> None:
    client, server = bymux_pair(settings=bymux.Settings(peer_streams=1, close_timeout=0.1))
    await settle()
    async with client.open_stream():
        for _ in range(100):
            for wait in (client.open_stream, client.accept_stream):
                with pytest.raises(TimeoutError):
                    await wait(timeout=0.0001)
                waiting = asyncio.ensure_future(_awaited(wait()))
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
        assert not client._protocol.openers._waiters
        assert not client._protocol.accepters._waiters
    await asyncio.gather(client.close(), server.close())


async def _awaited(opening: Any) -> Any:
    return await opening


async def test_garbage_collected_bymux_streams_are_aborted() -> None:
    whole: list[bytes] = []

    async def handler(stream: bymux.aio.Stream) -> None:
        whole.append(await stream.read(-1))

    client, server = bymux_pair(handler)
    await settle()
    for _ in range(100):
        stream = await client.open_stream()
        stream.write(b"unfinished")
        await stream.flush()
        with pytest.warns(ResourceWarning, match=WARNS):
            del stream
    await until(lambda: not client._protocol.engine.streams and not server._protocol.engine.streams)
    assert not whole, "the handlers were cancelled, or read Aborted"
    await asyncio.gather(client.close(), server.close())


async def test_a_garbage_collected_stream_that_was_finished_is_sent_completely() -> None:
    received: list[bytes] = []

    async def handler(stream: bymux.aio.Stream) -> None:
        received.append(await stream.read(-1))
        stream.write(b"nobody reads this")

    client, server = bymux_pair(handler, settings=bymux.Settings(stream_window=100))
    stream = await client.open_stream()
    stream.write(bytes(1000))
    stream.finish()
    with pytest.warns(ResourceWarning, match=WARNS):
        del stream
    await until(lambda: received and not client._protocol.engine.streams)
    assert received == [bytes(1000)]
    await asyncio.gather(client.close(), server.close())


async def test_a_closed_stream_may_be_garbage_collected() -> None:
    async def handler(stream: bymux.aio.Stream) -> None:
        await stream.read(-1)
        stream.write(bytes(1000))
        await stream.flush()

    client, server = bymux_pair(handler)
    for _ in range(10):
        async with client.open_stream() as stream:
            stream.write(b"x")
        del stream
    await until(lambda: not client._protocol.engine.streams and not server._protocol.engine.streams)
    await asyncio.gather(client.close(), server.close())


async def test_garbage_collected_jmux_sessions_free_their_ids() -> None:
    client, endpoint = jmux_pair(echo)
    for _ in range(300):
        session = await client.open_session()
        session.write(b"unfinished")
        await session.flush()
        with pytest.warns(ResourceWarning, match=WARNS):
            del session
    await until(lambda: not client._pool.connections[0].engine.busy and not endpoint.servers[0].tasks)
    assert len(endpoint.servers) == 1
    await client.close()


async def test_streams_keep_their_connection_alive() -> None:
    """An application may drop the connection of a stream, or the client of a session, before the stream or session."""
    client, server = bymux_pair(echo)
    client._protocol.view = None  # as `connect` leaves it
    stream = await client.open_stream()
    del client
    gc.collect()
    async with stream:
        stream.write(b"tide")
        assert await stream.read() == b"tide"
    jmux_client, _ = jmux_pair(echo)
    session = await jmux_client.open_session()
    del jmux_client
    gc.collect()
    async with session:
        session.write(b"tide")
        session.finish()
        assert await session.read(-1) == b"tide"
    await stream.connection.close()
    await server.close()
    await session._client.close()


@pytest.mark.parametrize("family", [bymux.aio, jmux.aio], ids=["bymux", "jmux"])
async def test_a_garbage_collected_connection_closes_its_file_descriptors(family: Any) -> None:
    async with family.serve(echo, "127.0.0.1", 0) as server:
        await (await family.connect("127.0.0.1", server.port)).close()
        await until(lambda: not server._connections)
        before = descriptors()
        for _ in range(10):
            client = await family.connect("127.0.0.1", server.port)
            with pytest.warns(ResourceWarning, match=WARNS):  # noqa: PT031
                del client
                gc.collect()
        await until(lambda: descriptors() == before)


@pytest.mark.parametrize("family", [bymux, jmux], ids=["bymux", "jmux"])
def test_garbage_collected_blocking_objects_stop_their_threads(family: Any) -> None:
    before, threads = descriptors(), threading.active_count()
    server = family.serve(block, "127.0.0.1", 0)
    client = family.connect("127.0.0.1", server.port)
    with pytest.warns(ResourceWarning, match=WARNS):  # noqa: PT031
        del client
        gc.collect()
    with pytest.warns(ResourceWarning, match=WARNS):  # noqa: PT031
        del server
        gc.collect()
    wait_for(lambda: threading.active_count() == threads)
    wait_for(lambda: descriptors() == before)


@pytest.mark.parametrize("family", [bymux, jmux], ids=["bymux", "jmux"])
def test_blocking_streams_keep_their_connection_alive(family: Any) -> None:
    with family.serve(block, "127.0.0.1", 0) as server:
        client = family.connect("127.0.0.1", server.port)
        stream = client.open_stream() if family is bymux else client.open_session()
        del client
        gc.collect()
        stream.write(b"tide")
        stream.finish()
        assert stream.read(-1) == b""
        stream.close()
        with pytest.warns(ResourceWarning, match=WARNS):  # noqa: PT031
            del stream
            gc.collect()


async def test_streams_opened_by_the_peer_on_a_garbage_collected_connection_are_refused() -> None:
    client, server = bymux_pair()
    client._protocol.view = None
    stream = await server.open_stream()
    with pytest.warns(ResourceWarning, match=WARNS):  # noqa: PT031
        del client
        gc.collect()
    with pytest.raises(MainstemError):
        await stream.read()
    assert server.closed
    with pytest.raises((ClosedError, MainstemError)):
        stream.write(b"x")
    stream.abort()
