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
from mainstem.errors import ConfigurationError, MainstemError

if TYPE_CHECKING:
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
