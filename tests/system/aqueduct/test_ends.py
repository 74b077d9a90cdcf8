"""Ends, cancellation, and notification of Aqueduct's handlers, connections, and servers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import STALL_S, settle, soon, until

from mainstem import aqueduct
from mainstem.aqueduct import Message
from mainstem.aqueduct.aio import Connection, channel, oneshot
from mainstem.aqueduct.quic import lifecycle
from mainstem.aqueduct.quic.farewell import SENDINGS, SHORTEST_GAP, stateless_reset
from mainstem.aqueduct.quic.udp import UdpSocket
from mainstem.aqueduct.timing import Timing
from mainstem.errors import ConfigurationError, ConnectionLost, NoReceivers, Timeout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainstem.aqueduct.aio import Server
    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system


class Log:
    """The history of a handler."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.ended = asyncio.Event()
        self.cancelled = False

    async def wait_for_ever(self, connection: Connection) -> None:
        self.started.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            self.ended.set()


async def serving(
    certificates: CertificateFiles, handler: Callable[[Connection], Awaitable[None]], **options: Any
) -> Server:
    return await aqueduct.aio.serve(handler, certificate=certificates.certificate, key=certificates.key, **options)


# At least the size of a packet that acknowledges a ping.
PING_BYTES = 25

# Less than a server's default drain timeout.
BEFORE_THE_DEFAULT_S = 9.0


async def test_a_handler_is_cancelled_when_its_client_closes_the_connection(certificates: CertificateFiles) -> None:
    log = Log()
    async with await serving(certificates, log.wait_for_ever) as server:
        connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
        await soon(log.started.wait())
        connection.abort()
        await connection.close()
        await soon(log.ended.wait())
        assert log.cancelled


async def test_a_handler_is_cancelled_when_its_client_is_lost(certificates: CertificateFiles) -> None:
    log = Log()
    async with await serving(certificates, log.wait_for_ever, idle_timeout=1.0, keep_alive=0) as server:
        connection = await aqueduct.aio.connect(
            "localhost", server.port, ca=certificates.ca, keep_alive=0, idle_timeout=1.0
        )
        await soon(log.started.wait())
        await soon(log.ended.wait())
        assert log.cancelled
        connection.abort()
        await connection.close()


@pytest.mark.parametrize("client", ["qh3", "aioquic"])
@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_keep_alives_follow_the_shorter_idle_timeout(
    certificates: CertificateFiles, backend: str, client: str
) -> None:
    connections: list[Connection] = []

    async def handler(connection: Connection) -> None:
        connections.append(connection)
        await connection.wait_closed()

    def intervals(*ends: Connection) -> list[float]:
        return [end._protocol.adapter.lifecycle.keep_alive for end in ends]

    async with await serving(certificates, handler, backend=backend, idle_timeout=12.0) as server:
        for times, expected in (
            ({}, [4.0, 4.0]),
            ({"idle_timeout": 6.0}, [2.0, 2.0]),
            ({"keep_alive": 1.0}, [1.0, 4.0]),
            ({"keep_alive": 0}, [0.0, 4.0]),
        ):
            connections.clear()
            options: dict[str, Any] = {"ca": certificates.ca, "backend": client, **times}
            async with aqueduct.aio.connect("localhost", server.port, **options) as connection:
                await until(lambda: connections and connections[0]._protocol.adapter.lifecycle.handshake_done)
                assert intervals(connection, connections[0]) == expected


async def test_a_quiet_connection_outlives_a_short_idle_timeout_of_the_peer(certificates: CertificateFiles) -> None:
    log = Log()
    async with (
        await serving(certificates, log.wait_for_ever, idle_timeout=3.0, keep_alive=0) as server,
        aqueduct.aio.connect("localhost", server.port, ca=certificates.ca) as connection,
    ):
        before = connection.stats().bytes_received
        # Without pings, the server would send nothing and the connection would end.
        await until(lambda: connection.stats().bytes_received - before > 4 * PING_BYTES or connection.closed)
        assert not connection.closed


