"""Hosts with several addresses: an unresponsive address locks no client out, and a server uses one port on all of them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.tickets import has_ticket
from tests.support.waiting import settle, soon, until

from mainstem import aqueduct, bymux
from mainstem import jmux as jmux_blocking
from mainstem._internal import eyeballs, listening
from mainstem._internal.unix_listening import UnixListener
from mainstem.aqueduct import client, make_certificates
from mainstem.aqueduct.quic.tickets import ServerTickets, SessionCache
from mainstem.bymux.tunnel import Address, open_connection
from mainstem.errors import ConfigurationError, ConnectionLost, Timeout
from mainstem.jmux import aio as jmux
from mainstem.mux import sockets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system

FIRST, SECOND = "127.0.0.2", "127.0.0.1"
PROTOCOLS = pytest.mark.parametrize("protocol", [bymux.aio, jmux], ids=["bymux", "jmux"])
BACKENDS = pytest.mark.parametrize("backend", ["qh3", "aioquic"])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    pytest.importorskip("cryptography")
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every host two addresses; the server listens only on the second."""

    async def resolve(_host: str, port: int, _kind: socket.SocketKind) -> list[eyeballs.HostAddress]:
        return [(socket.AF_INET, (FIRST, port)), (socket.AF_INET, (SECOND, port))]

    for module in (sockets, client, eyeballs):
        monkeypatch.setattr(module, "resolve", resolve)


