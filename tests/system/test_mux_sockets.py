"""Sockets passed in by the caller, invalid addresses, rejected TLS, and running out of descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.cancellation import descriptors
from tests.support.endings import entered, run
from tests.support.waiting import until, wait_for

from mainstem import bymux, jmux
from mainstem.aqueduct import make_certificates
from mainstem.bymux.tunnel import Address as TunnelAddress
from mainstem.errors import ConfigurationError, ConnectionLost, MainstemError
from mainstem.mux.transports import SocketTransport

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system
pytest.importorskip("cryptography")

FAMILIES = pytest.mark.parametrize("family", [bymux, jmux], ids=["bymux", "jmux"])
EACH = pytest.mark.parametrize("blocks", [True, False], ids=["blocking", "asyncio"])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return make_certificates(tmp_path_factory.mktemp("certificates"), clients=("ada",))


def handler(blocks: bool) -> Any:
    async def echo(stream: Any) -> None:
        stream.write(await stream.read(-1))

    return (lambda stream: stream.write(stream.read(-1))) if blocks else echo


async def ask(family: Any, client: Any, blocks: bool) -> bytes:
    async with entered(blocks, await run(blocks, client.open_stream if family is bymux else client.open_session)) as it:
        await run(blocks, it.write, b"tide")
        await run(blocks, it.finish)
        return bytes(await run(blocks, it.read, -1))


@FAMILIES
@EACH
async def test_a_server_listens_on_the_sockets_that_it_is_given(family: Any, blocks: bool, tmp_path: Path) -> None:
    package = family if blocks else family.aio
    shared = [socket.socket(), socket.socket()]
    for each in shared:  # two processes would each have one
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    shared[0].bind(("127.0.0.1", 0))
    shared[1].bind(shared[0].getsockname())
    local = socket.socket(socket.AF_UNIX)
    local.bind(str(tmp_path / "socket"))
    local.listen()  # like a socket passed by systemd
    for given in (shared[0], [shared[1], local]):
        server = await run(blocks, lambda given=given: package.serve(handler(blocks), sock=given))
        async with entered(blocks, server):
            assert server.port == server.address[1]
            client = await run(blocks, lambda server=server: package.connect("127.0.0.1", server.port))
            async with entered(blocks, client):
                assert await ask(family, client, blocks) == b"tide"
            if given is not shared[0]:
                client = await run(blocks, lambda: package.connect(path=tmp_path / "socket"))
                async with entered(blocks, client):
                    assert await ask(family, client, blocks) == b"tide"
    assert all(each.fileno() == -1 for each in (*shared, local))


@FAMILIES
@EACH
@pytest.mark.parametrize("is_abstract", [False, True], ids=["file", "abstract"])
@pytest.mark.parametrize("kind", [str, bytes])
async def test_a_unix_socket_has_a_path_and_no_port(
    family: Any, blocks: bool, is_abstract: bool, kind: type, tmp_path: Path
) -> None:
    package = family if blocks else family.aio
    text = f"\0mainstem-{tmp_path}" if is_abstract else str(tmp_path / "mux.sock")
    path = text if kind is str else text.encode()
    async with entered(blocks, await run(blocks, lambda: package.serve(handler(blocks), path=path))) as server:
        assert server.port is None
        assert repr(text.replace("\0", "@"))[1:-1] in repr(server)
        async with entered(blocks, await run(blocks, lambda: package.connect(path=path))) as client:
            assert repr(text.replace("\0", "@"))[1:-1] in repr(client)
            assert await ask(family, client, blocks) == b"tide"


AT_EXIT = """
import atexit, sys
from mainstem import bymux, jmux

def send():
    if sys.argv[1] == "bymux":
        with bymux.connect("localhost", int(sys.argv[2])) as connection, connection.open_stream() as stream:
            stream.write(b"last")
    else:
        with jmux.connect("localhost", int(sys.argv[2])) as client:
            client.request(b"last")

