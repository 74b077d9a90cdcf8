"""When written bytes are sent: lone writes at once, writes in one loop iteration together, and the timers involved."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.support.mux_pair import bymux_pair, jmux_pair
from tests.support.waiting import settle, until

from mainstem import bymux
from mainstem.bymux import events

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.mux_pair import MemoryTransport

    from mainstem.jmux import aio as jmux

ROUNDS = 50
MESSAGE = bytes(64)


async def echo_stream(stream: bymux.aio.Stream) -> None:
    while data := await stream.read():
        stream.write(data)


async def respond(session: jmux.ServerSession) -> None:
    session.write(await session.read(-1))


async def turns_of(work: Callable[[], Awaitable[object]]) -> int:
    """Return how many event loop iterations some work took."""
    loop = asyncio.get_running_loop()
    turns = 0
    handle: asyncio.Handle

    def turn() -> None:
        nonlocal turns, handle
        turns += 1
        handle = loop.call_soon(turn)

    handle = loop.call_soon(turn)
    await work()
    handle.cancel()
    return turns


def pieces_of(transport: MemoryTransport) -> list[int]:
    """Return a list that collects the lengths of later writes to a transport."""
    lengths: list[int] = []
    write = transport.write

    def counted(segments: list[bytes | memoryview]) -> None:
        lengths.append(sum(map(len, segments)))
        write(segments)

    transport.write = counted  # type: ignore[method-assign]
    return lengths


async def test_a_jmux_request_takes_two_loop_iterations_at_each_end() -> None:
    client, _ = jmux_pair(respond)
    async with client:

        async def requests() -> None:
            for _ in range(ROUNDS):
                assert await client.request(MESSAGE) == MESSAGE

        await requests()
        assert await turns_of(requests) <= 4 * ROUNDS + 1


async def test_a_bymux_round_trip_takes_two_loop_iterations_at_each_end() -> None:
    client, _ = bymux_pair(echo_stream)
    async with client, await client.open_stream() as stream:

        async def messages() -> None:
            for _ in range(ROUNDS):
                stream.write(MESSAGE)
                assert await stream.readexactly(len(MESSAGE)) == MESSAGE

        await messages()
        assert await turns_of(messages) <= 4 * ROUNDS + 1


async def test_requests_and_responses_of_one_loop_iteration_are_sent_together() -> None:
    client, endpoint = jmux_pair(respond)
    async with client:
        await client.request(MESSAGE)
        ends = [pieces_of(transport) for transport in endpoint.transports]  # type: ignore[arg-type]
        for _ in range(10):
            await asyncio.gather(*(client.request(MESSAGE) for _ in range(ROUNDS)))
        # The very first request is treated as a lone one; so are its response and the first response after that.
        assert [len(lengths) for lengths in ends] == [11, 12]
        assert [sum(lengths) for lengths in ends] == [10 * ROUNDS * 68] * 2


async def test_messages_written_in_parts_are_sent_together_from_the_second_one_on() -> None:
    client, _ = bymux_pair(echo_stream)
    async with client, await client.open_stream() as stream:
        for _ in range(2):
            stream.write(b"1")
            await stream.readexactly(1)
        lengths = pieces_of(client._protocol.transport)  # type: ignore[arg-type]
        for _ in range(3):
            stream.write(b"12")
            stream.write(b"345")
            await stream.readexactly(5)
        assert lengths == [5, 6, 8, 8]


async def test_a_lone_write_is_sent_after_queued_bytes() -> None:
    """A large write that exceeds the credit is followed by a small one: both arrive in order."""
    received = bytearray()

    async def collect(stream: bymux.aio.Stream) -> None:
        await asyncio.sleep(0)
        while data := await stream.read():
            received.extend(data)

    client, _ = bymux_pair(collect, settings=bymux.Settings(stream_window=1000))
    async with client, await client.open_stream() as stream:
        await settle()
        stream.write(b"a" * 1500)
        client._protocol.sends_at_once = True
        stream.write(b"b")
        stream.finish()
        await until(lambda: len(received) == 1501)
    assert received == b"a" * 1500 + b"b"


@pytest.mark.parametrize("paused", ["client", "server"])
async def test_an_orderly_end_reaches_the_peer_of_a_paused_transport(paused: str) -> None:
    """The bytes that the transport holds, and the packets that end the connection, are sent after the connection's end."""
    client, server = bymux_pair(echo_stream)
    async with client.open_stream() as stream:
        stream.write(MESSAGE)
        stream.finish()
        assert await stream.read(-1) == MESSAGE
    await settle()
    for end, name in ((client, "client"), (server, "server")):
        assert end._protocol.transport is not None
        end._protocol.transport.paused = paused == name
    ending = asyncio.ensure_future(client.close()), asyncio.ensure_future(server.close())
    await until(lambda: client.closed and server.closed)
    await asyncio.gather(*ending)
    assert (client.error, server.error) == (None, None)


async def test_a_lone_write_to_a_paused_transport_is_queued() -> None:
    client, _ = bymux_pair(echo_stream)
    async with client, await client.open_stream() as stream:
        await settle()
        runner = client._protocol
        assert runner.transport is not None
        runner.transport.paused = True
        assert runner.sends_at_once
        stream.write(MESSAGE)
        assert stream.queued == len(MESSAGE)
        runner.transport.paused = False
        runner.writing_resumed()
        assert await stream.readexactly(len(MESSAGE)) == MESSAGE


async def test_the_next_ping_is_sent_on_time_after_a_pong() -> None:
    """The interval is shorter than the pong timeout, so the timer has to move to an earlier time when the pong arrives."""
    settings = bymux.Settings(ping_interval=0.01, ping_timeout=60)
    client, _ = bymux_pair(settings=settings)
    pongs = 0

    def pong(_: events.PongReceived) -> None:
        nonlocal pongs
        pongs += 1

    async with client:
        client._protocol._handlers[events.PongReceived] = pong
        await until(lambda: pongs >= 3)


@pytest.mark.parametrize("early", [False, True])
async def test_finished_jmux_handlers_are_forgotten(early: bool) -> None:
    """A handler's task needs no callback at its end, but one that is cancelled before its first step does."""
    client, endpoint = jmux_pair(respond)
    async with client:
        await client.request(MESSAGE)
        server = endpoint.servers[0]
        for _ in range(3):
            if early:
                session = await client.open_session()
                session.write(MESSAGE)
                for end in (session.finish, session.abort):
                    end()
                    client._pool.connections[0].flush()
                await asyncio.sleep(0)
                assert [task.cancelling() for task in server.tasks] == [1]
            else:
                await client.request(MESSAGE)
            await until(lambda: not server.tasks and not server._running)
        assert await client.request(MESSAGE) == MESSAGE
    assert not server.traffic.handlers_failed
