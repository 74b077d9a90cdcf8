"""Handlers can see the peer's address and certificate; a server that requires a client certificate rejects clients without one."""

from __future__ import annotations

import asyncio
import importlib.util
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.mux_pair import awaited
from tests.support.waiting import STALL_S, soon, until

from mainstem import bymux
from mainstem import jmux as jmux_blocking
from mainstem._internal.loop_thread import LoopThread
from mainstem.aqueduct import make_certificates
from mainstem.errors import ConnectionLost
from mainstem.jmux import aio as jmux

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.system
pytest.importorskip("cryptography")


def example() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "examples" / "mux_certificates.py"
    spec = importlib.util.spec_from_file_location("mux_certificates", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_example_authorizes_by_certificate(capsys: pytest.CaptureFixture[str]) -> None:
    await example().main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ada.example from 127.0.0.1 sent 7 bytes"
    assert lines[1].endswith("eve.example is not allowed")


@pytest.mark.parametrize("protocol", [bymux.aio, jmux])
async def test_a_handler_has_the_address_and_certificate_of_its_peer(protocol: Any, tmp_path: Path) -> None:
    seen: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def handler(stream: Any) -> None:
        seen.set_result((stream.peer_address, stream.peer_certificate))
        await stream.read(-1)

    files = make_certificates(tmp_path, clients=("ada.example",))
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(files.ca))
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(files.certificate, files.key)
    client = ssl.create_default_context(cafile=str(files.ca))
    client.load_cert_chain(*files.clients["ada.example"])
    async with await protocol.serve(handler, "127.0.0.1", 0, ssl=server) as listener:
        connection = await protocol.connect("127.0.0.1", listener.port, ssl=client, server_hostname="localhost")
        stream = await (connection.open_stream() if protocol is bymux.aio else connection.open_session())
        stream.write(b"x")
        address, certificate = await soon(seen)
        assert address[0] == "127.0.0.1"
        assert certificate["subject"] == ((("commonName", "ada.example"),),)
        assert (
            stream.peer_certificate["subject"]
            == connection.peer_certificate["subject"]
            == ((("commonName", "localhost"),),)
        )
        stream.abort()
        await connection.close()


@pytest.mark.parametrize("protocol", [bymux.aio, jmux])
async def test_without_tls_there_is_an_address_and_no_certificate(protocol: Any) -> None:
    seen: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def handler(stream: Any) -> None:
        seen.set_result((stream.peer_address, stream.peer_certificate))
        await stream.read(-1)

    async with await protocol.serve(handler, "127.0.0.1", 0) as listener:
        connection = await protocol.connect("127.0.0.1", listener.port)
        stream = await (connection.open_stream() if protocol is bymux.aio else connection.open_session())
        stream.write(b"x")
        address, certificate = await soon(seen)
        assert address[0] == "127.0.0.1"
        assert certificate is None
        stream.abort()
        await connection.close()


async def echo(stream: Any) -> None:
    stream.write(await stream.readexactly(1))
    await stream.read(-1)


@pytest.mark.parametrize("tls", [False, True])
def test_the_blocking_api_has_the_peers_address_and_certificate(tls: bool, tmp_path: Path) -> None:
    serving: dict[str, Any] = {}
    connecting: dict[str, Any] = {}
    if tls:
        files = make_certificates(tmp_path, clients=("ada.example",))
        certificate, key = files.clients["ada.example"]
        serving = {"certificate": files.certificate, "key": files.key, "client_ca": files.ca}
        connecting = {"ca": files.ca, "certificate": certificate, "key": key, "server_hostname": "localhost"}
    views = []
    with LoopThread("server") as thread:
        listener = thread.run(awaited(bymux.aio.serve(echo, "127.0.0.1", 0, **serving)))
        with bymux.connect("127.0.0.1", listener.port, **connecting) as connection:
            assert connection.peer_address == ("127.0.0.1", listener.port)
            with connection.open_stream() as stream:
                assert stream.connection is connection
                stream.write(b"x")
                assert stream.readexactly(1, timeout=STALL_S) == b"x"
        views.append((connection, listener.port))
        thread.run(listener.close())

    def respond(session: jmux_blocking.ServerSession) -> None:
        host, _ = session.peer_address
        session.write(session.read(-1) + host.encode())

    with (
        jmux_blocking.serve(respond, "127.0.0.1", 0, **serving) as server,
        jmux_blocking.connect("127.0.0.1", server.port, **connecting) as client,
        client.open_session(timeout=10) as session,
    ):
        session.write(b"x")
        session.finish()
        assert session.read(-1, timeout=STALL_S) == b"x127.0.0.1"
    views += [(session, server.port), (client, server.port)]
    for view, port in views:  # still available after the end
        assert view.peer_address == ("127.0.0.1", port)
        certificate = view.peer_certificate
        if tls:
            assert certificate is not None
            assert certificate["subject"] == ((("commonName", "localhost"),),)
        else:
            assert certificate is None


async def test_a_client_without_a_certificate_is_rejected(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(session: jmux.ServerSession) -> None:
        await session.read(-1)

    files = make_certificates(tmp_path)
    tls = {"certificate": files.certificate, "key": files.key, "client_ca": files.ca}
    async with jmux.serve(handler, "127.0.0.1", 0, **tls) as listener:
        with pytest.raises(ConnectionLost) as caught:
            await jmux.connect("127.0.0.1", listener.port, ca=files.ca)
        assert caught.value.delivery == "none"
        await until(lambda: not len(listener._admission))
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
