"""Jmux over real sockets."""

from __future__ import annotations

import asyncio
import random
import ssl
from typing import TYPE_CHECKING

import pytest
from tests.support.waiting import STALL_S, soon, until

from mainstem.errors import Aborted, ClosedError, Delivery, MainstemError, RemoteProtocolError, Timeout
from mainstem.jmux import aio as jmux

from .test_bymux import certificate

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system


async def echo(session: jmux.ServerSession) -> None:
    async for data in session:
        session.write(data)
        await session.drain()
    session.finish()


async def test_requests_and_responses_of_many_sizes() -> None:
    rng = random.Random(1)
    async with (
        jmux.serve(echo, "127.0.0.1", 0) as listener,
        jmux.connect("127.0.0.1", listener.port) as client,
    ):
        datas = [b"", b"x", rng.randbytes(1_500_000), *(rng.randbytes(rng.randrange(3000)) for _ in range(200))]
        assert await asyncio.gather(*(client.request(data) for data in datas)) == datas
        assert client.stats().connections == 2


async def test_handlers_started_together_respond_at_once() -> None:
    async def greet(session: jmux.ServerSession) -> None:
        session.write(b"tide")
        session.finish()
        await session.flush()

    async with (
        jmux.serve(greet, "127.0.0.1", 0) as listener,
        jmux.connect("127.0.0.1", listener.port) as client,
    ):
        assert await asyncio.gather(*(client.request(b"x") for _ in range(400))) == [b"tide"] * 400


async def test_a_request_is_written_and_its_response_read_as_streams() -> None:
    async with (
        jmux.serve(echo, "127.0.0.1", 0) as listener,
        jmux.connect("127.0.0.1", listener.port) as client,
        client.open_session() as session,
    ):
        for index in range(10):
            session.write(b"%05d" % index)
            await session.drain()
            assert await session.readexactly(5) == b"%05d" % index
        assert session.delivery is Delivery.PARTIAL
        session.finish()
        assert await session.read() == b""
        assert session.delivery is Delivery.COMPLETE


async def test_a_response_may_be_read_before_anything_was_written() -> None:
    async def speak_first(session: jmux.ServerSession) -> None:
        session.write(b"welcome")
        assert await session.read(-1) == b"thanks"

    async with (
        jmux.serve(speak_first, "127.0.0.1", 0) as listener,
        jmux.connect("127.0.0.1", listener.port) as client,
        client.open_session() as session,
    ):
        assert await session.readexactly(7) == b"welcome"
        session.write(b"thanks")
        session.finish()
        assert await session.read(-1) == b""


async def test_a_client_opens_more_connections_up_to_max_connections() -> None:
    release = asyncio.Event()
    held = 0

    async def hold(session: jmux.ServerSession) -> None:
        nonlocal held
        session.write(await session.read(-1))
        held += 1
        await release.wait()

    async with (
        jmux.serve(hold, "127.0.0.1", 0) as listener,
        jmux.connect("127.0.0.1", listener.port, max_connections=2) as client,
    ):
        calls = [asyncio.ensure_future(client.request(b"%d" % i)) for i in range(300)]
        await until(lambda: held >= 256, progress=lambda: held)
        # If the client had opened a third connection, it would be established before this one, which starts now.
        async with jmux.connect("127.0.0.1", listener.port):
            pass
        assert held == 256
        assert client.stats().connections == 2
        assert not any(call.done() for call in calls)
        release.set()
        assert await asyncio.gather(*calls) == [b"%d" % i for i in range(300)]


async def test_acknowledgments_positive_and_negative() -> None:
    heard: asyncio.Queue[bool] = asyncio.Queue()

    async def ask(session: jmux.ServerSession) -> None:
        session.write(b"please")
        session.finish(ack_required=True)
        heard.put_nowait(await session.acknowledged())

    async with (
        jmux.serve(ask, "127.0.0.1", 0) as listener,
        jmux.connect("127.0.0.1", listener.port) as client,
    ):
        async with client.open_session() as session:
            session.finish()
            assert await session.read(-1) == b"please"
            assert session.acknowledgment_required
        assert await soon(heard.get()) is True
        session = await client.open_session()
        session.finish()
        await session.read(-1)
        session.abort()
        assert await soon(heard.get()) is False
        session = await client.open_session()
        session.finish()
        await session.read(-1)
        await client.close()
        assert await soon(heard.get()) is False


async def test_errors_report_whether_a_request_may_be_retried() -> None:
    async def judge(session: jmux.ServerSession) -> None:
        how = await session.readexactly(1)
        if how == b"a":
            session.abort("because")
        elif how == b"e":
            raise ValueError("a handler's own fault")

    async def refuse(session: jmux.ServerSession) -> None:
        session.reject("busy")

    async with (
        jmux.serve(judge, "127.0.0.1", 0) as listener,
        jmux.serve(refuse, "127.0.0.1", 0) as refusing,
        jmux.connect("127.0.0.1", listener.port) as client,
        jmux.connect("127.0.0.1", refusing.port) as refused,
    ):
        for how in (b"a", b"e"):
            async with client.open_session() as session:
                session.write(how)
                session.finish()
                with pytest.raises(Aborted):
                    await session.read()
                assert session.delivery is Delivery.PARTIAL
                assert not session.may_retry
        async with refused.open_session() as session:
            session.write(b"x")
            with pytest.raises(Aborted, match="busy"):
                await session.read()
            assert session.delivery is Delivery.NONE
        with pytest.raises(Aborted):
            await refused.request(b"x", attempts=3)