atexit.register(send)
"""


@FAMILIES
def test_a_host_name_is_resolved_while_the_interpreter_exits(family: Any) -> None:
    received: list[bytes] = []
    with family.serve(lambda stream: received.append(stream.read(-1)), "127.0.0.1", 0) as server:
        name = family.__name__.rpartition(".")[2]
        ended = subprocess.run(
            [sys.executable, "-c", AT_EXIT, name, str(server.port)], capture_output=True, text=True, check=False
        )
        if sys.version_info[:2] == (3, 12):  # starts no thread while it exits, whoever asks
            assert ended.stderr.endswith(
                "MainstemError: cannot start a thread: can't create new thread at interpreter shutdown\n"
            )
            return
        assert (ended.returncode, ended.stderr) == (0, "")
        wait_for(lambda: received == [b"last"])


@FAMILIES
@EACH
async def test_unusable_sockets_are_rejected(family: Any, blocks: bool) -> None:
    package = family if blocks else family.aio
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams, socket.socket() as unbound:
        for given in ({"sock": datagrams}, {"sock": unbound}, {"sock": []}, {"sock": unbound, "port": 1}, {"sock": 7}):
            with pytest.raises((ConfigurationError, TypeError)):
                await run(blocks, lambda given=given: package.serve(handler(blocks), **given))


WRONG = [
    {"host": "a..b", "port": 1},
    {"host": "a" * 64 + ".example", "port": 1},
    {"host": "a\0b", "port": 1},
    {"host": "", "port": 1},
    {"host": "127.0.0.1", "port": 70000},
    {"host": "127.0.0.1", "port": -1},
    {"host": "127.0.0.1", "port": "http"},
    {"host": "127.0.0.1"},
    {"path": ""},
    {"path": "/nonexistent/socket"},
    {"path": "/tmp/" + "a" * 200},
    {"path": "a\0b"},
    {"path": "/tmp/socket", "port": 7},
    {"host": "::1", "port": 1, "path": "/tmp/socket"},
]


@FAMILIES
@EACH
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:40])
async def test_an_unusable_address_raises_the_documented_error(
    family: Any, blocks: bool, wrong: dict[str, Any]
) -> None:
    package = family if blocks else family.aio
    before = descriptors()
    with pytest.raises((ConfigurationError, ConnectionLost)) as caught:
        await run(blocks, lambda: package.connect(**wrong))
    assert len(str(caught.value)) > 20
    assert "\n" not in str(caught.value)
    if wrong != {"host": "", "port": 1} and wrong != {"host": "127.0.0.1"}:  # every interface; any port
        with pytest.raises(ConfigurationError):
            await run(blocks, lambda: package.serve(handler(blocks), **wrong))
    if isinstance(
        asyncio.get_running_loop(), asyncio.BaseEventLoop
    ):  # uvloop keeps one in reserve from its first pipe on
        await until(lambda: descriptors() <= before)


@FAMILIES
@EACH
async def test_tls_over_unix_needs_the_name_in_the_certificate(
    family: Any, blocks: bool, files: CertificateFiles, tmp_path: Path
) -> None:
    package = family if blocks else family.aio
    path = str(tmp_path / "socket")
    with pytest.raises(ConfigurationError, match="server_hostname"):
        await run(blocks, lambda: package.connect(path=path, ca=files.ca))
    serving = await run(
        blocks, lambda: package.serve(handler(blocks), path=path, certificate=files.certificate, key=files.key)
    )
    async with entered(blocks, serving):
        client = await run(blocks, lambda: package.connect(path=path, ca=files.ca, server_hostname="localhost"))
        async with entered(blocks, client):
            assert await ask(family, client, blocks) == b"tide"


@pytest.mark.parametrize("text", ["unix:", "host", "host:70000", "host:port", ""])
def test_an_invalid_tunnel_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="address"):
        TunnelAddress.parse(text)


def test_ipv6_addresses_are_shown_in_brackets() -> None:
    with pytest.raises(ConnectionLost, match=r"cannot connect to \[::1\]:9"):
        bymux.connect("::1", 9)


@FAMILIES
@EACH
async def test_both_ends_report_why_tls_failed(
    family: Any, blocks: bool, files: CertificateFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    package = family if blocks else family.aio
    tls = {"certificate": files.certificate, "key": files.key, "client_ca": files.ca}

    async def fail(**more: Any) -> str:
        caplog.clear()
        with pytest.raises(MainstemError) as caught:
            async with entered(
                blocks, await run(blocks, lambda: package.connect("127.0.0.1", server.port, **more))
            ) as it:
                await ask(family, it, blocks)
        await until(lambda: [record for record in caplog.records if "TLS handshake" in record.getMessage()])
        assert "Traceback" not in caplog.text
        return str(caught.value)

    stranger = make_certificates(tmp_path).ca
    async with entered(
        blocks, await run(blocks, lambda: package.serve(handler(blocks), "127.0.0.1", 0, **tls))
    ) as server:
        assert "alert certificate required" in await fail(ca=files.ca)
        assert "peer did not return a certificate" in caplog.text
        assert "the certificate is not trusted" in await fail(ca=stranger)
        assert "alert unknown ca" in caplog.text
        assert "TLS handshake" in caplog.text


@contextlib.contextmanager
def few_descriptors(count: int) -> Iterator[None]:
    """Leave this process only `count` free descriptors."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                kept.append(os.dup(0))
        for _ in range(count):
            os.close(kept.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for number in kept:
            os.close(number)


@FAMILIES
@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
async def test_a_server_out_of_file_descriptors_pauses_and_resumes(
    family: Any,
    with_tls: bool,
    files: CertificateFiles,
    caplog: pytest.LogCaptureFixture,
) -> None:
    logs: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logs.append(context))
    tls = {"certificate": files.certificate, "key": files.key} if with_tls else {}
    async with family.aio.serve(handler(False), "127.0.0.1", 0, **tls) as server:
        waiting = [socket.socket() for _ in range(40)]
        with few_descriptors(5), caplog.at_level(logging.DEBUG):
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", server.port))
            await asyncio.sleep(1)
        assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) + len(logs) < 5
        assert "cannot accept connections" in caplog.text
        for each in waiting:
            each.close()
        await until(lambda: not len(server._admission))
        client = await family.aio.connect("127.0.0.1", server.port, **({"ca": files.ca} if with_tls else {}))
        async with client:
            assert await ask(family, client, False) == b"tide"