async def test_a_handler_has_time_to_read_what_the_client_finished(certificates: CertificateFiles) -> None:
    received: list[bytes] = []
    done = asyncio.Event()

    async def slow(connection: Connection) -> None:
        async for message in connection.receiver:
            await asyncio.sleep(0.005)
            received.append(message)
        done.set()

    async with await serving(certificates, slow) as server:
        async with aqueduct.aio.connect("localhost", server.port, ca=certificates.ca) as connection:
            for number in range(50):
                await connection.sender.send(b"%d" % number)
        await soon(done.wait())
    assert received == [b"%d" % number for number in range(50)]


async def test_a_handler_whose_client_had_finished_is_cancelled_after_the_drain_timeout(
    certificates: CertificateFiles,
) -> None:
    log = Log()
    async with await serving(certificates, log.wait_for_ever, drain_timeout=0.05) as server:
        async with aqueduct.aio.connect("localhost", server.port, ca=certificates.ca):
            await soon(log.started.wait())
        await asyncio.wait_for(log.ended.wait(), BEFORE_THE_DEFAULT_S)
        assert log.cancelled


async def test_channels_left_open_by_a_handler_end_after_the_drain_timeout(certificates: CertificateFiles) -> None:
    kept: list[Any] = []

    async def handler(connection: Connection) -> None:
        kept.append(await connection.receiver.receive())

    async with await serving(certificates, handler, drain_timeout=0.05) as server:
        connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
        _, receiver = channel()
        await connection.sender.send(Message(b"", [receiver]))
        await asyncio.wait_for(connection.wait_closed(), BEFORE_THE_DEFAULT_S)


async def test_a_connection_whose_handler_returned_does_not_wait_for_the_drain_timeout(
    certificates: CertificateFiles,
) -> None:
    tasks: list[weakref.ref[Any]] = []

    async def handler(connection: Connection) -> None:
        tasks.append(weakref.ref(asyncio.current_task()))  # type: ignore[arg-type]
        async for _ in connection.receiver:
            pass
        await connection.wait_closed()
        await left.wait()

    left = asyncio.Event()
    async with await serving(certificates, handler) as server:
        async with aqueduct.aio.connect("localhost", server.port, ca=certificates.ca):
            pass
        await until(lambda: tasks)
        left.set()
        await until(lambda: not server._tasks)
        gc.collect()
        assert [task() for task in tasks] == [None]


async def test_a_handler_sees_the_end_of_the_entrypoint_before_the_client_closes(
    certificates: CertificateFiles,
) -> None:
    ends: list[str] = []

    async def handler(connection: Connection) -> None:
        try:
            async for _ in connection.receiver:
                pass
            ends.append("in order")
        except BaseException as error:
            ends.append(repr(error))
            raise

    async with await serving(certificates, handler) as server:
        for _ in range(5):
            async with aqueduct.aio.connect("localhost", server.port, ca=certificates.ca):
                pass
        await until(lambda: len(ends) == 5, progress=lambda: len(ends))
    assert ends == ["in order"] * 5


async def test_a_handler_keeps_running_after_closing_its_connection(certificates: CertificateFiles) -> None:
    go_on, done = asyncio.Event(), asyncio.Event()

    async def handler(connection: Connection) -> None:
        connection.abort()
        await connection.close()
        await go_on.wait()
        done.set()

    async with await serving(certificates, handler) as server:
        connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
        await soon(connection.wait_closed())
        await until(lambda: not server.connections)
        go_on.set()
        await soon(done.wait())


