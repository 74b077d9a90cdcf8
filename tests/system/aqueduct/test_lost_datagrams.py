"""How connections end when their last datagrams are lost or late."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.lossy_relay import LossyRelay
from tests.support.waiting import STALL_S, soon, until

from mainstem import aqueduct
from mainstem.aqueduct import Settings
from mainstem.aqueduct.engine import AqueductEngine
from mainstem.errors import ConnectionLost

if TYPE_CHECKING:
    from mainstem.aqueduct.aio import Connection
    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system

BACKENDS = pytest.mark.parametrize("backend", ["qh3", "aioquic"])
OUTAGE_S = 0.15
MESSAGES = [b"%d" % number for number in range(5)]
CONNECTIONS = 60


async def send_messages(connection: Connection) -> None:
    async with connection:
        for message in MESSAGES:
            await connection.sender.send(message)
        await connection.close(timeout=STALL_S)


@BACKENDS
async def test_a_server_waits_until_its_client_has_all_acknowledgments(
    certificates: CertificateFiles, backend: str
) -> None:
    received: list[bytes] = []

    async def handler(connection: Connection) -> None:
        received.extend([message async for message in connection.receiver])
        # From here on, what the server sends is lost for a while.
        relay.loss = 1.0
        outages.append(asyncio.create_task(end_outage()))

    async def end_outage() -> None:
        await asyncio.sleep(OUTAGE_S)
        await until(lambda: relay.lost)
        relay.loss = 0.0

    outages: list[asyncio.Task[None]] = []

    async with (
        await aqueduct.aio.serve(
            handler, certificate=certificates.certificate, key=certificates.key, backend=backend
        ) as server,
        LossyRelay(server.port) as relay,
    ):
        await soon(
            send_messages(await aqueduct.aio.connect("localhost", relay.port, ca=certificates.ca, backend=backend))
        )
        assert relay.lost
    assert received == MESSAGES
    await soon(asyncio.gather(*outages))


@BACKENDS
@pytest.mark.parametrize("closes", ["client", "server"])
async def test_an_orderly_close_arrives_although_its_first_packet_is_lost(
    certificates: CertificateFiles, backend: str, closes: str
) -> None:
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    go = asyncio.Event()

    async def wait_closed(connection: Connection) -> str:
        try:
            await connection.wait_closed()
        except ConnectionLost as error:
            return str(error)
        return "in order"

    def lose_for_a_while() -> None:
        relay.loss = 1.0
        asyncio.get_running_loop().call_later(0.03, setattr, relay, "loss", 0.0)

    async def handler(connection: Connection) -> None:
        await connection.receiver.receive()
        if closes == "server":
            await go.wait()
            lose_for_a_while()
            connection.abort()
        else:
            try:
                result = await wait_closed(connection)
            except asyncio.CancelledError:
                result = "in order"
            ended.set_result(result)

    # Nothing else that is sent would tell the other side.
    async with (
        await aqueduct.aio.serve(
            handler, certificate=certificates.certificate, key=certificates.key, backend=backend, keep_alive=0
        ) as server,
        LossyRelay(server.port) as relay,
    ):
        connection = await aqueduct.aio.connect(
            "localhost", relay.port, ca=certificates.ca, backend=backend, keep_alive=0
        )
        await connection.sender.send_acknowledged(b"tide")
        go.set()
        if closes == "client":
            lose_for_a_while()
            connection.abort()
            await connection.close()
            assert await soon(ended) == "in order"
        else:
            assert await soon(wait_closed(connection)) == "in order"
            connection.abort()
            await connection.close()
        assert relay.lost


@pytest.mark.long
@BACKENDS
async def test_connections_over_a_lossy_path_close_cleanly(certificates: CertificateFiles, backend: str) -> None:
    received: list[bytes] = []
    # A busy machine could not serve all at once before their idle timeouts.
    places = asyncio.Semaphore(10)

    async def handler(connection: Connection) -> None:
        received.extend([message async for message in connection.receiver])

    async def leave_in_order(server: aqueduct.aio.Server, seed: int) -> None:
        async with places, LossyRelay(server.port, loss=0.05, seed=seed) as relay:
            await send_messages(
                await aqueduct.aio.connect(
                    "localhost", relay.port, ca=certificates.ca, backend=backend, timeout=STALL_S, keep_alive=0
                )
            )

    async with aqueduct.aio.serve(
        handler, certificate=certificates.certificate, key=certificates.key, backend=backend
    ) as server:
        leaving = asyncio.gather(*(leave_in_order(server, seed) for seed in range(CONNECTIONS)))
        await soon(leaving, progress=lambda: len(received))
    assert len(received) == CONNECTIONS * len(MESSAGES)


@BACKENDS
async def test_a_disconnected_client_gets_the_reason_when_other_timers_are_due(
    certificates: CertificateFiles, backend: str
) -> None:
    async def handler(connection: Connection) -> None:
        await connection.wait_closed()

    def silent(self: AqueductEngine, now_ns: int) -> None:
        """Send nothing."""

    async with aqueduct.aio.serve(
        handler,
        certificate=certificates.certificate,
        key=certificates.key,
        backend=backend,
        handshake_timeout=2.0,
        keep_alive=2.0,
    ) as server:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AqueductEngine, "start", silent)
            connection = await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca, backend=backend)
        await asyncio.sleep(1.8)
        # The loop is late: the timeouts of the headers and of the keepalive expire in the same iteration.
        time.sleep(0.4)
        with pytest.raises(ConnectionLost, match="timed out after 2 s waiting for the peer's connection headers"):
            await soon(connection.wait_closed())
        connection.abort()
        await connection.close()


@BACKENDS
async def test_an_idle_connection_stays_open_and_a_dead_peer_is_detected(
    certificates: CertificateFiles, backend: str
) -> None:
    default = Settings()
    assert 2 * default.keep_alive < default.idle_timeout <= 30

    async def handler(connection: Connection) -> None:
        await connection.wait_closed()

    async with (
        aqueduct.aio.serve(
            handler, certificate=certificates.certificate, key=certificates.key, backend=backend, keep_alive=0
        ) as server,
        LossyRelay(server.port) as relay,
    ):
        times: Any = {"idle_timeout": 1.5, "keep_alive": 0.3}
        connection = await aqueduct.aio.connect("localhost", relay.port, ca=certificates.ca, backend=backend, **times)
        await asyncio.sleep(2.0)
        assert not connection.closed
        relay.loss = 1.0
        with pytest.raises(ConnectionLost):
            await connection.wait_closed(timeout=STALL_S)
        await connection.close()
