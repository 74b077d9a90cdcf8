"""Slow, malicious, or silent peers at the other end of a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.cancellation import descriptors
from tests.support.endings import run
from tests.support.waiting import soon, until

from mainstem import bymux
from mainstem.bymux.engine import BymuxEngine
from mainstem.errors import MainstemError, Timeout
from mainstem.jmux import aio as jmux
from mainstem.jmux import events as jmux_events
from mainstem.jmux.client_engine import ClientEngine
from mainstem.mux.protocol import FLUSH_BATCH
from mainstem.mux.transports import KERNEL_LOW_WATER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.system

CHUNK = bytes(64 * 1024)


async def echo(session: jmux.ServerSession) -> None:
    async for data in session:
        session.write(data)
        await session.drain()
    session.finish()


async def pour(write: Callable[[bytes], object], drain: Callable[[], Awaitable[object]], seconds: float) -> int:
    """Write for `seconds`, as back pressure allows, and return the number of bytes written."""
    sent = 0

    async def without_end() -> None:
        nonlocal sent
        while True:
            write(CHUNK)
            sent += len(CHUNK)
            await drain()

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(without_end(), seconds)
    return sent


async def test_jmux_messages_may_arrive_one_byte_at_a_time() -> None:
    engine = ClientEngine()
    async with jmux.serve(echo, "127.0.0.1", 0) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        session, received, complete = None, b"", False
        while not complete:
            for byte in engine.data_to_send():
                writer.write(bytes((byte,)))
                await writer.drain()
                await asyncio.sleep(0)
            engine.receive_data(await reader.readexactly(1))
            if session is None and engine.can_open:
                session = engine.open_session()
                engine.write(session, b"slowly")
                engine.finish(session)
            while (event := engine.next_event()) is not None:
                if isinstance(event, jmux_events.DataReceived):
                    received += event.data
                complete |= isinstance(event, jmux_events.DataFinished)
        assert received == b"slowly"
        writer.close()


async def test_a_jmux_session_without_a_ration_does_not_block_others() -> None:
    release = asyncio.Event()

    async def hold(session: jmux.ServerSession) -> None:
        if await session.readexactly(1) == b"h":
            await release.wait()  # nothing more is read, so no ration is granted
        session.write(b"done")

    settings = jmux.Settings(initial_ration=1024)
    async with (
        jmux.serve(hold, "127.0.0.1", 0, settings=settings) as listener,
        jmux.connect("127.0.0.1", listener.port) as client,
        client.open_session() as held,
    ):
        held.write(b"h" + bytes(1_000_000))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(held.drain(), 0.2)
        assert held.queued >= 1_000_000 - 1024
        for _ in range(20):
            assert await client.request(b"x") == b"done"
        assert client.stats().connections == 1
        release.set()


@pytest.mark.long
async def test_a_jmux_server_with_infinite_rations_that_never_reads_uses_bounded_memory() -> None:
    async def hoard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"Jmux\x01\0\0\0")  # an initial ration of 0 means an infinite one
        await done.wait()
        writer.close()
        over.set()

    done, over = asyncio.Event(), asyncio.Event()
    server = await asyncio.start_server(hoard, "127.0.0.1", 0, limit=1024)
    client = await jmux.connect("127.0.0.1", server.sockets[0].getsockname()[1])
    session = await client.open_session()
    tracemalloc.start()
    sent = await pour(session.write, session.drain, 1.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    await client.close()
    done.set()
    server.close()
    await soon(over.wait())
    print(f"{sent >> 10} KiB written before back pressure, {peak >> 10} KiB of memory at most")
    assert sent > len(CHUNK)
    assert peak < 4 * 1024 * 1024


async def test_a_jmux_client_that_never_reads_responses_uses_bounded_memory() -> None:
    poured = 0

    async def answer(session: jmux.ServerSession) -> None:
        nonlocal poured
        while True:
            session.write(CHUNK)
            poured += len(CHUNK)
            await session.drain()

    async with jmux.serve(answer, "127.0.0.1", 0) as listener:
        with socket.create_connection(("127.0.0.1", listener.port)) as greedy:
            tracemalloc.start()
            # Grant infinite rations, open and finish every session, and then read nothing.
            requests = b"".join(bytes((0x94, number, 0, 0)) for number in range(128))
            greedy.sendall(b"Jmux\x01\0\0\0" + requests)
            await until(lambda: poured > 128 * len(CHUNK), progress=lambda: poured)
            await asyncio.sleep(1.0)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    print(f"{poured >> 10} KiB written by 128 handlers, {peak >> 10} KiB of memory at most")
    assert poured > 128 * len(CHUNK)
    # `drain` waits above 128 KiB, so each session may hold that plus one chunk. The chunks themselves are shared in this test.
    assert peak < 16 * 1024 * 1024


def read_until(raw: socket.socket, engine: BymuxEngine, wanted: bytes) -> int:
    """Read from a bymux peer until ``wanted`` arrives on some stream, and return how many bytes came before it."""
    before = 0
    while True:
        data = raw.recv(4096)
        assert data
        engine.receive_data(data)
        while (event := engine.next_event()) is not None:
            if isinstance(event, bymux.events.DataReceived) and event.data == wanted:
                return before
        before += len(data)


async def test_a_small_message_waits_behind_a_bounded_number_of_bytes() -> None:
    """The bound is one packet of the other stream, one batch that the socket did not accept, and what the kernel holds."""
    receive_buffer = 64 * 1024
    settings = bymux.Settings(stream_window=bymux.INFINITE)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        connection = await bymux.aio.connect("127.0.0.1", listening.getsockname()[1])
        raw = listening.accept()[0]  # the kernel has already accepted the connection
    engine = BymuxEngine(bymux.Role.REACTIVE, settings)
    with raw:
        raw.sendall(engine.data_to_send())  # permission to create streams
        bulk, small = await connection.open_stream(), await connection.open_stream()
        while len(engine.streams) < 2:
            engine.receive_data(await asyncio.to_thread(raw.recv, 4096))
        raw.sendall(engine.data_to_send())  # infinite credit for both
        await until(lambda: small.connection._protocol.engine.streams[small.id].send_credit)
        await pour(bulk.write, bulk.drain, 0.5)  # nobody reads, so every buffer on the way fills up
        small.write(b"!")
        await until(lambda: not connection._protocol.flush_scheduled)
        before = await asyncio.to_thread(read_until, raw, engine, b"!")
    connection.abort()
    await connection.wait_closed()
    # The kernel doubles the receive buffer that is requested, and accepts one chunk (64 KiB) beyond the low-water mark.
    bound = bymux.Settings().packet_limit + FLUSH_BATCH + KERNEL_LOW_WATER + 64 * 1024 + 2 * receive_buffer
    print(f"{before >> 10} KiB stood before an urgent byte, of {bound >> 10} KiB at most")
    assert before <= bound


async def test_flushing_each_message_leaves_no_callbacks_in_the_loop() -> None:
    async def swallow(stream: bymux.aio.Stream) -> None:
        while await stream.read():
            pass

    async with (
        bymux.aio.serve(swallow, "127.0.0.1", 0) as listener,
        bymux.aio.connect("127.0.0.1", listener.port) as connection,
        await connection.open_stream() as stream,
    ):
        stream.write(b"first")
        await stream.flush()
        calls = 0
        loop = asyncio.get_running_loop()
        schedule = loop.call_soon

        def counting(*arguments: object, **more: object) -> asyncio.Handle:
            nonlocal calls
            calls += 1
            return schedule(*arguments, **more)  # type: ignore[arg-type]

        loop.call_soon = counting  # type: ignore[assignment, method-assign]
        try:
            for _ in range(500):
                stream.write(b"x" * 64)
                await stream.flush()
        finally:
            del loop.call_soon
        assert calls < 100


@pytest.mark.parametrize("verb", ["close", "abort"])
@pytest.mark.parametrize("blocks", [True, False], ids=["blocking", "asyncio"])
async def test_an_attached_connection_closes_its_socket_even_if_the_peer_does_not_read(
    blocks: bool, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.mux.protocol.LINGER_S", 0.1)
    before = descriptors()
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(bytes.fromhex("1001"))  # one stream
        if blocks:
            connection = await asyncio.to_thread(bymux.attach, ours, ours, role=bymux.Role.PROACTIVE)
        else:
            pair = await asyncio.open_connection(sock=ours)
            connection = await bymux.aio.attach(*pair, role=bymux.Role.PROACTIVE)
        stream = await run(blocks, connection.open_stream)
        theirs.sendall(bytes.fromhex("000000"))  # infinite credit
        with contextlib.suppress(TimeoutError):
            await run(blocks, lambda: stream.flush(timeout=0.1))
        sent = 0
        while sent < 3_000_000:  # more than a socket's buffers hold
            with contextlib.suppress(Timeout):
                await run(blocks, lambda: send(stream, blocks))
            sent += 100_000
        if verb == "abort":
            await run(blocks, connection.abort)
        else:
            with contextlib.suppress(MainstemError):
                await run(blocks, lambda: connection.close(0.1))
        await until(lambda: len(descriptors() - before) == 1)  # the peer's descriptor
        stream.abort()


def send(stream: bymux.Stream | bymux.aio.Stream, blocks: bool) -> Any:
    if blocks:
        return stream.write(bytes(100_000), timeout=0.01)  # type: ignore[call-arg]
    stream.write(bytes(100_000))
    return stream.drain(timeout=0.01)  # type: ignore[union-attr]


@pytest.mark.long
async def test_a_disconnected_flooder_is_not_read_any_further() -> None:
    pings = bytes.fromhex("50") * 100_000

    async def handler(stream: bymux.aio.Stream) -> None: ...

    async with bymux.aio.serve(handler, "127.0.0.1", 0) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as flooder:
            flooder.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            flooder.setblocking(False)
            sent = 0

            def is_refused() -> bool:
                nonlocal sent
                if server.stats().protocol_errors:
                    return True
                with contextlib.suppress(BlockingIOError):
                    sent += flooder.send(pings)
                return False

            await until(is_refused, progress=lambda: sent)
            places = server._admission.places  # its slot is not free until its transport is closed
            more = 0

            def is_disconnected() -> bool:
                nonlocal more
                with contextlib.suppress(OSError):
                    more += flooder.send(pings)
                return not len(places)

            await until(is_disconnected)
            assert more < 20_000_000  # what the kernel's buffers hold; flooding for two seconds would be gigabytes