@contextlib.contextmanager
def silent_tcp(port: int) -> Iterator[None]:
    """Open a socket on the first address whose accept queue is full, so the kernel drops connection attempts."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((FIRST, port), backlog=0))
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(listener.getsockname())
        yield


@contextlib.contextmanager
def mute_tcp(port: int) -> Iterator[None]:
    """Open a socket on the first address that accepts connections but never starts TLS."""
    with socket.create_server((FIRST, port), backlog=8):
        yield


@contextlib.asynccontextmanager
async def serving(protocol: Any, **options: Any) -> AsyncIterator[int]:
    async def echo(stream: Any) -> None:
        stream.write(await stream.read(-1))

    async with await protocol.serve(echo, SECOND, 0, **options) as listener:
        yield listener.port


def tls_contexts(files: CertificateFiles) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.key)
    return server, ssl.create_default_context(cafile=str(files.ca))


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@PROTOCOLS
async def test_a_silent_first_address_keeps_no_client_out(protocol: Any, two_addresses: None) -> None:
    async with serving(protocol) as port:
        with silent_tcp(port):
            async with await protocol.connect("host", port, timeout=30) as client:
                assert client.stats().connections == 1


@PROTOCOLS
async def test_an_address_that_never_begins_tls_keeps_no_client_out(
    protocol: Any, two_addresses: None, certificates: CertificateFiles
) -> None:
    server, client_side = tls_contexts(certificates)
    async with serving(protocol, ssl=server) as port:
        with mute_tcp(port):
            async with await protocol.connect("localhost", port, ssl=client_side, timeout=30) as client:
                assert client.stats().connections == 1


@pytest.mark.parametrize("api", [bymux, jmux_blocking], ids=["bymux", "jmux"])
async def test_blocking_clients_pass_a_silent_address_by(api: Any, two_addresses: None) -> None:
    protocol = bymux.aio if api is bymux else jmux
    async with serving(protocol) as port:
        with silent_tcp(port):

            def use() -> None:
                with api.connect("host", port, timeout=30) as client:
                    assert client.stats().connections == 1

            await asyncio.to_thread(use)


@PROTOCOLS
async def test_losing_connection_attempts_leave_nothing_open(protocol: Any, two_addresses: None) -> None:
    async with serving(protocol) as port:
        tasks = len(asyncio.all_tasks())
        async with await protocol.connect(SECOND, port):
            pass  # uvloop opens a spare descriptor with its first connection and keeps it
        await until(lambda: len(asyncio.all_tasks()) == tasks)
        await settle()
        with silent_tcp(port):
            before = open_files()
            async with await protocol.connect("host", port):
                pass
            await until(lambda: (open_files(), len(asyncio.all_tasks())) == (before, tasks))


@PROTOCOLS
async def test_a_client_that_reaches_no_address_gets_the_reason(protocol: Any, two_addresses: None) -> None:
    with socket.socket() as unused:
        unused.bind((FIRST, 0))
        port = unused.getsockname()[1]
        before = open_files()
        with pytest.raises(ConnectionLost, match="refused"):
            await protocol.connect("host", port)
        with silent_tcp(port + 1 if port < 65535 else port - 1), pytest.raises((Timeout, ConnectionLost)):
            await protocol.connect("host", port + 1 if port < 65535 else port - 1, timeout=0.5)
        await until(lambda: open_files() == before)


async def test_a_tunnel_reaches_its_target_past_a_silent_address(two_addresses: None) -> None:
    async with await asyncio.start_server(lambda _, writer: writer.close(), SECOND, 0) as target:
        port = target.sockets[0].getsockname()[1]
        with silent_tcp(port):
            reader, writer = await open_connection(Address("host", port), timeout=30)
            assert await reader.read() == b""
            writer.close()


# Aqueduct


async def echo(connection: aqueduct.aio.Connection) -> None:
    async for message in connection.receiver:
        assert message == b"tide"
        return


@contextlib.contextmanager
def silent_udp(port: int) -> Iterator[None]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((FIRST, port))
        yield


@contextlib.asynccontextmanager
async def serving_quic(certificates: CertificateFiles, backend: str, **more: Any) -> AsyncIterator[Any]:
    options = {"certificate": certificates.certificate, "key": certificates.key, "backend": backend, **more}
    async with aqueduct.aio.serve(echo, **options) as server:
        yield server


@BACKENDS
@pytest.mark.parametrize("is_silent", [True, False], ids=["silent", "refused"])
async def test_aqueduct_passes_an_address_without_a_server_by(
    certificates: CertificateFiles, backend: str, two_addresses: None, is_silent: bool
) -> None:
    pytest.importorskip(backend)
    async with serving_quic(certificates, backend) as server:
        with silent_udp(server.port) if is_silent else contextlib.nullcontext():
            before = open_files()
            connection = await aqueduct.aio.connect(
                "localhost", server.port, ca=certificates.ca, backend=backend, timeout=60
            )
            assert connection.peer_address == (SECOND, server.port)
            assert open_files() - before <= 2  # one socket, plus its second descriptor for batches
            await connection.sender.send(b"tide")
            await connection.close()
            await until(lambda: open_files() == before)


@BACKENDS
async def test_aqueduct_reports_a_refusal_although_another_address_is_dead(
    certificates: CertificateFiles, backend: str, two_addresses: None
) -> None:
    pytest.importorskip(backend)
    async with serving_quic(certificates, backend) as server:
        before = open_files()
        with pytest.raises(ConnectionLost):
            await soon(
                aqueduct.aio.connect("localhost", server.port, backend=backend, timeout=None)
            )  # the client does not trust the server's certificate authority
        with silent_udp(server.port), pytest.raises(Timeout, match=r"(?i)certificate|issuer|authority|chain"):
            await aqueduct.aio.connect("localhost", server.port, backend=backend, timeout=2.0)
        await until(lambda: open_files() == before)


@BACKENDS
async def test_a_timed_out_connect_abandons_all_attempts(
    certificates: CertificateFiles, backend: str, two_addresses: None
) -> None:
    pytest.importorskip(backend)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as second:
        second.bind((SECOND, 0))
        port = second.getsockname()[1]
        with silent_udp(port):
            before, tasks = open_files(), len(asyncio.all_tasks())
            connecting = asyncio.ensure_future(
                aqueduct.aio.connect("host", port, ca=certificates.ca, backend=backend, timeout=None)
            )
            await until(lambda: len(asyncio.all_tasks()) == tasks + 3)
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await connecting
            assert len(asyncio.all_tasks()) == tasks
            assert open_files() == before


@BACKENDS
async def test_early_data_goes_to_the_address_that_answered_before(
    certificates: CertificateFiles, backend: str, two_addresses: None
) -> None:
    pytest.importorskip(backend)
    sessions = SessionCache()
    options: dict[str, Any] = {"ca": certificates.ca, "backend": backend, "sessions": sessions}
    async with serving_quic(certificates, backend, tickets=ServerTickets()) as server:
        with silent_udp(server.port):
            async with aqueduct.aio.connect("localhost", server.port, **options) as connection:
                await connection.headers()
                await until(lambda: has_ticket(sessions, backend, f"localhost:{server.port}"))
            connection = await aqueduct.aio.connect("localhost", server.port, early=True, **options)
            assert not connection._protocol.established.done()
            assert connection.peer_address == (SECOND, server.port)
            await connection.sender.send(b"tide")
            await soon(connection.headers())
            await connection.close()
    sessions.close()


# One port


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


IPV6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
BOTH = ["127.0.0.1", "::1"]


@IPV6
@PROTOCOLS
@pytest.mark.parametrize("host", [None, BOTH], ids=["every interface", "two addresses"])
async def test_port_0_is_one_port_in_both_families(protocol: Any, host: Any) -> None:
    async def handler(_: Any) -> None: ...

    async with await protocol.serve(handler, host, 0) as listener:
        sockets = listener._sockets._sockets
        assert [each.getsockname()[1] for each in sockets] == [listener.port] * 2
        for address in BOTH:
            async with await protocol.connect(address, listener.port):
                pass


@IPV6
@BACKENDS
async def test_an_aqueduct_server_has_one_port_on_all_its_addresses(
    certificates: CertificateFiles, backend: str
) -> None:
    pytest.importorskip(backend)
    async with serving_quic(certificates, backend, host=BOTH) as server:
        for host in ("127.0.0.1", "::1"):
            async with aqueduct.aio.connect(host, server.port, ca=certificates.ca, backend=backend) as connection:
                await connection.sender.send(b"tide")


@IPV6
def test_a_port_taken_in_the_other_ip_version_is_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        bind, proposed = listening._bind, [taken.getsockname()[1]]

        def propose(family: int, address: tuple[Any, ...], *rest: Any, **options: Any) -> socket.socket:
            if address[1] == 0 and proposed:
                address = (address[0], proposed.pop(), *address[2:])
            return bind(family, address, *rest, **options)

        monkeypatch.setattr(listening, "_bind", propose)
        before = open_files()
        found = listening.bind_sockets(
            listening.listening_addresses(BOTH, 0, socket.SOCK_STREAM), kind=socket.SOCK_STREAM
        )
        assert not proposed
        assert len({sock.getsockname()[1] for sock in found}) == 1
        assert open_files() == before + 2
        for sock in found:
            sock.close()


@IPV6
def test_a_requested_port_is_never_replaced() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        addresses = listening.listening_addresses(BOTH, taken.getsockname()[1], socket.SOCK_STREAM)
        before = open_files()
        with pytest.raises(OSError) as error:
            listening.bind_sockets(addresses, kind=socket.SOCK_STREAM)
        assert error.value.errno == errno.EADDRINUSE
        assert open_files() == before


# Unix paths


@PROTOCOLS
async def test_a_path_with_a_live_server_is_not_taken_over(protocol: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")

    async def handler(_: Any) -> None: ...

    async with await protocol.serve(handler, path=path):
        with pytest.raises(ConfigurationError, match="another server is listening"):
            await protocol.serve(handler, path=path)
        async with await protocol.connect(path=path):
            pass
    assert not os.path.lexists(path)


@PROTOCOLS
async def test_the_file_of_a_dead_server_is_replaced(protocol: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
        dead.listen()

    async def handler(_: Any) -> None: ...

    async with await protocol.serve(handler, path=path), await protocol.connect(path=path):
        pass
    assert not os.path.lexists(path)


@PROTOCOLS
async def test_a_server_leaves_a_replaced_socket_path_alone(protocol: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")

    async def handler(_: Any) -> None: ...

    async with await protocol.serve(handler, path=path):
        os.unlink(path)
        other = await protocol.serve(handler, path=path)
    async with await protocol.connect(path=path):
        pass
    await other.close()


def test_a_file_that_is_not_a_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("keep")
    with pytest.raises(OSError, match="not a socket"):
        UnixListener(str(path), backlog=1)
    assert path.read_text() == "keep"


def test_a_server_whose_queue_is_full_is_alive(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket(socket.AF_UNIX))
        full.bind(path)
        full.listen(0)
        number = 0
        while number == 0:
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            number = client.connect_ex(path)
        assert number == errno.EAGAIN
        with pytest.raises(OSError, match="another server"):
            UnixListener(path, backlog=1)


@PROTOCOLS
async def test_an_address_is_looked_up_without_a_thread(protocol: Any) -> None:
    async def handler(_: Any) -> None:
        """Do nothing: no client opens a stream."""

    before = set(threading.enumerate())
    async with await protocol.serve(handler, SECOND, 0) as listener, await protocol.connect(SECOND, listener.port):
        assert set(threading.enumerate()) == before