@FAMILIES
@EACH
async def test_connecting_without_file_descriptors_raises_and_leaks_nothing(family: Any, blocks: bool) -> None:
    package = family if blocks else family.aio
    async with family.aio.serve(handler(False), "127.0.0.1", 0) as server:
        client = await run(blocks, lambda: package.connect("127.0.0.1", server.port))
        await run(blocks, client.close)
        await until(lambda: not len(server._admission))
        before = descriptors()
        for left in range(10):
            with few_descriptors(left):
                try:
                    client = await run(blocks, lambda: package.connect("127.0.0.1", server.port, timeout=1))
                except MainstemError:
                    client = None
            if client is not None:
                await run(blocks, client.close)
            await until(lambda: not len(server._admission))
            assert left or client is None
            await until(lambda: descriptors() <= before)


class Silent:
    """Uses a transport without a connection."""

    def transport_ready(self, transport: Any) -> None:
        """Do nothing."""

    def data_received(self, data: memoryview) -> None:
        """Do nothing."""

    def writing_resumed(self) -> None:
        """Do nothing."""

    def transport_lost(self, error: Exception | None) -> None:
        """Do nothing."""


async def test_the_last_bytes_of_a_paused_transport_follow_those_that_it_holds() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with theirs:
        for end in (ours, theirs):
            end.setblocking(False)
        transport = await SocketTransport.connected(lambda protocol: loop.create_unix_connection(protocol, sock=ours))
        transport.start(Silent())
        data = bytes(4 << 20)
        transport.write([data])
        assert transport.paused
        received = bytearray(theirs.recv(1 << 16))  # the kernel has room again, and the loop has not noticed
        transport.write([b"the end"])
        transport.close()
        while piece := await loop.sock_recv(theirs, 1 << 20):
            received += piece
    assert received == data + b"the end"
