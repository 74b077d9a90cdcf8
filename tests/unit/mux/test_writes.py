"""A writer learns of failed writes at close at the latest, with the number of bytes that were not sent."""

# ruff: noqa: PT012 - the tests check how a block is left

from __future__ import annotations

import asyncio
import math

import pytest
from tests.support.mux_pair import bymux_pair, jmux_pair
from tests.support.waiting import settle, soon, until

from mainstem import bymux
from mainstem._internal.loop_thread import LoopThread
from mainstem.errors import Aborted, ClosedError, ConnectionLost, MainstemError, Timeout
from mainstem.jmux import aio as jmux

WINDOW = bymux.Settings(stream_window=1000)


async def stop_reading(stream: bymux.aio.Stream) -> None:
    await stream.readexactly(1)
    stream.stop_read()
    await asyncio.Event().wait()


async def hold(stream: object) -> None:
    await asyncio.Event().wait()


async def test_leaving_the_block_after_the_peer_stopped_reading_raises_with_unsent() -> None:
    client, _ = bymux_pair(stop_reading, settings=WINDOW)
    with pytest.raises(ClosedError, match="bytes were not sent") as caught:
        async with await client.open_stream() as stream:
            await settle()
            stream.write(bytes(50_000))
            await settle()
    assert 0 < caught.value.unsent < 50_000


async def test_flush_finish_and_close_raise_if_the_peer_stopped_reading_earlier() -> None:
    client, _ = bymux_pair(stop_reading, settings=WINDOW)
    stream = await client.open_stream()
    await settle()
    stream.write(bytes(50_000))
    await settle()
    for verb in ("flush", "finish", "flush", "close"):
        with pytest.raises(ClosedError, match="bytes were not sent"):
            if verb == "finish":
                stream.finish()
            else:
                await soon(getattr(stream, verb)())
    await soon(stream.close())  # every failure was already reported


@pytest.mark.parametrize("how", ["lost", "closed by the server"])
async def test_leaving_the_block_after_the_connection_ended_raises(how: str) -> None:
    client, server = bymux_pair(hold, settings=WINDOW)
    with pytest.raises(ConnectionLost) as caught:
        async with await client.open_stream() as stream:
            await settle()
            stream.write(bytes(5000))
            await settle()
            if how == "lost":
                assert client._protocol.transport is not None
                client._protocol.transport.lose(OSError("reset"))  # type: ignore[attr-defined]
            else:
                server._protocol.end()
            await settle()
    assert caught.value.unsent == 4000
    assert caught.value.delivery == "partial"


async def test_delivery_is_unknown_if_all_was_sent_and_none_if_nothing_was() -> None:
    client, server = bymux_pair(hold, settings=WINDOW)
    sent, unsent = await client.open_stream(), await client.open_stream()
    await settle()
    sent.write(b"x")
    await settle()
    server._protocol.end()
    await settle()
    fresh_client, fresh_server = bymux_pair(hold, settings=bymux.Settings(stream_window=0))
    unsent = await fresh_client.open_stream()
    unsent.write(b"abc")
    await settle()
    fresh_server._protocol.end()
    await settle()
    for stream, delivery, count in ((sent, "unknown", 0), (unsent, "none", 3)):
        with pytest.raises(ConnectionLost) as caught:
            await stream.close()
        assert caught.value.delivery == delivery
        assert caught.value.unsent == count


async def test_delivery_is_none_for_a_stream_that_was_never_written() -> None:
    client, server = bymux_pair(hold)
    stream = await client.open_stream()
    await settle()
    server._protocol.end()
    await settle()
    with pytest.raises(ConnectionLost) as caught:
        stream.write(b"x")
    assert caught.value.delivery == "none"


async def test_a_failure_is_not_raised_twice_and_does_not_replace_another_error() -> None:
    client, server = bymux_pair(hold, settings=WINDOW)
    with pytest.raises(KeyError):
        async with await client.open_stream() as stream:
            stream.write(bytes(5000))
            server._protocol.end()
            await settle()
            raise KeyError
    client, server = bymux_pair(hold, settings=WINDOW)
    async with await client.open_stream() as stream:
        stream.write(bytes(5000))
        server._protocol.end()
        await settle()
        with pytest.raises(ConnectionLost):
            await stream.drain()


async def test_a_cleanly_closed_stream_raises_nothing_when_the_connection_ends() -> None:
    client, server = bymux_pair(hold)
    async with await client.open_stream() as stream:
        await settle()
        stream.write(b"all of it")
        await stream.close()
        server._protocol.end()
        await settle()


async def test_close_times_out_if_the_peer_grants_no_credit() -> None:
    client, _ = bymux_pair(hold, settings=bymux.Settings(stream_window=0))
    stream = await client.open_stream()
    stream.write(b"abc")
    with pytest.raises(Timeout, match="3 bytes were not sent") as caught:
        await soon(stream.close(timeout=0.05))
    assert caught.value.unsent == 3
    await settle()
    assert stream.queued == 0


async def test_the_error_of_a_stream_that_was_cut_off_is_the_timeout() -> None:
    client, _ = bymux_pair(hold, settings=WINDOW)
    stream = await client.open_stream()
    stream.write(bytes(50_000))
    with pytest.raises(Timeout) as caught:
        await soon(stream.close(timeout=0.05))
    assert caught.value.unsent > 0
    assert stream.error is caught.value
    assert stream.closed