async def test_a_response_before_the_end_of_the_request_is_complete() -> None:
    async def early(session: jmux.ServerSession) -> None:
        await session.readexactly(1)
        session.write(b"enough")
        session.finish()

    async with (
        jmux.serve(early, "127.0.0.1", 0) as listener,
        jmux.connect("127.0.0.1", listener.port) as client,
    ):
        for _ in range(3):
            async with client.open_session() as session:
                session.write(bytes(1_000_000))
                assert await session.read(-1) == b"enough"
                session.write(b"dropped in silence")
                await session.drain()
                assert session.delivery is Delivery.COMPLETE
        assert await client.request(b"x") == b"enough"
        assert client.stats().connections == 1


async def test_graceful_shutdown_finishes_running_requests_and_lets_others_be_retried() -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def work(session: jmux.ServerSession) -> None:
        data = await session.read(-1)
        started.set()
        await release.wait()
        session.write(data)

    listener = await jmux.serve(work, "127.0.0.1", 0)
    client = await jmux.connect("127.0.0.1", listener.port)
    running = asyncio.ensure_future(client.request(b"running"))
    await soon(started.wait())
    (connection,) = listener._connections
    stopping = asyncio.ensure_future(listener.shutdown(STALL_S))
    await until(lambda: connection._draining)
    late = await client.open_session()
    late.write(b"late")
    late.finish()
    await until(lambda: len(connection.open_streams) == 2)
    release.set()
    await soon(stopping)
    assert await running == b"running"
    with pytest.raises(ClosedError, match="shut down"):
        await soon(late.read())
    assert late.may_retry
    await client.close()


async def test_a_lost_connection_is_partial_delivery() -> None:
    async def die(session: jmux.ServerSession) -> None:
        await session.readexactly(1)
        session._connection.end(abort=True)

    async with (
        jmux.serve(die, "127.0.0.1", 0) as listener,
        jmux.connect("127.0.0.1", listener.port) as client,
        client.open_session() as session,
    ):
        session.write(b"x")
        with pytest.raises(MainstemError):
            await session.read()
        assert session.delivery is Delivery.PARTIAL


async def test_over_unix_and_tls(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    async with jmux.serve(echo, path=path), await jmux.connect(path=path) as client:
        assert await client.request(bytes(200_000)) == bytes(200_000)
    cert, key = certificate(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    trust = ssl.create_default_context(cafile=str(cert))
    async with (
        jmux.serve(echo, "127.0.0.1", 0, ssl=server) as listener,
        jmux.connect("127.0.0.1", listener.port, ssl=trust, server_hostname="localhost") as client,
    ):
        assert await client.request(bytes(200_000)) == bytes(200_000)


async def test_connect_fails_if_the_server_does_not_speak_jmux() -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n")
        await reader.read()
        writer.close()
        ends.append("rude")

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await reader.read()
        writer.close()
        ends.append("silent")

    ends: list[str] = []

    async with await asyncio.start_server(rude, "127.0.0.1", 0) as server:
        with pytest.raises(RemoteProtocolError):
            await jmux.connect("127.0.0.1", server.sockets[0].getsockname()[1])
        await until(lambda: ends == ["rude"])
    quick = jmux.Settings(handshake_timeout=0.05)
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Timeout):
            await jmux.connect("127.0.0.1", port, settings=quick)
        with pytest.raises(Timeout):
            await jmux.connect("127.0.0.1", port, timeout=0.05)
        await until(lambda: ends == ["rude", "silent", "silent"])


@pytest.mark.parametrize("ends", ["client", "server"])
async def test_a_connection_that_ends_between_requests_counts_as_closed(ends: str) -> None:
    async with jmux.serve(echo) as listener, jmux.connect("127.0.0.1", listener.port) as client:
        assert await client.request(b"tide") == b"tide"
        await (client.close() if ends == "client" else listener.close())
        for endpoint in (client, listener):
            await until(lambda endpoint=endpoint: endpoint.stats().connections == 0)  # type: ignore[misc]
            assert (endpoint.stats().connections_closed, endpoint.stats().connections_lost) == (1, 0)


async def test_a_connection_that_ends_during_a_request_counts_as_lost() -> None:
    async def wait_forever(_: jmux.ServerSession) -> None:
        await asyncio.Event().wait()

    async with jmux.serve(wait_forever) as listener, jmux.connect("127.0.0.1", listener.port) as client:
        session = await client.open_session()
        session.write(b"tide")
        await until(lambda: listener.stats().streams == 1)
        await listener.close()
        await until(lambda: client.stats().connections == 0)
        assert (client.stats().connections_closed, client.stats().connections_lost) == (0, 1)


async def test_session_stats_count_passed_and_queued_bytes() -> None:
    async with (
        jmux.serve(echo) as listener,
        jmux.connect("127.0.0.1", listener.port) as client,
        client.open_session() as session,
    ):
        session.write(b"tide")
        assert (session.stats().unsent_bytes, session.stats().bytes_sent) == (4, 0)
        session.finish()
        await until(lambda: session.stats().unread_bytes == 4)
        assert await session.read(-1) == b"tide"
        assert session.stats() == jmux.StreamStats(bytes_sent=4, bytes_received=4, unsent_bytes=0, unread_bytes=0)


async def test_completed_sessions_are_not_counted_as_streams() -> None:
    async with jmux.serve(echo) as listener, jmux.connect("127.0.0.1", listener.port) as client:
        for _ in range(3):
            assert await asyncio.gather(*(client.request(b"tide") for _ in range(4))) == [b"tide"] * 4
            await until(lambda: listener.stats().streams == 0)
            await until(lambda: client.stats().streams == 0)