async def test_closing_a_server_waits_a_limited_time_for_its_handlers(
    certificates: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    release = asyncio.Event()
    cleaned: list[str] = []
    started, cleaning, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def tidy(connection: Connection) -> None:
        try:
            started.set()
            await asyncio.get_running_loop().create_future()
        finally:
            cleaning.set()
            await go_on.wait()
            cleaned.append("tidy")

    server = await serving(certificates, tidy)
    connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
    await soon(started.wait())
    closing = asyncio.ensure_future(server.close(timeout=STALL_S))
    await soon(cleaning.wait())
    await soon(connection.wait_closed())
    assert not closing.done()
    go_on.set()
    await soon(closing)
    assert cleaned == ["tidy"]
    connection.abort()
    await connection.close()
    started.clear()

    async def stubborn(connection: Connection) -> None:
        started.set()
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    server = await serving(certificates, stubborn)
    connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
    await soon(started.wait())
    await soon(server.close(timeout=0.1))
    assert "is still running 0.1 s after it was cancelled" in caplog.text
    release.set()
    connection.abort()
    await connection.close()
    await until(lambda: not server._tasks)


async def test_shutdown_lets_handlers_return_and_rejects_new_clients(certificates: CertificateFiles) -> None:
    answered = asyncio.Event()
    go = asyncio.Event()
    received = asyncio.Event()

    async def handler(connection: Connection) -> None:
        message = await connection.receiver.receive()
        received.set()
        await go.wait()
        await message.attachments[0].send(b"done")
        answered.set()

    server = await serving(certificates, handler)
    connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
    respond, response = oneshot()
    await connection.sender.send(Message(b"work", [respond]))
    await soon(received.wait())
    ending = asyncio.ensure_future(server.shutdown(timeout=STALL_S))
    with pytest.raises((Timeout, ConnectionLost)):
        await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca, timeout=0.5)
    go.set()
    assert await soon(response) == b"done"
    await soon(ending)
    assert answered.is_set()
    connection.abort()
    await connection.close()


async def test_a_handshake_that_completes_during_shutdown_is_rejected(
    certificates: CertificateFiles,
) -> None:
    from mainstem.aqueduct.engine import AqueductEngine

    served: list[Connection] = []
    go = asyncio.Event()

    async def handler(connection: Connection) -> None:
        served.append(connection)
        await go.wait()

    server = await serving(certificates, handler)
    first = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
    await until(lambda: served)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AqueductEngine, "start", lambda self, now_ns: None)
        late = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
    ending = asyncio.ensure_future(server.shutdown(timeout=STALL_S))
    await settle()
    late._protocol.engine.start(late._protocol.now_ns)
    late._protocol.wake()
    await soon(late.wait_closed())
    assert not ending.done()
    go.set()
    await soon(ending)
    assert len(served) == 1
    first.abort()
    await first.close()


async def test_a_client_that_never_sends_headers_is_disconnected(certificates: CertificateFiles) -> None:
    log = Log()
    async with await serving(certificates, log.wait_for_ever, handshake_timeout=0.5) as server:
        from mainstem.aqueduct.engine import AqueductEngine

        def silent(self: AqueductEngine, now_ns: int) -> None:
            """Send nothing."""

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AqueductEngine, "start", silent)
            connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
        assert server.connections == 1
        with pytest.raises(ConnectionLost, match="waiting for the peer's connection headers"):
            await soon(connection.wait_closed())
        assert not log.started.is_set()
        connection.abort()
        await connection.close()


