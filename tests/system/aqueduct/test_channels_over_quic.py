"""Channels between a client and a server on this machine, with each QUIC library on each side."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.tickets import completed
from tests.support.waiting import STALL_S, soon, until

from mainstem import aqueduct
from mainstem.aqueduct import CborSerializer, Message, Mode, MsgspecSerializer, ServerTickets, SessionCache
from mainstem.aqueduct.aio import Connection, Receiver, Sender, channel, oneshot
from mainstem.aqueduct.observe import FrameLog, dump_log
from mainstem.aqueduct.quic.tickets import ticket_name
from mainstem.errors import (
    Aborted,
    BackPressured,
    ClosedError,
    ConfigurationError,
    ConnectionLost,
    LocalProtocolError,
    MainstemError,
    NoReceivers,
    RemoteProtocolError,
    Timeout,
)

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system

PAIRS = [(client, server) for client in ("qh3", "aioquic") for server in ("qh3", "aioquic")]
Handler = Callable[[Connection], Awaitable[None]]


@asynccontextmanager
async def joined(
    certificates: CertificateFiles, handler: Handler, *, client: str = "qh3", server: str = "qh3", **options: Any
) -> AsyncIterator[Connection]:
    """Connect a client to a server that runs ``handler``."""
    both = {name: options.pop(name) for name in ("serializers", "receive_messages", "receive_bytes") if name in options}
    serving = await aqueduct.aio.serve(
        handler, certificate=certificates.certificate, key=certificates.key, backend=server, **both, **options
    )
    async with (
        serving,
        aqueduct.aio.connect("localhost", serving.port, ca=certificates.ca, backend=client, **both) as connection,
    ):
        yield connection


async def at_rest(connection: Connection, halves: int = 1) -> None:
    """Wait until at most `halves` halves are left."""

    def left() -> int:
        gc.collect()
        return connection._protocol.engine.live_halves

    await until(lambda: left() <= halves, progress=left, poll_s=0.01)


async def echo(connection: Connection) -> None:
    async for message in connection.receiver:
        if isinstance(message, Message):
            for handle in message.attachments:
                if isinstance(handle, Sender):
                    await handle.send(b"echo " + message.payload)
                    handle.finish()


@pytest.mark.parametrize(("client", "server"), PAIRS)
async def test_oneshot_requests_leave_no_state(certificates: CertificateFiles, client: str, server: str) -> None:
    async with joined(certificates, echo, client=client, server=server) as connection:
        for number in range(50):
            answer_to, answer = oneshot()
            await connection.sender.send(Message(b"%d" % number, [answer_to]))
            assert await answer == b"echo %d" % number
        del answer_to, answer
        await at_rest(connection)
        assert len(connection._protocol.engine.streams.open) <= 4


@pytest.mark.parametrize(("client", "server"), PAIRS)
async def test_every_mode_keeps_its_delivery_guarantee(
    certificates: CertificateFiles, client: str, server: str
) -> None:
    got: dict[bytes, list[bytes]] = {}
    done = asyncio.Event()

    async def handler(connection: Connection) -> None:
        async def collect(name: bytes, receiver: Receiver[bytes]) -> None:
            got[name] = [message async for message in receiver]

        tasks = [
            asyncio.ensure_future(collect(message.payload, message.attachments[0]))
            async for message in connection.receiver
        ]
        await asyncio.gather(*tasks)
        done.set()

    sent = [b"%06d" % number + bytes(number % 50) for number in range(600)]
    async with joined(certificates, handler, client=client, server=server) as connection:
        senders = []
        for mode in Mode:
            sender, receiver = channel(mode=mode)
            await connection.sender.send(Message(mode.value.encode(), [receiver]))
            for message in sent:
                await sender.send(message)
            sender.finish()
            senders.append(sender)
        connection.sender.finish()
        await soon(done.wait())
        for sender in senders:
            await sender.wait_closed()
    assert got[b"ordered"] == sent
    assert sorted(got[b"unordered"]) == sent
    assert set(got[b"unreliable"]) <= set(sent)
    assert len(got[b"unreliable"]) > 0


@pytest.mark.parametrize(("client", "server"), PAIRS)
async def test_an_unreliable_message_too_large_for_a_datagram_is_delivered(
    certificates: CertificateFiles, client: str, server: str
) -> None:
    got = asyncio.get_running_loop().create_future()

    async def handler(connection: Connection) -> None:
        message = await connection.receiver.receive()
        got.set_result(await message.attachments[0].receive())

    async with joined(certificates, handler, client=client, server=server) as connection:
        sender, receiver = channel(mode=Mode.UNRELIABLE)
        await connection.sender.send(Message(b"", [receiver]))
        await sender.send(bytes(100_000))
        assert await soon(got) == bytes(100_000)


@pytest.mark.parametrize("serializer", [MsgspecSerializer, CborSerializer])
async def test_handles_can_be_anywhere_in_a_message(certificates: CertificateFiles, serializer: Any) -> None:
    async def handler(connection: Connection) -> None:
        async for request in connection.receiver:
            total = 0
            async for number in request["numbers"]:
                total += number
            await request["answer"].send({"total": total})

    async with joined(certificates, handler, serializers=[serializer()]) as connection:
        numbers, receiver = channel()
        answer_to, answer = oneshot()
        await numbers.send(1)
        await connection.sender.send({"numbers": receiver, "answer": answer_to, "list": [1, "two", None]})
        for number in (2, 3):
            await numbers.send(number)
        numbers.finish()
        assert await answer == {"total": 6}


async def test_the_sides_agree_on_a_common_serializer(certificates: CertificateFiles) -> None:
    async def handler(connection: Connection) -> None:
        request = await connection.receiver.receive()
        await request["answer"].send(request["value"])

    serving = await aqueduct.aio.serve(
        handler, certificate=certificates.certificate, key=certificates.key, serializers=[CborSerializer()]
    )
    async with serving:
        offered = [MsgspecSerializer(), CborSerializer()]
        async with aqueduct.aio.connect(
            "localhost", serving.port, ca=certificates.ca, serializers=offered
        ) as connection:
            answer_to, answer = oneshot()
            await connection.sender.send({"answer": answer_to, "value": [1, 2]})
            assert await answer == [1, 2]
        async with aqueduct.aio.connect(
            "localhost", serving.port, ca=certificates.ca, serializers=[MsgspecSerializer()]
        ) as connection:
            # The refusal may have arrived already.
            with contextlib.suppress(ConnectionLost):
                await connection.sender.send(b"for a handler that never runs")
            with pytest.raises(ConnectionLost) as caught:
                await connection.headers()
            assert caught.value.delivery == "none"
            with pytest.raises(ConnectionLost) as caught:
                await connection.sender.wait_closed()
            assert caught.value.delivery == "none"


async def test_both_sides_send_headers(certificates: CertificateFiles) -> None:
    seen = []

    def answer(headers: Any) -> list[tuple[str, bytes]]:
        seen.extend(headers)
        return [("answer-0a1b2c", b"two"), ("answer-0a1b2c", b"three")]

    serving = await aqueduct.aio.serve(echo, certificate=certificates.certificate, key=certificates.key, headers=answer)
    async with serving:
        asked = {"question-0a1b2c": "one"}
        async with aqueduct.aio.connect("localhost", serving.port, ca=certificates.ca, headers=asked) as connection:
            assert await connection.headers() == (("answer-0a1b2c", b"two"), ("answer-0a1b2c", b"three"))
    assert seen == [("question-0a1b2c", b"one")]


async def test_errors_tell_how_a_channel_ended(certificates: CertificateFiles) -> None:
    reports: asyncio.Queue[str] = asyncio.Queue()
    taken: asyncio.Queue[Any] = asyncio.Queue()

    async def handler(connection: Connection) -> None:
        async for message in connection.receiver:
            for handle in message.attachments:
                taken.put_nowait(handle)
                try:
                    if isinstance(handle, Receiver):
                        while True:
                            await handle.receive()
                    else:
                        await handle.wait_closed()
                        reports.put_nowait("finished")
                except MainstemError as error:
                    reports.put_nowait(type(error).__name__)

    async with joined(certificates, handler) as connection:

        async def report_of(handle: Any, act: Callable[[], None]) -> str:
            await connection.sender.send(Message(b"", [handle]))
            await soon(taken.get())  # meanwhile, the other end waits
            act()
            return await soon(reports.get())

        sender, receiver = channel()
        assert await report_of(receiver, sender.finish) == "ClosedError"
        sender, receiver = channel()
        assert await report_of(receiver, sender.abort) == "Aborted"
        with pytest.raises(Aborted):
            await sender.send(b"late")
        sender, receiver = channel()
        assert await report_of(sender, receiver.abort) == "NoReceivers"
        with pytest.raises(ClosedError):
            await receiver.receive()
        kept_sender, kept = channel()
        await connection.sender.send(Message(b"", [kept]))
        await soon(taken.get())
        connection.abort()
        await asyncio.sleep(0)
        with pytest.raises(ConnectionLost):
            await kept_sender.send(b"")
        assert await soon(reports.get()) == "ConnectionLost"


async def test_dropped_handles_and_unreceived_attachments_leave_no_state(certificates: CertificateFiles) -> None:
    async def handler(connection: Connection) -> None:
        with contextlib.suppress(ClosedError):
            while True:
                # The message goes out of scope together with all its handles.
                await connection.receiver.receive()

    class TakesNothing:
        header = ""

        def encode(self, message: Any, attach: Any) -> bytes:
            for handle in message:
                attach(handle)
            return b"x"

        def decode(self, payload: bytes, detach: Any) -> Any:
            return payload

    for serializers in ([aqueduct.RawSerializer()], [TakesNothing()]):
        async with joined(certificates, handler, serializers=serializers) as connection:
            ends = []
            for _ in range(50):
                sender, receiver = channel()
                given, kept = channel()
                message = [receiver, given]
                raw = isinstance(serializers[0], aqueduct.RawSerializer)
                await connection.sender.send(Message(b"", message) if raw else message)
                ends.append((sender, kept))
                del receiver, given, message
            for sender, kept in ends:
                with pytest.raises(Aborted):
                    await soon(kept.receive())
                with pytest.raises(NoReceivers):
                    await soon(sender.wait_closed())
            del ends, sender, kept
            await at_rest(connection)


async def test_dropping_a_sender_cancels_and_dropping_a_receiver_closes(certificates: CertificateFiles) -> None:
    taken: list[Any] = []

    async def handler(connection: Connection) -> None:
        async for message in connection.receiver:
            taken.extend(message.attachments)

    async with joined(certificates, handler) as connection:
        sender, receiver = channel()
        given, kept = channel()
        await connection.sender.send(Message(b"", [receiver, given]))
        await until(lambda: len(taken) == 2)
        del sender, kept
        gc.collect()
        with pytest.raises(Aborted):
            await soon(taken[0].receive())
        with pytest.raises(NoReceivers):
            await soon(taken[1].wait_closed())


@pytest.mark.parametrize(("client", "server"), PAIRS)
async def test_a_paused_receiver_pauses_its_sender_with_bounded_queues(
    certificates: CertificateFiles, client: str, server: str
) -> None:
    gate, engines = asyncio.Event(), []
    total = 0

    async def handler(connection: Connection) -> None:
        nonlocal total
        engines.append(connection._protocol.engine)
        await gate.wait()
        async for message in connection.receiver:
            total += len(message)

    limits = {"receive_messages": 64, "receive_bytes": 64 << 10}
    async with joined(certificates, handler, client=client, server=server, **limits) as connection:
        connection.sender.configure(max_messages=256, max_bytes=512 << 10)
        sent = 0
        for _ in range(2000):
            try:
                await asyncio.wait_for(connection.sender.send(bytes(8000)), 0.5)
            except TimeoutError:
                break
            sent += 8000
        assert sent <= 3 * (512 << 10), "the sender went on and on"
        assert engines[0].buffer.size <= 2 << 20
        gate.set()
        for _ in range(20):
            await soon(connection.sender.send(bytes(8000)))
            sent += 8000
        connection.sender.finish()
        await soon(connection.sender.wait_closed())
    assert total == sent


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_data_sent_with_a_ticket_is_in_the_first_flight(
    certificates: CertificateFiles, backend: str, tmp_path: Path
) -> None:
    sessions = SessionCache(tmp_path / "client.db")
    settings = aqueduct.Settings(ca=certificates.ca, backend=backend)
    early = []
    previous = ""
    for attempt in range(3):
        # The server restarts; its tickets survive.
        tickets = ServerTickets(tmp_path / "server.db")
        serving = await aqueduct.aio.serve(
            echo, port=0, certificate=certificates.certificate, key=certificates.key, backend=backend, tickets=tickets
        )
        async with serving:
            origin = f"localhost:{serving.port}"
            if attempt:
                _move(sessions, settings, previous, origin)
            previous = origin
            async with aqueduct.aio.connect(
                "localhost", serving.port, ca=certificates.ca, backend=backend, sessions=sessions, early=True
            ) as connection:
                answer_to, answer = oneshot()
                await connection.sender.send(Message(b"early", [answer_to]))
                assert await soon(answer) == b"echo early"
                await completed(connection, sessions, origin, backend)
                early.append(connection.early_data_accepted)
        tickets.close()
    assert early == [False, True, True]
    sessions.close()


def _move(sessions: SessionCache, settings: aqueduct.Settings, old: str, new: str) -> None:
    """Make a ticket for one port valid for another, since the restarted server has another port."""
    before, after = (ticket_name(settings, origin=each, server_name="localhost").encode() for each in (old, new))
    text = sessions._store.take(before)
    assert text is not None
    sessions._store.put(after, text)
    sessions.keep_address(new, sessions.known_address(old))


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_a_forgotten_ticket_costs_only_a_resend(certificates: CertificateFiles, backend: str) -> None:
    sessions = SessionCache()
    tickets = ServerTickets()
    serving = await aqueduct.aio.serve(
        echo, certificate=certificates.certificate, key=certificates.key, backend=backend, tickets=tickets
    )
    async with serving:
        for attempt in range(2):
            async with aqueduct.aio.connect(
                "localhost", serving.port, ca=certificates.ca, backend=backend, sessions=sessions, early=True
            ) as connection:
                answer_to, answer = oneshot()
                await connection.sender.send(Message(b"again", [answer_to]))
                assert await soon(answer) == b"echo again"
                await completed(connection, sessions, f"localhost:{serving.port}", backend)
                assert not connection.early_data_accepted
            if attempt == 0:
                # The ticket was used or the store was lost. The server cannot tell either from a replay of the first flight.
                tickets._store._database.execute("DELETE FROM entry")
    tickets.close()
    sessions.close()


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_a_server_can_require_address_validation(certificates: CertificateFiles, backend: str) -> None:
    serving = await aqueduct.aio.serve(
        echo, certificate=certificates.certificate, key=certificates.key, backend=backend, retry=True
    )
    async with (
        serving,
        aqueduct.aio.connect("localhost", serving.port, ca=certificates.ca, backend=backend) as connection,
    ):
        answer_to, answer = oneshot()
        await connection.sender.send(Message(b"x", [answer_to]))
        assert await soon(answer) == b"echo x"


@pytest.mark.parametrize(("client", "server"), PAIRS)
async def test_both_sides_must_name_the_same_protocol(certificates: CertificateFiles, client: str, server: str) -> None:
    serving = await aqueduct.aio.serve(
        echo, certificate=certificates.certificate, key=certificates.key, backend=server, alpn="other"
    )
    async with serving:
        with pytest.raises(ConnectionLost, match="the TLS handshake failed: No common ALPN protocols"):
            await aqueduct.aio.connect("localhost", serving.port, ca=certificates.ca, backend=client, timeout=STALL_S)


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_an_unknown_certificate_authority_is_reported(certificates: CertificateFiles, backend: str) -> None:
    async with aqueduct.aio.serve(
        echo, certificate=certificates.certificate, key=certificates.key, backend=backend
    ) as serving:
        with pytest.raises(ConnectionLost, match="ca= names the authority of the server's certificate"):
            await aqueduct.aio.connect("localhost", serving.port, backend=backend, timeout=STALL_S)


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_a_server_listens_on_given_sockets(certificates: CertificateFiles, backend: str) -> None:
    shared = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for each in shared:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        each.bind(("127.0.0.1", shared[0].getsockname()[1]))
    pem = {"certificate": certificates.certificate, "key": certificates.key, "backend": backend}
    # Both are bound to one port, as two processes could be, and the system assigns each client to one of them.
    async with (
        aqueduct.aio.serve(echo, sock=shared[0], **pem) as one,
        aqueduct.aio.serve(echo, sock=shared[1], **pem) as other,
    ):
        assert one.port == other.port
        for _ in range(8):
            async with aqueduct.aio.connect("127.0.0.1", one.port, ca=certificates.ca, backend=backend) as connection:
                answer_to, answer = oneshot()
                await connection.sender.send(Message(b"x", [answer_to]))
                assert await soon(answer) == b"echo x"
        assert one.stats().connections_opened + other.stats().connections_opened == 8
    assert {each.fileno() for each in shared} == {-1}


async def test_an_unusable_socket_is_rejected(certificates: CertificateFiles) -> None:
    with socket.socket() as stream, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unbound:
        for sock, reason in ((stream, "SOCK_DGRAM"), (unbound, "not bound"), ([], "empty list")):
            with pytest.raises(ConfigurationError, match=reason):
                await aqueduct.aio.serve(echo, sock=sock, certificate=certificates.certificate, key=certificates.key)


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_a_peer_without_datagram_support_is_rejected(certificates: CertificateFiles, backend: str) -> None:
    from aioquic.asyncio import QuicConnectionProtocol
    from aioquic.asyncio import serve as bare_serve
    from aioquic.quic.configuration import QuicConfiguration

    configuration = QuicConfiguration(is_client=False, alpn_protocols=["aqueduct"])
    configuration.load_cert_chain(str(certificates.certificate), str(certificates.key))
    server = await bare_serve("127.0.0.1", 0, configuration=configuration, create_protocol=QuicConnectionProtocol)
    port = server._transport.get_extra_info("sockname")[1]
    try:
        async with aqueduct.aio.connect("localhost", port, ca=certificates.ca, backend=backend) as connection:
            with pytest.raises(RemoteProtocolError) as caught:
                await connection.wait_closed()
        assert caught.value.rule == "datagrams required"
    finally:
        server.close()


async def test_a_missing_server_is_reported_in_time(certificates: CertificateFiles) -> None:
    with pytest.raises(Timeout):
        await aqueduct.aio.connect("localhost", 9, ca=certificates.ca, timeout=0.3)


@pytest.mark.parametrize(("host", "port"), [("", 1), ("localhost", 0), ("localhost", 1 << 16), ("localhost", "1")])
async def test_an_invalid_address_is_rejected(host: str, port: Any) -> None:
    with pytest.raises(ConfigurationError):
        await aqueduct.aio.connect(host, port)


async def test_a_handle_can_be_sent_once_over_its_own_connection(certificates: CertificateFiles) -> None:
    async with joined(certificates, echo) as connection:
        sender, receiver = channel()
        await connection.sender.send(Message(b"", [receiver]))
        for handle in (receiver, sender):
            with pytest.raises(LocalProtocolError):
                await connection.sender.send(Message(b"", [handle]))
        with pytest.raises(LocalProtocolError):
            await receiver.receive()
        both = channel()
        with pytest.raises(LocalProtocolError):
            await connection.sender.send(Message(b"", list(both)))
        both[0].try_send(b"still local")
        assert both[1].try_receive() == b"still local"


async def test_messages_queued_before_a_receiver_moves_stay_in_order(certificates: CertificateFiles) -> None:
    got: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

    async def handler(connection: Connection) -> None:
        message = await connection.receiver.receive()
        got.set_result([item async for item in message.attachments[0]])

    async with joined(certificates, handler) as connection:
        sender, receiver = channel(max_messages=10)
        for number in range(10):
            sender.try_send(b"%d" % number)
        with pytest.raises(BackPressured):
            sender.try_send(b"too much")
        await connection.sender.send(Message(b"", [receiver]))
        for number in range(10, 30):
            await sender.send(b"%d" % number)
        sender.finish()
        assert await soon(got) == [b"%d" % number for number in range(30)]


async def test_an_acknowledgment_means_the_message_was_accepted(certificates: CertificateFiles) -> None:
    async with joined(certificates, echo) as connection:
        await soon(connection.sender.send_acknowledged(b"x"))


async def test_delivery_is_unknown_after_the_connection_is_lost(
    certificates: CertificateFiles,
) -> None:
    waits = asyncio.Event()

    async def handler(connection: Connection) -> None:
        await waits.wait()
        raise RuntimeError("the handler fails")

    async with joined(certificates, handler, receive_messages=1) as connection:
        await connection.sender.send(b"fills the queue")
        sending = asyncio.ensure_future(connection.sender.send_acknowledged(b"waits"))
        for _ in range(20):
            await asyncio.sleep(0)
        waits.set()
        with pytest.raises(ConnectionLost):
            await soon(sending)


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_each_connection_writes_a_qlog_file(certificates: CertificateFiles, tmp_path: Path, backend: str) -> None:
    directory = tmp_path / "qlog"
    async with joined(certificates, echo, client=backend, server=backend, qlog_directory=directory) as connection:
        await connection.sender.send_acknowledged(b"x")
    (file,) = directory.iterdir()
    (trace,) = json.loads(file.read_text())["traces"]
    names = {event["name"] if "name" in event else event["event"] for event in trace["events"]}
    assert {name.partition(":")[2] or name for name in names} >= {"packet_sent", "packet_received"}


async def test_a_thousand_channels_at_once(certificates: CertificateFiles) -> None:
    async with joined(certificates, echo) as connection:
        answers = []
        for number in range(1000):
            answer_to, answer = channel()
            await connection.sender.send(Message(b"%d" % number, [answer_to]))
            answers.append(answer)
        for number, answer in enumerate(answers):
            assert await soon(answer.receive()) == b"echo %d" % number


@pytest.mark.parametrize(("client", "server"), PAIRS)
async def test_a_cancel_arrives_at_once_on_an_idle_connection(
    certificates: CertificateFiles, client: str, server: str
) -> None:
    """A cancel resets a stream on which the peer has sent nothing, so it waits until the peer is known to have that stream."""
    taken: list[Any] = []

    async def handler(connection: Connection) -> None:
        async for message in connection.receiver:
            taken.extend(message.attachments)

    async with joined(certificates, handler, client=client, server=server) as connection:
        for pause in (0.0, 0.3):
            given, kept = channel()
            await connection.sender.send(Message(b"", [given]))
            await until(lambda: taken)
            await asyncio.sleep(pause)
            taken.pop().abort()
            with pytest.raises(Aborted):
                # An idle connection sends something after at most 15 s, which would be too late to help.
                await soon(kept.receive())


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_a_lost_cancel_does_not_busy_loop_while_messages_wait(
    certificates: CertificateFiles, backend: str
) -> None:
    taken: list[Any] = []
    sessions: list[Any] = []
    flushes = 0

    async def handler(connection: Connection) -> None:
        session = connection._protocol
        async for message in connection.receiver:
            # From here on, the network delivers nothing.
            session._udp.send = lambda datagrams: None  # type: ignore[method-assign]
            session.datagrams_received = lambda datagrams, address: None  # type: ignore[method-assign]
            taken.extend(message.attachments)
            sessions.append(session)

    async with joined(certificates, handler, client=backend, server=backend) as connection:
        given, waiting = channel(), channel()
        await connection.sender.send(Message(b"", [given[0], waiting[0]]))
        await until(lambda: sessions)
        (session,) = sessions
        flush = session.flush

        def counted() -> None:
            nonlocal flushes
            flushes += 1
            flush()

        taken[1].configure(mode=Mode.UNRELIABLE)
        for _ in range(900):
            await taken[1].send(bytes(1000))
        await until(lambda: session.engine.sending.waiting)
        taken[0].abort()
        session.flush = counted
        await until(lambda: flushes)
        await asyncio.sleep(0.5)  # a hot loop would continue, and no event reports it
        assert session.adapter.watched
        assert session.engine.sending.waiting
        # A hot loop would make thousands of iterations.
        assert 0 < flushes < 100
        connection.abort()


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_frame_logs_of_both_sides_match(certificates: CertificateFiles, tmp_path: Path, backend: str) -> None:
    logs = {name: FrameLog(tmp_path / name) for name in ("client", "server")}
    serving = await aqueduct.aio.serve(
        echo,
        certificate=certificates.certificate,
        key=certificates.key,
        backend=backend,
        instrument=logs["server"],
        alpn="tide",
    )
    async with (
        serving,
        await aqueduct.aio.connect(
            "localhost", serving.port, ca=certificates.ca, backend=backend, instrument=logs["client"], alpn="tide"
        ) as connection,
    ):
        answer_to, answer = oneshot()
        await connection.sender.send(Message(b"gauge", [answer_to]))
        assert await soon(answer) == b"echo gauge"
        await at_rest(connection)
    told: dict[str, list[tuple[str, str]]] = {}
    for name, log in logs.items():
        log.close()
        with (tmp_path / name).open() as file:
            words = [line.split(" ms", 1)[1].split() for line in dump_log(file)]
        told[name] = [(line[0], " ".join(line[1:])) for line in words if line[0] in "<>"]
    for here, there in (("client", "server"), ("server", "client")):
        sent = [text for arrow, text in told[here] if arrow == ">"]
        heard = [text for arrow, text in told[there] if arrow == "<" and not text.startswith("Version")]
        # The acknowledgment for the entrypoint may still be in flight.
        assert heard
        assert set(heard) <= set(sent)
    assert any("echo gauge" in text for arrow, text in told["client"] if arrow == "<")


@pytest.mark.parametrize("client", ["qh3", "aioquic"])
@pytest.mark.parametrize("server", ["qh3", "aioquic"])
async def test_an_expired_certificate_is_called_expired_on_both_sides(
    server: str, client: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = aqueduct.make_certificates(tmp_path, days=0)
    # Certificates count in seconds.
    await asyncio.sleep(1.1)

    async def handler(connection: Connection) -> None:
        await connection.wait_closed()

    serving = aqueduct.aio.serve(handler, certificate=files.certificate, key=files.key, backend=server)
    async with serving as listener:
        with pytest.raises(ConnectionLost, match=r"the TLS handshake failed: .*; it expired at \d{4}-\d\d-\d\d "):
            await aqueduct.aio.connect("localhost", listener.port, ca=files.ca, backend=client)
        await until(lambda: "the TLS handshake failed" in caplog.text)
    (record,) = [each for each in caplog.records if each.name == "mainstem.aqueduct"]
    assert record.levelname == "WARNING"
    assert "127.0.0.1:" in record.getMessage() or "::1:" in record.getMessage()
