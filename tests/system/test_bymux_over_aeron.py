"""bymux over a pair of real Aeron publications, through a real driver."""

from __future__ import annotations

import asyncio
import pathlib
import random
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.ports import free_port
from tests.support.waiting import soon, until

import mainstem
from mainstem import bymux
from mainstem.aeron.client.offer_status import OfferStatus
from mainstem.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.system

PROGRAM = pathlib.Path(__file__).parent / "programs" / "bymux_over_aeron.py"


async def echo(stream: bymux.aio.Stream) -> None:
    async for data in stream:
        stream.write(data)
        await stream.drain()
    await stream.close()


@pytest.mark.parametrize("medium", ["ipc", "udp"])
async def test_streams_work_over_publications(medium: str) -> None:
    channels = [f"aeron:udp?endpoint=localhost:{free_port()}" if medium == "udp" else "aeron:ipc" for _ in range(2)]
    data = random.Random(1).randbytes(500_000)
    with (
        mainstem.MediaDriver.launch() as driver,
        mainstem.Aeron.connect(driver.directory) as aeron,
        aeron.add_publication(channels[0], 1001) as there,
        aeron.add_subscription(channels[0], 1001) as at_server,
        aeron.add_publication(channels[1], 1002) as back,
        aeron.add_subscription(channels[1], 1002) as at_client,
    ):
        limit = there.max_payload_length
        client = await bymux.aio.over_publications(there, at_client, role=bymux.Role.PROACTIVE, message_limit=limit)
        server = await bymux.aio.over_publications(
            back, at_server, role=bymux.Role.REACTIVE, handler=echo, message_limit=limit
        )
        async with client.open_stream() as stream:

            async def send() -> None:
                for at in range(0, len(data), 30_000):
                    stream.write(data[at : at + 30_000])
                    await stream.drain()
                stream.finish()

            sending = asyncio.ensure_future(send())
            assert await soon(stream.read(-1)) == data
            await sending
        assert await client.ping() < 10
        await asyncio.gather(client.close(), server.close())


class Path:
    """Two connections over publications of two clients of one driver, and a stream from the server, which writes, to the client."""

    DATA = random.Random(7).randbytes(400_000)

    def __init__(self, driver: mainstem.MediaDriver, medium: str) -> None:
        self.driver = driver
        port = free_port(2)
        channels = [f"aeron:udp?endpoint=localhost:{port + n}" if medium == "udp" else "aeron:ipc" for n in range(2)]
        self.near, self.far = (mainstem.Aeron.connect(driver.directory) for _ in range(2))
        self.to_client = self.far.add_exclusive_publication(channels[0], 1001)
        self.from_server = self.near.add_subscription(channels[0], 1001)
        self.to_server = self.near.add_exclusive_publication(channels[1], 1002)
        self.from_client = self.far.add_subscription(channels[1], 1002)
        self.pace = asyncio.Event()
        self.written = 0

    async def open(self, **settings: Any) -> None:
        self.server = await bymux.aio.over_publications(
            self.to_client, self.from_client, role=bymux.Role.REACTIVE, handler=self._write, **settings
        )
        self.client = await bymux.aio.over_publications(
            self.to_server, self.from_server, role=bymux.Role.PROACTIVE, **settings
        )
        self.stream = await soon(self.client.open_stream())
        self.stream.write(b"go")
        await self.stream.drain()

    async def _write(self, stream: bymux.aio.Stream) -> None:
        await stream.readexactly(2)
        while self.written < len(self.DATA):
            stream.write(self.DATA[self.written : self.written + 4_000])
            self.written += 4_000
            await stream.drain()
            if self.written > 40_000:
                await self.pace.wait()
        await stream.close()

    async def read(self) -> bytes:
        """Read up to the end of the stream. A part of the data with a regular end fails the test."""
        received = bytearray()
        while data := await self.stream.read(10_000):
            received += data
        assert received == self.DATA, f"a regular end after {len(received)} of {len(self.DATA)} bytes"
        return bytes(received)

    def close(self) -> None:
        for connection in (self.client, self.server):
            connection.abort()
        for aeron in (self.near, self.far):
            aeron.close()


def close_peers_publication(path: Path) -> None:
    path.to_client.close()


