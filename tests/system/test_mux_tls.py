"""TLS from files, as in Aqueduct: the settings `certificate`, `key`, `ca`, and `client_ca`."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.endings import entered, run
from tests.support.waiting import STALL_S

from mainstem import bymux, jmux
from mainstem.aqueduct import make_certificates
from mainstem.errors import ConfigurationError, ConnectionLost, MainstemError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system
pytest.importorskip("cryptography")

EACH = pytest.mark.parametrize("blocks", [True, False], ids=["blocking", "asyncio"])
FAMILIES = pytest.mark.parametrize("family", [bymux, jmux], ids=["bymux", "jmux"])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return make_certificates(tmp_path_factory.mktemp("certificates"), clients=("ada",))


def handler(blocks: bool) -> Any:
    """Return a handler that responds with the client's certificate, if it has one."""

    def blocking(stream: Any) -> None:
        stream.read(-1)
        stream.write(repr(stream.peer_certificate).encode())
        stream.finish()

    async def handle(stream: Any) -> None:
        await stream.read(-1)
        stream.write(repr(stream.peer_certificate).encode())
        stream.finish()

    return blocking if blocks else handle


async def ask(family: Any, client: Any, blocks: bool) -> bytes:
    opening = await run(blocks, client.open_stream if family is bymux else client.open_session)
    async with entered(blocks, opening) as stream:
        await run(blocks, stream.write, b"who am I?")
        await run(blocks, stream.finish)
        return bytes(await run(blocks, stream.read, -1))


async def ask_without_certificate(family: Any, package: Any, port: int, blocks: bool, files: CertificateFiles) -> None:
    connecting = await run(blocks, lambda: package.connect("127.0.0.1", port, ca=files.ca))
    async with entered(blocks, connecting) as client:
        await ask(family, client, blocks)


@FAMILIES
@EACH
async def test_certificate_files_give_mutual_tls(family: Any, blocks: bool, files: CertificateFiles) -> None:
    package = family if blocks else family.aio
    tls = {"certificate": files.certificate, "key": files.key, "client_ca": files.ca}
    async with asyncio.timeout(STALL_S):
        serving = await run(blocks, lambda: package.serve(handler(blocks), "127.0.0.1", 0, **tls))
        async with entered(blocks, serving) as server:
            certificate, key = files.clients["ada"]
            own = {"ca": files.ca, "certificate": certificate, "key": key}
            connecting = await run(blocks, lambda: package.connect("127.0.0.1", server.port, **own))
            async with entered(blocks, connecting) as client:
                assert b"ada" in await ask(family, client, blocks)
                assert client.peer_certificate
            with pytest.raises(MainstemError):
                await ask_without_certificate(family, package, server.port, blocks, files)


@FAMILIES
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"key": "key.pem"}, "key needs certificate"),
        ({"client_ca": "ca.pem"}, "client_ca"),
        ({"certificate": "/absent.pem"}, "No such file"),
        ({"certificate": "cert.pem", "ssl": True}, "not both"),
    ],
)
def test_unusable_certificate_files_are_rejected_with_the_reason(
    family: Any, wrong: dict[str, Any], reason: str
) -> None:
    if "ssl" in wrong:
        wrong = wrong | {"ssl": ssl.create_default_context()}
    with pytest.raises(ConfigurationError, match=reason):
        family.connect("127.0.0.1", 1, **wrong)
    if "client_ca" not in wrong:
        with pytest.raises(ConfigurationError, match=reason):
            family.serve(handler(blocks=True), "127.0.0.1", 0, **wrong)


@FAMILIES
@EACH
async def test_an_invalid_context_is_a_mistake_of_the_caller(family: Any, blocks: bool) -> None:
    package = family if blocks else family.aio
    for context, reason in (("tls", "must be an ssl.SSLContext"), (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), "kind")):
        with pytest.raises(ConfigurationError, match=reason):
            await run(blocks, lambda context=context: package.connect("127.0.0.1", 1, ssl=context))
    with pytest.raises(ConfigurationError, match="there is no TLS"):
        await run(blocks, lambda: package.connect("127.0.0.1", 1, server_hostname="localhost"))
    for context, reason in ((True, "needs a certificate"), (ssl.create_default_context(), "kind")):
        with pytest.raises(ConfigurationError, match=reason):
            await run(blocks, lambda context=context: package.serve(handler(blocks), "127.0.0.1", 0, ssl=context))