async def test_the_error_of_a_session_that_was_cut_off_is_the_timeout() -> None:
    sessions: list[jmux.ServerSession] = []

    async def respond(session: jmux.ServerSession) -> None:
        sessions.append(session)
        await session.read(-1)
        session.write(bytes(50_000))

    client, _ = jmux_pair(respond, settings=jmux.Settings(initial_ration=1024, stall_timeout=0.05))
    session = await client.open_session()
    session.finish()
    await until(lambda: bool(sessions) and sessions[0].error is not None)
    assert isinstance(sessions[0].error, Timeout)
    assert sessions[0].error.unsent > 0


async def test_close_does_not_time_out_while_bytes_are_sent() -> None:
    async def slow(stream: bymux.aio.Stream) -> None:
        while await stream.readexactly(100):
            await asyncio.sleep(0.05)

    client, _ = bymux_pair(slow, settings=bymux.Settings(stream_window=200))
    stream = await client.open_stream()
    stream.write(bytes(2000))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await stream.close(timeout=0.5)
    assert loop.time() - began > 0.5


async def test_closing_a_connection_with_unsent_stream_bytes_raises() -> None:
    client, _ = bymux_pair(hold, settings=bymux.Settings(stream_window=0))
    stream = await client.open_stream()
    stream.write(b"abc")
    with pytest.raises(ClosedError, match="3 bytes of its streams were not sent") as caught:
        await client.close(timeout=0.05)
    assert caught.value.unsent == 3


def test_the_blocking_api_raises_when_the_block_is_left() -> None:
    with LoopThread() as thread:

        async def start() -> tuple[bymux.aio.Connection, bymux.aio.Connection]:
            return bymux_pair(hold, settings=WINDOW)

        client, server = thread.run(start())
        connection = bymux.Connection.made(thread, client)
        with pytest.raises(ConnectionLost) as caught, connection.open_stream() as stream:
            stream.write(bytes(5000))
            thread.run(until(lambda: stream._inner.queued == 4000))
            thread.call(server._protocol.end)
            thread.run(until(lambda: client.error is not None))
        connection.abort()
        assert caught.value.unsent == 4000


async def test_leaving_the_block_of_a_failed_request_raises() -> None:
    async def refuse(session: jmux.ServerSession) -> None:
        session.abort("no")

    client, endpoint = jmux_pair(refuse)
    with pytest.raises(Aborted, match="no"):
        async with client.open_session() as session:
            session.write(b"x")
            await settle()
    client, endpoint = jmux_pair(hold, settings=jmux.Settings(initial_ration=1024))
    with pytest.raises(ConnectionLost) as caught:
        async with client.open_session() as session:
            session.write(bytes(5000))
            await settle()
            endpoint.servers[0].end()
            await settle()
    assert caught.value.delivery == "partial"
    assert caught.value.unsent == 5000 - 1024


@pytest.mark.parametrize("inside", [False, True])
async def test_a_connection_closed_in_the_middle_of_a_request_is_lost(inside: bool) -> None:
    """The connection closes in the middle of a request, or in the middle of a message."""
    client, endpoint = jmux_pair(hold)
    session = await client.open_session()
    session.write(b"x")
    session.finish()
    await settle()
    there = endpoint.transports[0]
    if inside:
        there.handler.data_received(memoryview(b"\x84\0"))  # type: ignore[attr-defined]
    there.lose(None)  # type: ignore[attr-defined]
    with pytest.raises(ConnectionLost) as caught:
        await session.read()
    assert caught.value.delivery == "unknown"
    bymux_client, _ = bymux_pair(hold)
    stream = await bymux_client.open_stream()
    await settle()
    stream.write(b"x")
    assert bymux_client._protocol.transport is not None
    if inside:
        bymux_client._protocol.data_received(memoryview(b"\x21"))
    bymux_client._protocol.transport.lose(None)  # type: ignore[attr-defined]
    with pytest.raises(ConnectionLost):
        await stream.read()
    with pytest.raises(ConnectionLost):
        await bymux_client.ping()
    with pytest.raises(ConnectionLost):
        await bymux_client.accept_stream()
    with pytest.raises(MainstemError):
        await bymux_client.open_stream()


@pytest.mark.parametrize("reads_again", [True, False], ids=["reads again", "never reads again"])
async def test_shutdown_waits_until_the_end_of_an_empty_response_is_sent(reads_again: bool) -> None:
    began = asyncio.Event()

    async def respond(session: jmux.ServerSession) -> None:
        await session.read(-1)
        began.set()

    client, endpoint = jmux_pair(respond)
    assert await soon(client.request(b"first")) == b""
    (server,), transport = endpoint.servers, endpoint.transports[1]
    began.clear()
    transport.paused = True
    requesting = asyncio.ensure_future(client.request(b"second"))
    await soon(began.wait())
    await settle()
    loop = asyncio.get_running_loop()
    shutting = asyncio.ensure_future(server.shutdown(math.inf if reads_again else loop.time() + 0.05))
    await settle()
    assert not shutting.done()
    if reads_again:
        transport.paused = False
        server.writing_resumed()
    await soon(shutting)
    assert server.over
    if reads_again:
        assert await soon(requesting) == b""
    else:
        with pytest.raises(Aborted) as caught:
            await soon(requesting)
        assert not caught.value.may_retry