def revoke_peers_publication(path: Path) -> None:
    path.to_client.revoke()


def close_peers_subscription(path: Path) -> None:
    path.from_client.close()


def close_own_publication(path: Path) -> None:
    path.to_server.close()


def close_own_subscription(path: Path) -> None:
    path.from_server.close()


def close_peers_client(path: Path) -> None:
    path.far.close()


def close_own_client(path: Path) -> None:
    path.near.close()


def close_driver(path: Path) -> None:
    path.driver.close()


def replace_peers_publication(path: Path) -> None:
    path.to_client.close()
    path.far.add_exclusive_publication(path.to_client.channel, path.to_client.stream_id)


CUTS = (
    close_peers_publication,
    revoke_peers_publication,
    close_peers_subscription,
    close_own_publication,
    close_own_subscription,
    close_peers_client,
    close_own_client,
    close_driver,
    replace_peers_publication,
)


@pytest.mark.parametrize("medium", ["ipc", pytest.param("udp", marks=pytest.mark.long)])
@pytest.mark.parametrize("cut", CUTS)
async def test_a_dead_path_is_a_lost_connection_without_any_heartbeat(cut: Callable[[Path], None], medium: str) -> None:
    with mainstem.MediaDriver.launch() as driver:
        path = Path(driver, medium)
        await path.open(ping_interval=None)
        reading = asyncio.ensure_future(path.read())
        await until(lambda: path.written > 40_000)
        cut(path)
        if cut is close_own_publication:
            path.stream.write(b"more")
        with pytest.raises(ConnectionLost):
            await soon(reading)
        assert isinstance(path.client.error, ConnectionLost)
        path.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(18))
async def test_a_reader_gets_everything_or_an_error(seed: int) -> None:
    rng = random.Random(seed)
    with mainstem.MediaDriver.launch() as driver:
        path = Path(driver, rng.choice(("ipc", "udp")))
        await path.open(ping_interval=None)
        path.pace.set()
        reading = asyncio.ensure_future(path.read())
        at = rng.randrange(len(path.DATA))
        await until(lambda: path.written >= at, poll_s=0.0005)
        rng.choice((*CUTS, lambda path: path.server.abort(), lambda path: None))(path)
        with suppress(ConnectionLost):
            await soon(reading)
        path.close()


async def test_a_peer_that_ends_the_connection_is_told_from_a_dead_path() -> None:
    with mainstem.MediaDriver.launch() as driver:
        path = Path(driver, "udp")
        await path.open()
        path.pace.set()
        assert await soon(path.read()) == path.DATA
        await soon(path.server.close())
        await soon(path.client.wait_closed())
        assert path.client.error is None
        path.close()


@pytest.mark.parametrize("status", [OfferStatus.CLOSED, OfferStatus.MAX_POSITION_EXCEEDED])
async def test_a_final_status_of_an_offer_is_a_lost_connection(status: OfferStatus) -> None:
    class Refusing:
        def offer(self, buffer: bytes, /) -> int:
            return status

        def poll(self, handler: object, limit: int) -> int:
            return 0

    ends = Refusing()
    connection = await bymux.aio.over_publications(ends, ends, role=bymux.Role.PROACTIVE, ping_interval=None)
    await soon(connection.wait_closed())
    assert isinstance(connection.error, ConnectionLost)


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_peers_process_is_a_lost_connection_without_any_heartbeat(how: signal.Signals) -> None:
    liveness_ns = 1_500_000_000
    with (
        mainstem.MediaDriver.launch(client_liveness_timeout_ns=liveness_ns) as driver,
        mainstem.Aeron.connect(driver.directory) as aeron,
        aeron.add_exclusive_publication("aeron:ipc", 1002) as publication,
        aeron.add_subscription("aeron:ipc", 1001) as subscription,
        subprocess.Popen([sys.executable, PROGRAM, driver.directory]) as peer,
        bymux.over_publications(publication, subscription, role=bymux.Role.PROACTIVE, ping_interval=None) as connection,
    ):
        stream = connection.open_stream()
        stream.write(b"go")
        assert stream.read(10)
        peer.send_signal(how)
        with pytest.raises(ConnectionLost):
            stream.read(-1)
        peer.kill()
        connection.abort()
