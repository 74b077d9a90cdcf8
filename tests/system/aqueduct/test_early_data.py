"""The first flight: deferred until the handshake on request, and with an address token if the client has stored one."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.tickets import completed, has_token
from tests.support.waiting import soon, until

from mainstem import aqueduct
from mainstem.aqueduct import Message, ServerTickets, SessionCache, client
from mainstem.aqueduct.aio import Connection, oneshot
from mainstem.aqueduct.quic import load_backend
from mainstem.aqueduct.quic.tickets import ticket_name
from mainstem.aqueduct.settings import Settings
from mainstem.errors import ConnectionLost

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system


async def ask(connection: Connection, question: bytes) -> bytes:
    answer_to, answer = oneshot()
    await connection.sender.send(Message(question, [answer_to]))
    return await soon(answer)


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
@pytest.mark.parametrize("hold", [False, True])
async def test_early_data_is_processed_before_the_handshake_unless_deferred(
    certificates: CertificateFiles, backend: str, hold: bool
) -> None:
    waited: list[bool] = []

    async def handler(connection: Connection) -> None:
        waited.append(connection._protocol.adapter.lifecycle.handshake_done)
        async for message in connection.receiver:
            await message.attachments[0].send(message.payload)

    sessions, tickets = SessionCache(), ServerTickets()
    serving = await aqueduct.aio.serve(
        handler,
        certificate=certificates.certificate,
        key=certificates.key,
        backend=backend,
        tickets=tickets,
        defer_early_data=hold,
    )
    async with serving:
        for attempt in range(2):
            async with aqueduct.aio.connect(
                "localhost", serving.port, ca=certificates.ca, backend=backend, sessions=sessions, early=True
            ) as connection:
                assert await ask(connection, b"early") == b"early"
                await completed(connection, sessions, f"localhost:{serving.port}", backend)
                assert connection.early_data_accepted is bool(attempt)
    # Headers and messages of an accepted first flight arrive before the handshake completes, and wait for it if configured to.
    assert waited[1] is hold
    sessions.close()
    tickets.close()


TOKEN = b"a token that this server made"


def send_token(quic: Any) -> None:
    """Make aioquic's server send a NEW_TOKEN frame, which it never does by itself."""
    from aioquic.quic.packet import QuicFrameType

    ping = quic._write_ping_frame

    def token_and_ping(builder: Any, *arguments: Any, **keywords: Any) -> None:
        buffer = builder.start_frame(QuicFrameType.NEW_TOKEN, capacity=2 + len(TOKEN))
        buffer.push_uint_var(len(TOKEN))
        buffer.push_bytes(TOKEN)
        ping(builder, *arguments, **keywords)

    quic._write_ping_frame = token_and_ping
    quic.send_ping(1)


