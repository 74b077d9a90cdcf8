"""bymux over real sockets, socket pairs, and publications."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import subprocess
import sys
import tracemalloc
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import STALL_S, soon, until

from mainstem import bymux, errors
from mainstem.bymux.engine import BymuxEngine
from mainstem.errors import ClosedError, ConnectionLost, MainstemError, RemoteProtocolError, Timeout
from mainstem.mux.transports import KERNEL_LOW_WATER, RECEIVE_HIGH_WATER, WRITE_HIGH_WATER, SocketTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.system


async def echo(stream: bymux.aio.Stream) -> None:
    async for data in stream:
        stream.write(data)
        await stream.drain()
    await stream.close()


async def exchange(connection: bymux.aio.Connection, data: bytes) -> bytes:
    """Send ``data`` on a new stream and return the whole response."""
    async with connection.open_stream() as stream:

        async def send() -> None:
            for at in range(0, len(data), 10_000):
                stream.write(data[at : at + 10_000])
                await stream.drain()
            stream.finish()

        sending = asyncio.ensure_future(send())
        answer = await stream.read(-1)
        await sending
        return answer


@pytest.fixture
async def connection() -> AsyncIterator[bymux.aio.Connection]:
    async with (
        bymux.aio.serve(echo, "127.0.0.1", 0) as listener,
        bymux.aio.connect("127.0.0.1", listener.port) as connection,
    ):
        yield connection


async def test_many_streams_share_a_connection(connection: bymux.aio.Connection) -> None:
    rng = random.Random(1)
    datas = [rng.randbytes(size) for size in (0, 1, 63, 70_000, 1_000_000, *(rng.randrange(5000) for _ in range(100)))]
    answers = await asyncio.gather(*(exchange(connection, data) for data in datas))
    assert answers == datas


async def test_hundreds_of_handlers_started_together_respond_at_once() -> None:
    async def greet(stream: bymux.aio.Stream) -> None:
        stream.write(b"tide")
        await stream.close()

    async with (
        bymux.aio.serve(greet, "127.0.0.1", 0) as listener,
        bymux.aio.connect("127.0.0.1", listener.port) as connection,
    ):
        streams = [await connection.open_stream() for _ in range(400)]
        for stream in streams:
            stream.write(b"x")
        assert await asyncio.gather(*(stream.read(-1) for stream in streams)) == [b"tide"] * 400


async def test_connections_and_streams_can_be_pinged(connection: bymux.aio.Connection) -> None:
    assert 0 < await connection.ping() < 10
    async with connection.open_stream() as stream:
        assert 0 < await stream.ping() < 10


async def test_readexactly_reports_the_partial_bytes_at_the_end(connection: bymux.aio.Connection) -> None:
    async with connection.open_stream() as stream:
        stream.write(b"abcdef")
        stream.finish()
        assert await stream.readexactly(4) == b"abcd"
        with pytest.raises(errors.IncompleteRead, match="ended after 2 of 4 bytes") as caught:
            await stream.readexactly(4)
        assert isinstance(caught.value, asyncio.IncompleteReadError)
        assert caught.value.partial == b"ef"
        assert stream.at_eof()


async def test_a_write_larger_than_the_credit_waits_in_drain() -> None:
    release = asyncio.Event()
    received = 0

    async def slow(stream: bymux.aio.Stream) -> None:
        nonlocal received
        await release.wait()
        async for data in stream:
            received += len(data)

    window = 50_000
    async with (
        bymux.aio.serve(slow, "127.0.0.1", 0, settings=bymux.Settings(stream_window=window)) as listener,
        bymux.aio.connect("127.0.0.1", listener.port) as connection,
        await connection.open_stream() as stream,
    ):
        stream.write(bytes(1_000_000))
        await until(lambda: stream.queued == 1_000_000 - window)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stream.drain(), 0.2)
        assert stream.queued == 1_000_000 - window
        release.set()
        await soon(stream.drain())
        await stream.close()
        await until(lambda: received == 1_000_000, progress=lambda: received)


async def test_a_write_fails_with_unsent_when_the_peer_stops_reading() -> None:
    async def refuse(stream: bymux.aio.Stream) -> None:
        await stream.readexactly(10)
        stream.stop_read()
        await asyncio.Event().wait()

    async with (
        bymux.aio.serve(refuse, "127.0.0.1", 0, settings=bymux.Settings(stream_window=1000)) as listener,
        bymux.aio.connect("127.0.0.1", listener.port) as connection,
    ):
        stream = await connection.open_stream()
        stream.write(bytes(500_000))
        with pytest.raises(ClosedError, match="bytes were not sent"):
            await soon(stream.drain())
        with pytest.raises(ClosedError):
            stream.write(b"more")
        connection.abort()


async def test_open_stream_waits_for_stream_credit() -> None:
    async with (
        bymux.aio.serve(echo, "127.0.0.1", 0, settings=bymux.Settings(peer_streams=2)) as listener,
        bymux.aio.connect("127.0.0.1", listener.port) as connection,
    ):
        answers = await asyncio.gather(*(exchange(connection, bytes([i]) * 1000) for i in range(40)))
        assert answers == [bytes([i]) * 1000 for i in range(40)]


async def test_either_end_may_create_streams() -> None:
    async def greet(connection: bymux.aio.Connection) -> None:
        assert await exchange(connection, b"from the server") == b"from the server"
        done.set()

    done = asyncio.Event()
    async with (
        bymux.aio.serve(echo, "127.0.0.1", 0, on_connection=greet) as listener,
        await bymux.aio.connect("127.0.0.1", listener.port, handler=echo),
    ):
        await soon(done.wait())


@pytest.mark.parametrize("outcome", ["returns", "raises", "aborts", "closes", "allows streams"])
async def test_streams_wait_until_on_connection_has_accepted_the_connection(outcome: str) -> None:
    served: list[int] = []
    greeted, decide = asyncio.Event(), asyncio.Event()

    async def greet(connection: bymux.aio.Connection) -> None:
        greeted.set()
        await decide.wait()
        if outcome == "raises":
            raise ValueError("not this one")
        if outcome == "aborts":
            connection.abort()
        elif outcome == "closes":
            await connection.close()
        elif outcome == "allows streams":
            connection.allow_streams(1)
            await asyncio.Event().wait()

    async def handler(stream: bymux.aio.Stream) -> None:
        served.append(stream.id)
        await echo(stream)

    async with (
        bymux.aio.serve(handler, "127.0.0.1", 0, on_connection=greet) as listener,
        bymux.aio.connect("127.0.0.1", listener.port) as connection,
    ):
        exchanges = [asyncio.ensure_future(exchange(connection, b"%d" % index)) for index in range(3)]
        await soon(greeted.wait())
        # The server has received the streams.
        await until(lambda: listener.stats().unread_bytes == 3)
        assert not served
        decide.set()
        results = await soon(asyncio.gather(*exchanges, return_exceptions=True))
        if outcome in ("returns", "allows streams"):
            assert results == [b"0", b"1", b"2"]
        else:
            assert all(isinstance(result, MainstemError) for result in results)
            assert not served


async def test_a_server_that_shuts_down_aborts_streams_that_wait_for_on_connection() -> None:
    greeted, decide = asyncio.Event(), asyncio.Event()

    async def greet(_: bymux.aio.Connection) -> None:
        greeted.set()
        await decide.wait()

    async with (
        bymux.aio.serve(echo, "127.0.0.1", 0, on_connection=greet) as listener,
        bymux.aio.connect("127.0.0.1", listener.port) as connection,
    ):
        waiting = asyncio.ensure_future(exchange(connection, b"tide"))
        await soon(greeted.wait())
        await until(lambda: listener.stats().unread_bytes == 4)
        closing = asyncio.ensure_future(listener.shutdown())
        with pytest.raises(MainstemError):
            await soon(waiting)
        decide.set()
        await soon(closing)


async def test_streams_without_a_handler_wait_to_be_accepted() -> None:
    async def greet(connection: bymux.aio.Connection) -> None:
        for index in range(3):
            async with connection.open_stream() as stream:
                stream.write(b"%d" % index)
        await connection.close()

    async with (
        bymux.aio.serve(echo, "127.0.0.1", 0, on_connection=greet) as listener,
        bymux.aio.connect("127.0.0.1", listener.port) as connection,
    ):
        seen = []
        async for stream in connection.streams():
            async with stream:
                seen.append(await stream.read(-1))
        assert seen == [b"0", b"1", b"2"]


async def test_over_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    async with bymux.aio.serve(echo, path=path), bymux.aio.connect(path=path) as connection:
        assert await exchange(connection, b"unix" * 1000) == b"unix" * 1000


def certificate(directory: Path) -> tuple[Path, Path]:
    """Create a self-signed certificate for localhost, valid for one day."""
    key, cert = directory / "key.pem", directory / "cert.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    done = subprocess.run([*command.split(), "-keyout", key, "-out", cert], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("openssl cannot make a certificate here")
    return cert, key


async def test_over_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    client = ssl.create_default_context(cafile=str(cert))
    async with (
        bymux.aio.serve(echo, "127.0.0.1", 0, ssl=server) as listener,
        bymux.aio.connect("127.0.0.1", listener.port, ssl=client, server_hostname="localhost") as connection,
    ):
        assert await exchange(connection, bytes(700_000)) == bytes(700_000)


async def test_over_any_reader_and_writer() -> None:
    ends = socket.socketpair()
    pairs = [await asyncio.open_connection(sock=end) for end in ends]
    a = await bymux.aio.attach(*pairs[0], role=bymux.Role.PROACTIVE)
    b = await bymux.aio.attach(*pairs[1], role=bymux.Role.REACTIVE, handler=echo)
    assert await exchange(a, bytes(900_000)) == bytes(900_000)
    await asyncio.gather(a.close(), b.close())


class MemoryStream:
    """A publication and subscription in memory, with a window that can fill up."""

    def __init__(self, limit: int = 50) -> None:
        self.messages: deque[bytes] = deque()
        self.limit = limit
        self.position = 0

    def offer(self, buffer: bytes) -> int:
        assert len(buffer) <= 1344
        if len(self.messages) >= self.limit:
            return -2
        self.messages.append(bytes(buffer))
        self.position += len(buffer)
        return self.position

    def poll(self, handler: Any, limit: int) -> int:
        count = 0
        while self.messages and count < limit:
            handler(self.messages.popleft())
            count += 1
        return count


async def test_over_a_pair_of_publications() -> None:
    there, back = MemoryStream(), MemoryStream()
    a = await bymux.aio.over_publications(there, back, role=bymux.Role.PROACTIVE)
    b = await bymux.aio.over_publications(back, there, role=bymux.Role.REACTIVE, handler=echo)
    data = random.Random(2).randbytes(300_000)
    assert await exchange(a, data) == data
    await asyncio.gather(a.close(), b.close())


async def test_a_lost_connection_fails_every_active_stream() -> None:
    async with bymux.aio.serve(echo, "127.0.0.1", 0) as listener:
        connection = await bymux.aio.connect("127.0.0.1", listener.port)
        complete = await exchange(connection, b"done")
        stream = await connection.open_stream()
        stream.write(b"x")
        assert await stream.read() == b"x"
        for accepted in list(listener._connections):
            accepted.end(abort=True)
        with pytest.raises(ConnectionLost):
            await soon(stream.read())
        with pytest.raises(MainstemError):
            await connection.open_stream()
        assert complete == b"done"
        await connection.close()


async def test_a_protocol_error_names_the_peer() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\xc0")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connection = await bymux.aio.connect("127.0.0.1", port)
        await soon(connection.wait_closed())
        assert isinstance(connection.error, RemoteProtocolError)
        assert connection.error.rule == "undefined-packet-type"
        assert str(port) in connection.error.peer


async def test_a_dead_peer_times_out() -> None:
    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await reader.read()
        writer.close()

    settings = bymux.Settings(ping_interval=0.05, ping_timeout=0.1)
    async with await asyncio.start_server(silence, "127.0.0.1", 0) as server:
        connection = await bymux.aio.connect("127.0.0.1", server.sockets[0].getsockname()[1], settings=settings)
        await soon(connection.wait_closed())
        assert isinstance(connection.error, Timeout)


async def test_packets_may_arrive_one_byte_at_a_time() -> None:
    engine = BymuxEngine(bymux.Role.PROACTIVE)

    async with bymux.aio.serve(echo, "127.0.0.1", 0) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        stream = None
        received = b""
        while received != b"slowly":
            for byte in engine.data_to_send():
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)
            engine.receive_data(await reader.read(1))
            if stream is None and engine.can_open:
                stream = engine.open_stream()
                engine.write(stream, b"slowly")
            while (event := engine.next_event()) is not None:
                if isinstance(event, bymux.events.DataReceived):
                    received += event.data
        writer.close()


async def test_a_stream_without_credit_does_not_block_others() -> None:
    settings = bymux.Settings(stream_window=0)
    async with (
        bymux.aio.serve(echo, "127.0.0.1", 0, settings=settings) as listener,
        bymux.aio.connect("127.0.0.1", listener.port) as connection,
    ):
        stream = await connection.open_stream()
        stream.write(bytes(1000))
        await stream.drain()
        assert await soon(connection.ping()) < STALL_S
        assert stream.queued == 1000
        stream.abort()


async def test_a_peer_with_infinite_credit_that_never_reads_uses_bounded_memory() -> None:
    async def hoard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes.fromhex("1001"))  # one stream
        await reader.readexactly(2)
        writer.write(bytes.fromhex("000000"))  # infinite credit, and then it never reads again
        await done.wait()
        writer.close()
        over.set()

    done, over = asyncio.Event(), asyncio.Event()
    server = await asyncio.start_server(hoard, "127.0.0.1", 0)
    settings = bymux.Settings(stream_window=0, peer_streams=0)
    connection = await bymux.aio.connect("127.0.0.1", server.sockets[0].getsockname()[1], settings=settings)
    stream = await connection.open_stream()
    chunk = bytes(64 * 1024)
    tracemalloc.start()
    sent = 0

    async def pour() -> None:
        nonlocal sent
        while True:
            stream.write(chunk)
            sent += len(chunk)
            await stream.drain()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pour(), 1.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    connection.abort()
    await connection.wait_closed()
    done.set()
    server.close()
    await soon(over.wait())
    assert sent > len(chunk)
    assert peak < 4 * 1024 * 1024


async def test_pings_and_small_messages_do_not_wait_behind_bulk() -> None:
    """The bound is one packet of each other stream plus what the transport (at most 64 KiB) and the kernel (128 KiB) hold."""
    released = asyncio.Event()

    async def sink(stream: bymux.aio.Stream) -> None:
        first = await stream.readexactly(1)
        if first == b"s":
            await echo(stream)
            return
        while await stream.read():
            pass

    async with (
        bymux.aio.serve(sink, "127.0.0.1", 0) as listener,
        bymux.aio.connect("127.0.0.1", listener.port) as connection,
    ):
        bulk = await connection.open_stream()
        small = await connection.open_stream()
        small.write(b"s")

        async def saturate() -> None:
            while not released.is_set():
                bulk.write(bytes(256 * 1024))
                await bulk.drain()
                await asyncio.sleep(0)
            await bulk.close()

        bulk.write(b"b")
        saturating = asyncio.ensure_future(saturate())
        loop = asyncio.get_running_loop()
        times = []
        for _ in range(100):
            begun = loop.time()
            small.write(b"!")
            assert await small.readexactly(1) == b"!"
            times.append(loop.time() - begun)
            times.append(await connection.ping())
        released.set()
        await saturating
        await small.close()
        assert sorted(times)[len(times) // 2] < 0.1


@pytest.mark.skipif(sys.platform != "linux", reason="reads and bounds the buffers of Linux")
async def test_the_kernel_buffers_a_bounded_amount_from_a_nearby_peer() -> None:
    """The bound holds for any number of streams.

    These streams have 16 MiB of window in total, and a small message would wait behind all unread bytes.
    """

    async def swallow(stream: bymux.aio.Stream) -> None:
        while await stream.read():
            pass

    async with (
        bymux.aio.serve(swallow, "127.0.0.1", 0) as listener,
        bymux.aio.connect("127.0.0.1", listener.port) as connection,
    ):

        async def saturate(stream: bymux.aio.Stream) -> None:
            while True:
                stream.write(bytes(64 * 1024))
                await stream.drain()

        saturating = [asyncio.ensure_future(saturate(await connection.open_stream())) for _ in range(64)]
        (served,) = listener._connections
        sender, receiver = connection._protocol.traffic, served.traffic
        # The size that the kernel picks by default grows as a busy program reads from the socket.
        await until(lambda: receiver.bytes_received > 64 * 1024 * 1024)
        assert isinstance(served.transport, SocketTransport)
        assert served.transport._transport is not None
        served.transport._transport.pause_reading()
        sent = -1
        while sent != sender.bytes_sent:
            sent = sender.bytes_sent
            await asyncio.sleep(0.05)
        # Unread at the receiver (Linux doubles the configured size for its own bookkeeping), unsent, and in the transport.
        assert sent - receiver.bytes_received <= 2 * RECEIVE_HIGH_WATER + KERNEL_LOW_WATER + 2 * WRITE_HIGH_WATER
        for task in saturating:
            task.cancel()
        connection.abort()


async def test_a_server_listens_on_this_machine_only_by_default() -> None:
    async with bymux.aio.serve(echo) as listener:
        assert listener.address[0] == "127.0.0.1"
    with bymux.serve(print) as server:
        assert server.address[0] == "127.0.0.1"


async def test_stream_stats_count_passed_and_queued_bytes() -> None:
    async with bymux.aio.serve(echo) as listener, bymux.aio.connect("127.0.0.1", listener.port) as connection:
        stream = await connection.open_stream()
        stream.write(b"tide")
        assert (stream.stats().unsent_bytes, stream.stats().bytes_sent) == (4, 0)
        stream.finish()
        await until(lambda: stream.stats().unread_bytes == 4)
        assert await stream.read(-1) == b"tide"
        assert stream.stats() == bymux.StreamStats(bytes_sent=4, bytes_received=4, unsent_bytes=0, unread_bytes=0)
        await stream.close()
