"""Neither forged first packets nor clients that stay silent after TLS lock others out of a server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.lossy_relay import LossyRelay
from tests.support.waiting import STALL_S, soon, until

from mainstem import aqueduct
from mainstem.aqueduct.admission import MAX_UNPROVEN
from mainstem.aqueduct.engine import AqueductEngine
from mainstem.aqueduct.quic import load_backend
from mainstem.aqueduct.settings import Settings
from mainstem.errors import ConnectionLost, Timeout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.aqueduct.aio import Connection, Server
    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system

BACKENDS = pytest.mark.parametrize("backend", ["qh3", "aioquic"])
SLOTS = 64
CONNECT_S = 5.0


async def echo(connection: Connection) -> None:
    async for message in connection.receiver:
        assert message == b"tide"
    await connection.wait_closed()


async def serving(certificates: CertificateFiles, backend: str, **options: Any) -> Server:
    return await aqueduct.aio.serve(
        echo, certificate=certificates.certificate, key=certificates.key, backend=backend, **options
    )


async def use(port: int, certificates: CertificateFiles, backend: str) -> None:
    """Connect, and wait until a message is acknowledged."""
    async with aqueduct.aio.connect(
        "localhost", port, ca=certificates.ca, backend=backend, timeout=CONNECT_S
    ) as connection:
        await soon(connection.sender.send_acknowledged(b"tide"))


def garbage() -> bytes:
    """Return an Initial packet with invalid contents."""
    ids = b"\x08" + os.urandom(8) + b"\x08" + os.urandom(8)
    return b"\xc3\x00\x00\x00\x01" + ids + b"\x00\x44\x96" + os.urandom(1174)


def hello(backend: str) -> list[bytes]:
    """Return the first packets of a client that then stops."""
    link = load_backend(backend).client(
        Settings(verify=False), server_name="localhost", sessions=None, origin="localhost"
    )
    link.connect(("127.0.0.1", 4433), 0.0)
    return [data for data, _ in link.transmit(0.0)]


def sources(count: int) -> Iterator[socket.socket]:
    """Open sockets with different source addresses."""
    for number in range(count):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source:
            source.bind((f"127.{1 + number % 7}.{number // 250}.{1 + number % 250}", 0))
            yield source


@BACKENDS
async def test_undecryptable_packets_leave_no_state(certificates: CertificateFiles, backend: str) -> None:
    async with await serving(certificates, backend, max_connections=SLOTS) as server:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attacker:
            for _ in range(2 * SLOTS):
                attacker.sendto(garbage(), ("127.0.0.1", server.port))
        await use(server.port, certificates, backend)
        assert server.connections <= 1


@BACKENDS
async def test_forged_addresses_do_not_lock_clients_out(certificates: CertificateFiles, backend: str) -> None:
    async with await serving(certificates, backend, max_connections=SLOTS) as server:
        for source in sources(3 * MAX_UNPROVEN):
            for data in hello(backend):
                source.sendto(data, ("127.0.0.1", server.port))
            await asyncio.sleep(0)
        await until(lambda: server.connections >= MAX_UNPROVEN, progress=lambda: server.connections)
        for _ in range(3):
            await use(server.port, certificates, backend)
        # The memory that remains is bounded, however many packets arrived.
        assert MAX_UNPROVEN <= server.connections <= MAX_UNPROVEN + 3
        assert server.stats().connections_refused == 0


@BACKENDS
async def test_an_unvalidated_address_gets_at_most_three_times_what_it_sent(
    certificates: CertificateFiles, backend: str
) -> None:
    async with await serving(certificates, backend, handshake_timeout=0.3) as server:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as victim:
            victim.bind(("127.0.0.9", 0))
            victim.setblocking(False)
            first = hello(backend)[0]
            victim.sendto(first, ("127.0.0.1", server.port))
            received = len(await soon(asyncio.get_running_loop().sock_recv(victim, 65536)))
            await until(lambda: not server.connections, progress=lambda: server.connections)
            with contextlib.suppress(BlockingIOError):
                while True:
                    received += len(victim.recv(65536))
        assert 0 < received <= 3 * len(first)


@BACKENDS
async def test_no_address_exceeds_its_share_of_connections(certificates: CertificateFiles, backend: str) -> None:
    async with await serving(certificates, backend, max_connections=4, max_connections_per_address=2) as server:
        connections = [
            await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca, backend=backend) for _ in range(2)
        ]
        for connection in connections:
            await soon(connection.sender.send_acknowledged(b"tide"))
        with pytest.raises(Timeout):
            await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca, backend=backend, timeout=0.3)
        async with LossyRelay(server.port, source="127.0.0.2") as relay:
            await use(relay.port, certificates, backend)
        for connection in connections:
            connection.abort()
            await connection.close()
        await until(lambda: not server.connections, progress=lambda: server.connections)
        await use(server.port, certificates, backend)


@BACKENDS
async def test_a_client_silent_after_tls_is_ended_to_make_room(certificates: CertificateFiles, backend: str) -> None:
    def silent(self: AqueductEngine, now_ns: int) -> None:
        """Send nothing."""

    async with await serving(certificates, backend, max_connections=2) as server:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AqueductEngine, "start", silent)
            first, second = [
                await aqueduct.aio.connect("localhost", server.port, ca=certificates.ca, backend=backend)
                for _ in range(2)
            ]
            await until(lambda: server.stats().connections_opened == 2, progress=server.stats)
        await use(server.port, certificates, backend)
        with pytest.raises(ConnectionLost, match="needed the place for another client") as caught:
            await soon(first.wait_closed())
        assert caught.value.delivery == "none"
        assert not second._protocol.engine.is_ended
        for connection in (first, second):
            connection.abort()
            await connection.close()


@BACKENDS
async def test_concurrent_clients_are_limited_to_the_free_connection_slots(
    certificates: CertificateFiles, backend: str
) -> None:
    served = 0

    async def use_one() -> None:
        nonlocal served
        connection = await aqueduct.aio.connect(
            "localhost", server.port, ca=certificates.ca, backend=backend, timeout=STALL_S
        )
        held.append(connection)
        await connection.sender.send_acknowledged(b"tide")
        served += 1

    held: list[Connection] = []
    async with await serving(certificates, backend, max_connections=2) as server:
        clients = [asyncio.create_task(use_one()) for _ in range(6)]
        await until(lambda: served >= 2, progress=server.stats)
        await asyncio.sleep(0.5)
        assert served == 2
        for client in clients:
            client.cancel()
        outcomes = await asyncio.gather(*clients, return_exceptions=True)
        others = [each for each in outcomes if not isinstance(each, asyncio.CancelledError | None)]
        assert [each for each in others if not isinstance(each, ConnectionLost) or each.delivery != "none"] == []
        for connection in held:
            connection.abort()
            await connection.close()