async def test_disconnecting_peers_log_no_error(
    certificates: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mainstem.aqueduct")
    received = asyncio.Event()
    over = 0

    async def iterate(connection: Connection) -> None:
        nonlocal over
        try:
            async for message in connection.receiver:
                received.set()
                if isinstance(message, Message):
                    async with asyncio.TaskGroup() as group:
                        for handle in message.attachments:
                            group.create_task(handle.receive())
        finally:
            over += 1

    async with await serving(certificates, iterate) as server:
        # In turn, the entrypoint is cancelled, the connection is closed, and a channel in a task group is cancelled.
        connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
        await connection.sender.send(b"tide")
        connection.sender.abort()
        await soon(connection.wait_closed())
        connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
        await connection.sender.send_acknowledged(b"tide")
        connection.abort()
        await connection.close()
        connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
        received.clear()
        sender, receiver = channel()
        await connection.sender.send(Message(b"updates", [receiver]))
        await soon(received.wait())
        sender.abort()
        await soon(connection.wait_closed())
        await until(lambda: over == 3, progress=lambda: over)
    assert over == 3

    async def poll(connection: Connection) -> None:
        nonlocal over
        try:
            while True:
                await connection.receiver.receive()
        finally:
            over += 1

    async with await serving(certificates, poll) as server:
        # The entrypoint finishes, and then the handler receives once more.
        connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
        await connection.sender.send(b"tide")
        connection.sender.finish()
        await soon(connection.wait_closed())
    assert over == 4
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_failing_handler_is_logged_and_sets_the_close_code(
    certificates: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(connection: Connection) -> None:
        raise RuntimeError("no water")

    async with await serving(certificates, broken) as server:
        connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
        with pytest.raises(ConnectionLost, match=r"handler failed \(4\)"):
            await soon(connection.wait_closed())
        connection.abort()
        await connection.close()
    assert "no water" in caplog.text


async def test_a_protocol_violation_is_logged_once_with_the_peer_and_the_rule(
    certificates: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async with await serving(certificates, Log().wait_for_ever) as server:
        for _ in range(3):
            connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
            await connection.headers()
            connection._protocol.engine.output.send_datagram(b"\x63")
            connection._protocol.wake()
            with contextlib.suppress(Exception):
                await soon(connection.wait_closed())
            connection.abort()
            await connection.close()
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == 2
    assert "127.0.0.1:" in lines[0]
    assert "(frame type)" in lines[0]
    assert "2 more times" in lines[1]


async def test_leaving_a_connection_delivers_sent_messages(certificates: CertificateFiles) -> None:
    received: list[bytes] = []
    done = asyncio.Event()

    async def collect(connection: Connection) -> None:
        received.extend([message async for message in connection.receiver])
        done.set()

    sent = [b"%05d" % number + bytes(2000) for number in range(1000)]
    async with await serving(certificates, collect) as server:
        async with aqueduct.aio.connect("localhost", server.port, ca=certificates.ca) as connection:
            for message in sent:
                await connection.sender.send(message)
        await soon(done.wait())
    assert received == sent


@pytest.mark.parametrize("server_backend", ["qh3", "aioquic"])
@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_leaving_does_not_wait_once_the_server_has_the_close(
    certificates: CertificateFiles, backend: str, server_backend: str
) -> None:
    async def handler(connection: Connection) -> None:
        await connection.wait_closed()

    async def leave() -> float:
        async with aqueduct.aio.connect("localhost", server.port, ca=certificates.ca, backend=backend):
            start = time.monotonic()
        return time.monotonic() - start

    async with await serving(certificates, handler, backend=server_backend) as server:
        assert min([await leave() for _ in range(5)]) < SHORTEST_GAP


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_leaving_ends_even_if_the_server_is_silent(
    certificates: CertificateFiles, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    async with await serving(certificates, log.wait_for_ever) as server:
        async with aqueduct.aio.connect("localhost", server.port, ca=certificates.ca, backend=backend):
            await soon(log.started.wait())
            # Behave like a server that sends no stateless resets.
            monkeypatch.setattr(lifecycle, "stateless_reset", lambda token: stateless_reset(bytes(len(token))))
            start = time.monotonic()
        assert time.monotonic() - start > 0.9 * SENDINGS * SHORTEST_GAP
        await until(lambda: not server.connections)


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_a_client_learns_of_a_close_although_its_packets_were_lost(
    certificates: CertificateFiles, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    server = await serving(certificates, log.wait_for_ever, backend=backend)
    connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca, backend=backend)
    await soon(log.started.wait())
    send, lost = server._udp.send, []

    def lose_the_first(datagrams: list[Any]) -> None:
        if not any(protocol.adapter.lifecycle.closing for protocol in server._protocols) or lost:
            send(datagrams)
        else:
            lost.extend(datagrams)

    monkeypatch.setattr(server._udp, "send", lose_the_first)
    await server.close()
    assert lost
    # Much sooner than by its idle timeout.
    await asyncio.wait_for(connection.wait_closed(), 5)
    await connection.close()


async def test_leaving_a_connection_raises_if_the_server_left_early(
    certificates: CertificateFiles,
) -> None:
    log = Log()
    server = await serving(certificates, log.wait_for_ever)
    with pytest.raises(ConnectionLost, match=r"\d+ messages of \d+ bytes were not acknowledged"):  # noqa: PT012
        async with aqueduct.aio.connect("localhost", server.port, ca=certificates.ca) as connection:
            await soon(log.started.wait())
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(send_for_ever(connection), 0.3)
            await server.close()


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
@pytest.mark.parametrize("closer", ["connection.close", "connection.abort", "server.close", "server.shutdown"])
async def test_messages_received_just_before_a_server_closed_are_not_lost(
    certificates: CertificateFiles, closer: str, backend: str
) -> None:
    received = asyncio.Event()

    async def handler(connection: Connection) -> None:
        message = await connection.receiver.receive()
        await message.attachments[0].receive()
        assert await connection.receiver.receive() == b"second"
        # Acknowledgments are delayed, so neither the client's messages nor its channel's is acknowledged yet.
        if closer == "connection.close":
            await connection.close()
        elif closer == "connection.abort":
            connection.abort()
        received.set()
        await asyncio.sleep(STALL_S)

    server = await serving(certificates, handler, backend=backend)
    connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca, backend=backend)
    await connection.headers()
    sender, receiver = channel()
    await connection.sender.send(Message(b"first", [receiver]))
    await sender.send(b"on the channel")
    await connection.sender.send(b"second")
    await soon(received.wait())
    if closer == "server.shutdown":
        await server.shutdown(0)
    elif closer == "server.close":
        await server.close()
    await soon(connection.wait_closed())
    await connection.close()
    await server.close()


async def test_messages_received_just_before_a_client_closed_are_not_lost(
    certificates: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    outcome: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    async def handler(connection: Connection) -> None:
        message = await connection.receiver.receive()
        sender = message.attachments[0]
        try:
            await sender.send_acknowledged(b"the last")
            outcome.set_result(None)
        except ConnectionLost as error:
            outcome.set_result(error)

    async with await serving(certificates, handler) as server:
        connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
        sender, receiver = channel()
        await connection.sender.send(Message(b"", [sender]))
        assert await receiver.receive() == b"the last"
        connection.abort()
        await connection.close()
        assert await soon(outcome) is None
    assert not caplog.messages


async def test_leaving_reports_messages_the_server_had_not_read(certificates: CertificateFiles) -> None:
    started = asyncio.Event()

    async def handler(connection: Connection) -> None:
        # Otherwise, a slow machine acknowledges them before the server closes.
        connection._protocol.engine.context.timing = Timing(ack_delay_ns=10**12)
        await connection.receiver.receive()
        started.set()
        await asyncio.sleep(STALL_S)

    server = await serving(certificates, handler)
    connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
    await connection.headers()
    for number in range(3):
        await connection.sender.send(b"%d" % number)
    await soon(started.wait())
    await server.close()
    with pytest.raises(ConnectionLost, match="3 messages of 3 bytes were not acknowledged"):
        await connection.close()


async def send_for_ever(connection: Connection) -> None:
    while True:
        await connection.sender.send(bytes(4000))


async def test_leaving_a_sender_raises_if_its_receiver_closed_early(
    certificates: CertificateFiles,
) -> None:
    async def close_at_once(connection: Connection) -> None:
        message = await connection.receiver.receive()
        await message.attachments[0].close()
        await asyncio.sleep(10)

    async with await serving(certificates, close_at_once) as server:
        connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
        sender, receiver = channel()
        with pytest.raises(NoReceivers):  # noqa: PT012 - raised at the end of the block
            async with sender:
                await connection.sender.send(Message(b"", [receiver]))
                for _ in range(1000):
                    await sender.send(bytes(10_000))
        connection.abort()
        await connection.close()


@pytest.mark.parametrize("library", ["qh3", "aioquic"])
async def test_a_server_reads_the_certificate_of_its_client(
    tmp_path_factory: pytest.TempPathFactory, library: str
) -> None:
    from cryptography.x509 import load_der_x509_certificate

    files = aqueduct.make_certificates(tmp_path_factory.mktemp("mutual"), clients=["gauge"])
    other = aqueduct.make_certificates(tmp_path_factory.mktemp("other"), clients=["gauge"])

    async def name(connection: Connection) -> None:
        assert connection.peer_certificate is not None
        assert connection.peer_certificate["subject"] == ((("commonName", "gauge"),),)
        assert connection.peer_address[0] == "127.0.0.1"
        assert connection.peer_certificate_der is not None
        subject = load_der_x509_certificate(connection.peer_certificate_der).subject.rfc4514_string()
        message = await connection.receiver.receive()
        await message.attachments[0].send(subject.encode())

    server = await serving(files, name, backend="aioquic", client_ca=files.ca)
    async with server:
        certificate, key = files.clients["gauge"]
        async with aqueduct.aio.connect(
            "localhost", server.port, ca=files.ca, certificate=certificate, key=key, backend=library
        ) as connection:
            respond, response = oneshot()
            await connection.sender.send(Message(b"", [respond]))
            assert await soon(response) == b"CN=gauge"
            assert connection.peer_certificate is not None
        foreign = {"certificate": other.clients["gauge"][0], "key": other.clients["gauge"][1]}
        server_pair = {"certificate": files.certificate, "key": files.key}
        for refused in (foreign, server_pair, {}):
            with pytest.raises(ConnectionLost):  # noqa: PT012 - a client learns of it at or after the handshake
                connection = await aqueduct.aio.connect(
                    "localhost", server.port, ca=files.ca, backend=library, **refused
                )
                try:
                    await soon(connection.headers())
                finally:
                    connection.abort()
                    await connection.close()


async def test_unusable_certificate_options_are_refused(certificates: CertificateFiles) -> None:
    with pytest.raises(ConfigurationError, match="qh3"):
        await serving(certificates, Log().wait_for_ever, client_ca=certificates.ca)
    with pytest.raises(ConfigurationError, match="tickets"):
        await serving(
            certificates,
            Log().wait_for_ever,
            client_ca=certificates.ca,
            backend="aioquic",
            tickets=aqueduct.ServerTickets(),
        )
    with pytest.raises(ConfigurationError, match="client_ca"):
        await aqueduct.aio.connect("localhost", 1, client_ca=certificates.ca)


async def test_a_timeout_names_a_server_that_is_silent_after_tls(certificates: CertificateFiles) -> None:
    udp = UdpSocket(host="127.0.0.1", port=0, family=2)
    try:
        with pytest.raises(Timeout):
            await aqueduct.aio.connect("127.0.0.1", udp.address[1], ca=certificates.ca, timeout=0.2)
    finally:
        udp.close()


async def test_cancelling_connect_or_close_leaves_no_socket_or_task(certificates: CertificateFiles) -> None:
    def sockets() -> int:
        count = 0
        for fd in os.listdir("/proc/self/fd"):
            # The descriptor that listdir used is closed by now.
            with contextlib.suppress(OSError):
                count += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
        return count

    async def handler(connection: Connection) -> None:
        async for _ in connection.receiver:
            pass

    async with await serving(certificates, handler) as server:
        before = sockets()
        for turns in range(1, 41):
            connecting = asyncio.ensure_future(aqueduct.aio.connect("localhost", server.port, ca=certificates.ca))
            for _ in range(turns):
                await asyncio.sleep(0.0005)
            connecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                connection = await connecting
                closing = asyncio.ensure_future(connection.__aexit__(None, None, None))
                await asyncio.sleep(0.0005 * (turns % 5))
                closing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await closing
        await until(lambda: sockets() == before and not server.connections, progress=sockets)
        assert sockets() == before
        assert server.connections == 0
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_full_server_warns_once_and_counts_rejections(
    certificates: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async with await serving(certificates, Log().wait_for_ever, max_connections=1) as server:
        connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
        for _ in range(2):
            with pytest.raises(Timeout):
                await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca, timeout=0.5)
        connection.abort()
        await connection.close()
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == 2
    assert "is ignored: the server has 1 connections" in lines[0]
    assert "more times" in lines[1]


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
@pytest.mark.parametrize("step", ["receive", "deliver", "transmit", "timer"])
async def test_an_internal_failure_ends_only_its_connection(
    certificates: CertificateFiles,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    step: str,
    backend: str,
) -> None:
    async def echo(connection: Connection) -> None:
        async for message in connection.receiver:
            await message.attachments[0].send(message.payload)

    async def ask(connection: Connection) -> Any:
        respond, response = oneshot()
        await connection.sender.send(Message(b"tide", [respond]))
        return await soon(response)

    def fail(*_: object, **__: object) -> None:
        raise OverflowError("a fault")

    async with await serving(certificates, echo, backend=backend) as server:
        first, second = [
            await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca, backend=backend) for _ in range(2)
        ]
        assert await ask(first) == await ask(second) == b"tide"
        session = next(iter(server._protocols))
        monkeypatch.setattr(session.adapter, step, fail)
        receive = server._udp.receive
        with monkeypatch.context() as patch:
            # The packets of both clients arrive in one batch.
            patch.setattr(server._udp, "receive", list)
            asking = [asyncio.ensure_future(ask(connection)) for connection in (first, second)]
            await asyncio.sleep(0.05)
            patch.setattr(server._udp, "receive", receive)
            assert await asking[1] == b"tide"
            if step == "transmit":
                asking[0].cancel()  # the server has no way left to notify this client
            else:
                with pytest.raises(ConnectionLost):
                    await soon(first.wait_closed())
                # The timer may fail as late as while the response is in flight.
                [error] = await asyncio.gather(asking[0], return_exceptions=True)
                assert isinstance(error, ConnectionLost) or (step == "timer" and error == b"tide")
        await until(lambda: server.connections == 1)
        assert await ask(second) == b"tide"
        assert isinstance(session.error, ConnectionLost)
        assert "OverflowError: a fault" in str(session.error)
        assert any("OverflowError: a fault" in record.message for record in caplog.records)
        second.abort()
        await second.close()
        first.abort()
        await first.close()


async def test_connection_headers_that_raise_end_the_connection(certificates: CertificateFiles) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("a fault")

    async with await serving(certificates, Log().wait_for_ever, headers=fail) as server:
        connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
        with pytest.raises(ConnectionLost):
            await soon(connection.wait_closed())
        connection.abort()
        await connection.close()


@pytest.mark.parametrize("fault", [ZeroDivisionError("a fault"), asyncio.CancelledError(), KeyError("a fault")])
async def test_any_exception_of_a_handler_ends_its_connection(
    certificates: CertificateFiles, fault: BaseException
) -> None:
    async def handler(_: Connection) -> None:
        raise fault

    async with await serving(certificates, handler) as server:
        connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
        with contextlib.suppress(ConnectionLost):
            await soon(connection.wait_closed())
        connection.abort()
        await connection.close()
        await until(lambda: server.connections == 0)


async def test_a_running_handler_occupies_a_connection_slot(certificates: CertificateFiles) -> None:
    running = most = 0
    release = asyncio.Event()

    async def slow_to_end(connection: Connection) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await release.wait()
            running -= 1

    async with await serving(certificates, slow_to_end, max_connections=2) as server:
        for number in range(1, 3):
            connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)
            await until(lambda number=number: running == number)
            connection.abort()
            await connection.close()
        await until(lambda: server.connections == 0)
        with pytest.raises((Timeout, ConnectionLost)):
            await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca, timeout=0.5)
        assert server.stats().connections_refused
        assert most == 2
        release.set()
        await until(lambda: running == 0)
        await (await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca)).close()
