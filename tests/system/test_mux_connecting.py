"""Give up connecting at any moment: nothing hangs, and neither end keeps a connection, a task or a descriptor."""

from __future__ import annotations

import asyncio
import gc
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.cancellation import descriptors
from tests.support.waiting import soon, until

from mainstem import aqueduct, bymux, jmux
from mainstem.bymux.tunnel import Address, TunnelClient, TunnelServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system
pytest.importorskip("cryptography")

FAMILIES = pytest.mark.parametrize("family", [bymux.aio, jmux.aio], ids=["bymux", "jmux"])
WAYS = pytest.mark.parametrize("way", ["tcp", "tls", "unix", "tls over unix"])
# Connecting takes fewer turns of the event loop in every way, unless other processes take the CPU away; then it is given up later.
MANY_TURNS = 30


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return aqueduct.make_certificates(tmp_path_factory.mktemp("certificates"))


async def echo(stream: Any) -> None:
    stream.write(await stream.read(-1))


def place_of(
    way: str, files: CertificateFiles, directory: Path
) -> tuple[dict[str, Any], Callable[[Any], dict[str, Any]]]:
    """Return the arguments of ``serve``, and a function from the server to the arguments of ``connect``."""
    tls = {"certificate": files.certificate, "key": files.key} if "tls" in way else {}
    trust = {"ca": files.ca, "server_hostname": "localhost"} if "tls" in way else {}
    if "unix" in way:
        path = str(directory / "mux.sock")
        return {"path": path, **tls}, lambda _: {"path": path, **trust}
    return {"host": "127.0.0.1", "port": 0, **tls}, lambda server: {"host": "127.0.0.1", "port": server.port, **trust}


async def opened(opening: Any) -> Any:
    return await opening


async def given_up_after(turns: int, opening: Any) -> Any:
    """Cancel an opening after some turns of the loop; return what it opened, or ``None`` if it was cancelled."""
    task = asyncio.ensure_future(opened(opening))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await soon(asyncio.wait({task}))
    return None if task.cancelled() else task.result()


async def no_more_than(before: set[str]) -> None:
    await until(lambda: gc.collect() >= 0 and not descriptors() - before, poll_s=0.01)


@FAMILIES
@WAYS
async def test_connecting_can_be_cancelled_in_every_turn(
    family: Any, way: str, files: CertificateFiles, tmp_path: Path
) -> None:
    where, at = place_of(way, files, tmp_path)
    async with family.serve(echo, **where) as server:
        before = descriptors()
        for turns in range(1, MANY_TURNS):
            if (client := await given_up_after(turns, family.connect(**at(server)))) is not None:
                await soon(client.close())
            # A connection that is left open would stay forever.
            await until(lambda: not server.stats().connections)
        await no_more_than(before)


@FAMILIES
@WAYS
async def test_a_server_can_be_closed_in_every_turn_of_a_connection(
    family: Any, way: str, files: CertificateFiles, tmp_path: Path
) -> None:
    where, at = place_of(way, files, tmp_path)
    before = None
    for turns in range(1, MANY_TURNS, 2):
        server = await family.serve(echo, **where)
        connecting = asyncio.ensure_future(opened(family.connect(**at(server))))
        for _ in range(turns):
            await asyncio.sleep(0)
        await soon(server.close())
        connecting.cancel()
        (client,) = await soon(asyncio.gather(connecting, return_exceptions=True))
        if not isinstance(client, BaseException):
            await soon(client.close())
        before = before or descriptors()
    await no_more_than(before or set())


@WAYS
async def test_a_client_of_jmux_can_be_closed_while_it_connects_again(
    way: str, files: CertificateFiles, tmp_path: Path
) -> None:
    where, at = place_of(way, files, tmp_path)
    async with jmux.aio.serve(echo, **where) as server:
        before = descriptors()
        for turns in range(1, MANY_TURNS, 2):
            client = await jmux.aio.connect(**at(server))
            client._pool.connections[0].abort()
            asking = asyncio.ensure_future(client.request(b"tide"))
            for _ in range(turns):
                await asyncio.sleep(0)
            await soon(client.close())
            await soon(asyncio.gather(asking, return_exceptions=True))
            await until(lambda: not server.stats().connections)
        await no_more_than(before)


@pytest.mark.parametrize("has_tls", [False, True], ids=["tcp", "tls"])
async def test_a_tunnel_can_be_given_up_while_it_connects(has_tls: bool, files: CertificateFiles) -> None:
    loopback = Address("127.0.0.1", 0)
    serving = trusting = None
    if has_tls:
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving.load_cert_chain(files.certificate, files.key)
        trusting = ssl.create_default_context(cafile=str(files.ca))
    async with TunnelServer(loopback) as far:
        await far.start(loopback, ssl=serving)
        before = descriptors()
        for turns in range(1, MANY_TURNS):
            async with TunnelClient(Address("localhost", far.port), ssl=trusting) as near:
                starting = asyncio.ensure_future(near.start(loopback))
                for _ in range(turns):
                    await asyncio.sleep(0)
                starting.cancel()
                await soon(asyncio.wait({starting}))
            await until(lambda: not far.stats().connections)
        await no_more_than(before)


async def test_connecting_aqueduct_can_be_cancelled_in_every_turn(files: CertificateFiles) -> None:
    pytest.importorskip("qh3")

    async def drain(connection: aqueduct.aio.Connection) -> None:
        async for _ in connection.receiver:
            pass

    async with aqueduct.aio.serve(drain, "127.0.0.1", 0, certificate=files.certificate, key=files.key) as server:
        before = descriptors()
        for turns in range(1, MANY_TURNS, 3):
            opening = aqueduct.aio.connect("127.0.0.1", server.port, ca=files.ca, server_name="localhost")
            if (client := await given_up_after(turns, opening)) is not None:
                await soon(client.close())
            await until(lambda: not server.stats().connections)
        await no_more_than(before)