@FAMILIES
@EACH
async def test_ssl_true_makes_a_default_context(
    family: Any, blocks: bool, files: CertificateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = family if blocks else family.aio
    with_files = {"certificate": files.certificate, "key": files.key, "ssl": True}
    async with entered(
        blocks, await run(blocks, lambda: package.serve(handler(blocks), "localhost", 0, **with_files))
    ) as server:
        with pytest.raises(ConnectionLost, match="not trusted"):
            await run(blocks, lambda: package.connect("localhost", server.port, ssl=True))
        monkeypatch.setenv("SSL_CERT_FILE", str(files.ca))  # the system's authorities
        async with entered(
            blocks, await run(blocks, lambda: package.connect("localhost", server.port, ssl=True))
        ) as client:
            assert await ask(family, client, blocks) == b"None"


TRANSPORTS = pytest.mark.parametrize("is_unix", [False, True], ids=["tcp", "unix"])


def places(is_unix: bool, tmp_path: Path) -> tuple[dict[str, Any], Callable[[Any], dict[str, Any]]]:
    """Return where a server listens, and a function that returns where clients find it."""
    if is_unix:
        return {"path": str(tmp_path / "socket")}, lambda _: {"path": str(tmp_path / "socket")}
    return {"host": "localhost", "port": 0}, lambda server: {"host": "localhost", "port": server.port}


@FAMILIES
@EACH
@TRANSPORTS
async def test_a_tls_client_is_told_that_the_server_is_plain(
    family: Any, blocks: bool, is_unix: bool, files: CertificateFiles, tmp_path: Path
) -> None:
    package = family if blocks else family.aio
    listen, where = places(is_unix, tmp_path)
    serving = await run(blocks, lambda: package.serve(handler(blocks), **listen))
    async with entered(blocks, serving) as server:
        for tls in ({"ssl": True, "server_hostname": "localhost"}, {"ca": files.ca, "server_hostname": "localhost"}):
            with pytest.raises(RemoteProtocolError, match="the peer does not use TLS") as caught:
                await run(blocks, lambda tls=tls: package.connect(**where(server), **tls))
            assert not caught.value.may_retry


@FAMILIES
@EACH
@TRANSPORTS
async def test_a_plain_client_is_told_that_the_server_uses_tls(
    family: Any, blocks: bool, is_unix: bool, files: CertificateFiles, tmp_path: Path
) -> None:
    package = family if blocks else family.aio
    listen, where = places(is_unix, tmp_path)
    tls = {"certificate": files.certificate, "key": files.key, "handshake_timeout": None}

    async def write(place: dict[str, Any], **limits: Any) -> None:
        async with entered(blocks, await run(blocks, lambda: package.connect(**place, **limits))) as client:
            await ask(family, client, blocks)

    async def only_read(place: dict[str, Any], **limits: Any) -> None:
        async with entered(blocks, await run(blocks, lambda: package.connect(**place, **limits))) as client:
            await run(blocks, client.accept_stream)

    serving = await run(blocks, lambda: package.serve(handler(blocks), **listen, **tls))
    async with asyncio.timeout(STALL_S), entered(blocks, serving) as server:
        attempts = [write(where(server))]
        if family is bymux:
            # One that has announced how many streams the server may open, and one that has sent nothing.
            attempts += [only_read(where(server)), only_read(where(server), peer_streams=0)]
        for attempt in attempts:
            with pytest.raises(
                RemoteProtocolError, match="TLS alert, because it uses TLS: connect with ssl=True"
            ) as caught:
                await attempt
            assert (caught.value.may_retry, caught.value.rule) == (False, "tls")