@pytest.mark.parametrize("retry", [False, True])
async def test_an_address_token_is_kept_and_sent_once_in_the_next_first_flight(
    certificates: CertificateFiles, retry: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens: list[bytes] = []

    async def handler(connection: Connection) -> None:
        send_token(connection._protocol.adapter.quic)
        connection._protocol.wake()
        async for message in connection.receiver:
            await message.attachments[0].send(message.payload)

    sessions = SessionCache()
    serving = await aqueduct.aio.serve(
        handler, certificate=certificates.certificate, key=certificates.key, backend="aioquic", retry=retry
    )
    parse = serving._context.parse

    def noting(data: bytes) -> Any:
        header = parse(data)
        if header is not None and header.is_initial:
            tokens.append(header.token)
        return header

    monkeypatch.setattr(serving._context, "parse", noting)
    async with serving:
        firsts = []
        for _ in range(2):
            tokens.clear()
            async with aqueduct.aio.connect(
                "localhost", serving.port, ca=certificates.ca, backend="aioquic", sessions=sessions
            ) as connection:
                assert await ask(connection, b"x") == b"x"
                await until(lambda: has_token(sessions, f"localhost:{serving.port}"))
            firsts.append(tokens[0])
    # A server that requires proof treats an unknown token as no token, and asks for proof.
    assert firsts == [b"", TOKEN]
    sessions.close()


def test_a_token_and_a_ticket_are_saved_to_a_file_and_used_once(tmp_path: Any, certificates: CertificateFiles) -> None:
    from aioquic.buffer import Buffer
    from aioquic.quic.packet import pull_quic_header

    path = tmp_path / "sessions.db"
    before = SessionCache(path)
    before.token_keeper("gauge:1")(TOKEN)
    before.close()
    sessions = SessionCache(path)
    settings = Settings(ca=certificates.ca)
    seen = []
    for _ in range(2):
        link = load_backend("aioquic").client(settings, server_name="gauge", sessions=sessions, origin="gauge:1")
        link.connect(("127.0.0.1", 1), 0.0)
        ((first, _),) = link.transmit(0.0)
        seen.append(pull_quic_header(Buffer(data=first), host_cid_length=8).token)
    assert seen == [TOKEN, b""]
    sessions.close()


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_a_replayed_ticket_opens_nothing(certificates: CertificateFiles, backend: str) -> None:
    """A thief replays a first flight, which uses the client's own ticket a second time."""
    sessions, tickets = SessionCache(), ServerTickets()
    taken: list[bytes] = []

    async def handler(connection: Connection) -> None:
        early = not connection._protocol.adapter.lifecycle.handshake_done
        async for message in connection.receiver:
            if early:
                taken.append(message.payload)
            await message.attachments[0].send(message.payload)

    serving = await aqueduct.aio.serve(
        handler, certificate=certificates.certificate, key=certificates.key, backend=backend, tickets=tickets
    )
    async with serving:
        options: dict[str, Any] = {"ca": certificates.ca, "backend": backend, "sessions": sessions, "early": True}
        async with aqueduct.aio.connect("localhost", serving.port, **options) as connection:
            await ask(connection, b"a full handshake")
            await completed(connection, sessions, f"localhost:{serving.port}", backend)
        trusting = Settings(ca=certificates.ca, backend=backend)
        name = ticket_name(trusting, origin=f"localhost:{serving.port}", server_name="localhost").encode()
        ticket = sessions._store.take(name)
        assert ticket is not None
        while sessions._store.take(name) is not None:
            pass
        for question in (b"pay", b"pay again"):
            sessions._store.put(name, ticket)
            async with aqueduct.aio.connect("localhost", serving.port, **options) as connection:
                await ask(connection, question)
                await completed(connection, sessions, f"localhost:{serving.port}", backend)
            while sessions._store.take(name) is not None:
                pass
    assert taken == [b"pay"]
    sessions.close()
    tickets.close()


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_the_first_flight_gets_a_response_before_anything_else_arrives(
    certificates: CertificateFiles, backend: str
) -> None:
    """The network drops everything that the client sends after its first flight until the response arrives."""
    known: list[bool] = []

    async def handler(connection: Connection) -> None:
        async for message in connection.receiver:
            await message.attachments[0].send(message.payload)
            known.append(connection._protocol.adapter.lifecycle.handshake_done)

    sessions, tickets = SessionCache(), ServerTickets()
    serving = await aqueduct.aio.serve(
        handler, certificate=certificates.certificate, key=certificates.key, backend=backend, tickets=tickets
    )
    options: dict[str, Any] = {"ca": certificates.ca, "backend": backend, "sessions": sessions, "early": True}
    async with serving:
        async with aqueduct.aio.connect("localhost", serving.port, **options) as connection:
            assert await ask(connection, b"a full handshake") == b"a full handshake"
            await completed(connection, sessions, f"localhost:{serving.port}", backend)
        async with aqueduct.aio.connect("localhost", serving.port, **options) as connection:
            session = connection._protocol
            send, receive = session._udp.send, session.datagrams_received
            dropped: list[int] = []

            def drop(datagrams: list[Any]) -> None:
                dropped.append(len(datagrams))

            def hear(datagrams: list[bytes], address: Any) -> None:
                session._udp.send = drop  # type: ignore[method-assign]
                receive(datagrams, address)

            session.datagrams_received = hear  # type: ignore[method-assign]
            assert await ask(connection, b"early") == b"early"
            session._udp.send = send  # type: ignore[method-assign]
            assert dropped, "the client had nothing more to say: this shows nothing"
            assert connection.early_data_accepted
    assert known == [True, False]
    sessions.close()
    tickets.close()


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_a_ticket_used_before_a_crash_stays_used_after_the_restart(
    certificates: CertificateFiles, backend: str, tmp_path: Path
) -> None:
    taken: list[bytes] = []

    async def handler(connection: Connection) -> None:
        early = not connection._protocol.adapter.lifecycle.handshake_done
        async for message in connection.receiver:
            if early:
                taken.append(message.payload)
            await message.attachments[0].send(message.payload)

    sessions = SessionCache()
    stores = []
    port = 0
    ticket: str | None = None
    for question in (b"a full handshake", b"pay", b"pay again"):
        # The previous server was killed, so its store was not closed.
        stores.append(ServerTickets(tmp_path / "tickets.db"))
        serving = await aqueduct.aio.serve(
            handler,
            port=port,
            certificate=certificates.certificate,
            key=certificates.key,
            backend=backend,
            tickets=stores[-1],
        )
        port = serving.port
        trusting = Settings(ca=certificates.ca, backend=backend)
        name = ticket_name(trusting, origin=f"localhost:{port}", server_name="localhost").encode()
        if ticket is not None:
            sessions._store.put(name, ticket)
        async with (
            serving,
            await aqueduct.aio.connect(
                "localhost", serving.port, ca=certificates.ca, backend=backend, sessions=sessions, early=True
            ) as connection,
        ):
            assert await ask(connection, question) == question
            await completed(connection, sessions, f"localhost:{port}", backend)
        ticket = ticket or sessions._store.take(name)
        while sessions._store.take(name) is not None:
            pass
    assert taken == [b"pay"]
    sessions.close()
    for store in stores:
        store.close()


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
@pytest.mark.parametrize(
    "change",
    [{"max_streams": 64}, {"stream_window": 1 << 16}, {"connection_window": 1 << 20}, {"backend": ""}],
    ids=lambda change: next(iter(change)),
)
async def test_tickets_of_a_server_with_other_settings_are_ignored(
    certificates: CertificateFiles, backend: str, early: bool, change: dict[str, Any]
) -> None:
    pem = {"certificate": certificates.certificate, "key": certificates.key}
    after = {"backend": backend} | change
    if not after["backend"]:
        after["backend"] = "aioquic" if backend == "qh3" else "qh3"
    received = bytearray()

    async def handler(connection: Connection) -> None:
        async for message in connection.receiver:
            received.extend(message)

    tickets, sessions = ServerTickets(), SessionCache()
    options: dict[str, Any] = {"ca": certificates.ca, "backend": backend, "sessions": sessions}
    async with aqueduct.aio.serve(handler, backend=backend, tickets=tickets, **pem) as server:
        port = server.port
        async with aqueduct.aio.connect("localhost", port, **options) as connection:
            await completed(connection, sessions, f"localhost:{port}", backend)
    async with aqueduct.aio.serve(handler, port=port, tickets=tickets, **pem, **after) as server:
        for accepted in (False, True):
            received.clear()
            async with aqueduct.aio.connect("localhost", port, early=early, **options) as connection:
                # More than the smaller windows hold.
                for _ in range(4):
                    await soon(connection.sender.send(b"x" * 50_000))
                await soon(connection.sender.send_acknowledged(b"end"))
                await completed(connection, sessions, f"localhost:{port}", backend)
                assert connection.early_data_accepted is accepted
            assert bytes(received) == b"x" * 200_000 + b"end"


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_a_ticket_goes_to_the_address_that_responded_before(
    certificates: CertificateFiles, backend: str, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name often has an address at which nobody listens, such as ::1 for localhost, and it is tried first."""

    async def resolve(host: str, port: int, kind: int) -> list[Any]:
        return [(socket.AF_INET, (address, port)) for address in ("127.0.0.2", "127.0.0.1")]

    async def handler(connection: Connection) -> None:
        async for message in connection.receiver:
            await message.attachments[0].send(message.payload)

    monkeypatch.setattr(client, "resolve", resolve)
    sessions = SessionCache()
    pem = {"certificate": certificates.certificate, "key": certificates.key}
    async with aqueduct.aio.serve(handler, backend=backend, tickets=ServerTickets(), **pem) as server:
        for accepted in (False, True):
            async with aqueduct.aio.connect(
                "localhost", server.port, ca=certificates.ca, backend=backend, sessions=sessions, early=early
            ) as connection:
                assert await ask(connection, b"x") == b"x"
                await completed(connection, sessions, f"localhost:{server.port}", backend)
                assert connection.early_data_accepted is accepted


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
@pytest.mark.parametrize("first", ["verify", "ca"])
async def test_a_ticket_never_replaces_verification(
    certificates: CertificateFiles, tmp_path: Path, backend: str, early: bool, first: str
) -> None:
    rogue = aqueduct.make_certificates(tmp_path)
    before: dict[str, Any] = {"verify": False} if first == "verify" else {"ca": rogue.ca}
    received: list[bytes] = []

    async def handler(connection: Connection) -> None:
        received.extend([message async for message in connection.receiver])

    sessions = SessionCache()
    serving = aqueduct.aio.serve(
        handler, certificate=rogue.certificate, key=rogue.key, tickets=ServerTickets(), backend=backend
    )
    async with serving as server:
        options: dict[str, Any] = {"backend": backend, "sessions": sessions}
        async with aqueduct.aio.connect("localhost", server.port, **before, **options) as connection:
            await completed(connection, sessions, f"localhost:{server.port}", backend)
        with pytest.raises(ConnectionLost, match="TLS handshake failed"):
            async with aqueduct.aio.connect(
                "localhost", server.port, ca=certificates.ca, early=early, **options
            ) as connection:
                await connection.sender.send_acknowledged(b"secret")
        assert not received
        # With the same settings, the ticket is used.
        async with aqueduct.aio.connect("localhost", server.port, early=early, **before, **options) as connection:
            await soon(connection.sender.send_acknowledged(b"tide"))
            assert connection.peer_certificate is None


def test_a_ticket_is_stored_under_all_that_decided_its_authentication(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("one.pem", "other.pem")]
    for file in files:
        file.write_text(file.name)
    base = Settings(ca=files[0], certificate=files[0], key=files[0])
    changed = [
        *({name: files[1]} for name in ("ca", "certificate", "key")),
        {"ca": None},
        {"verify": False},
        {"alpn": "other"},
        {"backend": "aioquic"},
    ]
    settings = [base, *(replace(base, **change) for change in changed)]
    names = [ticket_name(each, origin="one:4433", server_name="one") for each in settings]
    names += [ticket_name(base, origin="other:4433", server_name="one")]
    names += [ticket_name(base, origin="one:4433", server_name="other")]
    files[0].write_text("replaced")
    names += [ticket_name(base, origin="one:4433", server_name="one")]
    assert len(set(names)) == len(names)
    assert ticket_name(replace(base, keep_alive=1.0), origin="one:4433", server_name="one") == names[-1]


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_tickets_that_do_not_say_what_they_promise_are_ignored(
    certificates: CertificateFiles, backend: str
) -> None:
    async def handler(connection: Connection) -> None:
        async for _ in connection.receiver:
            pass

    tickets, sessions = ServerTickets(), SessionCache()
    serving = aqueduct.aio.serve(
        handler, certificate=certificates.certificate, key=certificates.key, backend=backend, tickets=tickets
    )
    async with serving as server:
        origin = f"localhost:{server.port}"
        options: dict[str, Any] = {"ca": certificates.ca, "backend": backend, "sessions": sessions}
        async with aqueduct.aio.connect("localhost", server.port, **options) as connection:
            await completed(connection, sessions, origin, backend)
        database = tickets._store._database
        for number, text in database.execute("SELECT id, value FROM entry").fetchall():
            database.execute("UPDATE entry SET value = ? WHERE id = ?", (json.loads(text)["ticket"], number))
        async with aqueduct.aio.connect("localhost", server.port, early=True, **options) as connection:
            await soon(connection.sender.send_acknowledged(b"tide"))
            assert not connection.early_data_accepted
