"""Whatever breaks a connection at whatever byte: a reader gets everything or an error, and a writer learns of it in close()."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.broken_link import TO_CLIENT, TO_SERVER, WAYS, Break, BrokenLink
from tests.support.case_selection import long_after
from tests.support.waiting import STALL_S

from mainstem import bymux, jmux
from mainstem.aqueduct import make_certificates
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broken_link import Place

    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system
pytest.importorskip("cryptography")

AT_ONCE, IN_ALL = 2, 8  # examples in `make test`, and in `make check`
MOST = 60_000  # bytes of a request, and of its response
HEARTBEAT = {"ping_interval": 0.2, "ping_timeout": 0.2, "close_timeout": 1.0}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def breaks(rng: random.Random, count: int, *, ways: tuple[str, ...] = WAYS) -> list[Break]:
    """Return breaks of each kind, near the beginning and anywhere."""
    return [
        Break(ways[n % len(ways)], rng.choice((TO_SERVER, TO_CLIENT)), rng.randrange(rng.choice((40, 3000, MOST))))
        for n in range(count)
    ]


class Reading:
    """What a reader got: all until an orderly end, or less and an error."""

    def __init__(self) -> None:
        self.data = b""
        self.is_over = self.ended_in_order = False

    async def read(self, stream: Any) -> None:
        try:
            async for part in stream:
                self.data += part
            self.ended_in_order = True
        finally:
            self.is_over = True

    def read_blocking(self, stream: Any) -> None:
        try:
            for part in stream:
                self.data += part
            self.ended_in_order = True
        finally:
            self.is_over = True


async def exchange(family: Any, place: dict[str, Any], request: bytes, response: Reading) -> None:
    """Send a request and read the response. Raises the error of whatever failed, in close() at the latest."""
    async with family.aio.connect(**place, **HEARTBEAT) as client:
        opening = client.open_stream() if family is bymux else client.open_session()
        async with opening as stream:
            reading = asyncio.ensure_future(response.read(stream))
            try:
                for at in range(0, len(request), 5000):
                    stream.write(request[at : at + 5000])
                    await stream.drain()
                stream.finish()
                await reading
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)


def exchange_blocking(family: Any, place: dict[str, Any], request: bytes, response: Reading) -> None:
    """Like ``exchange``, with the blocking variant of a family, and a thread that reads."""
    with (
        family.connect(**place, **HEARTBEAT) as client,
        client.open_stream() if family is bymux else client.open_session() as stream,
        ThreadPoolExecutor(1) as pool,
    ):
        reading = pool.submit(response.read_blocking, stream)
        for at in range(0, len(request), 5000):
            stream.write(request[at : at + 5000])
        stream.finish()
        reading.result()


async def check(
    family: Any,
    transport: str,
    broken: Break,
    rng: random.Random,
    files: CertificateFiles,
    directory: Path,
    *,
    blocks: bool,
) -> None:
    request, reply = rng.randbytes(rng.randrange(1, MOST)), rng.randbytes(rng.randrange(1, MOST))
    received: list[Reading] = []

    async def handler(stream: Any) -> None:
        received.append(Reading())
        await received[-1].read(stream)
        stream.write(reply)
        await stream.drain()

    is_tls, is_unix = transport == "tls", transport == "unix"
    own = {"certificate": files.certificate, "key": files.key} if is_tls else {}
    listen = {"path": str(directory / "server")} if is_unix else {"host": "127.0.0.1", "port": 0}
    response = Reading()
    failure: MainstemError | None = None
    async with family.aio.serve(handler, **listen, **own, **HEARTBEAT) as server:
        to: Place = directory / "server" if is_unix else ("127.0.0.1", server.port)
        at: Place = directory / "link" if is_unix else ("127.0.0.1", 0)
        async with BrokenLink(to, at, broken) as link:
            place: dict[str, Any] = {"path": str(at)} if is_unix else {"host": "127.0.0.1", "port": link.port}
            if is_tls:
                place |= {"ca": files.ca, "server_hostname": "localhost"}
            try:
                if blocks:
                    await asyncio.to_thread(exchange_blocking, family, place, request, response)
                else:
                    await exchange(family, place, request, response)
            except MainstemError as error:
                failure = error
        server.abort()
    example = f"{transport} {broken}, a request of {len(request)} bytes and a response of {len(reply)}"
    if response.ended_in_order:
        assert response.data == reply, example
    for reading in received:
        if reading.ended_in_order:
            assert reading.data == request, example
    if failure is None:
        assert response.ended_in_order, example
        assert any(reading.ended_in_order for reading in received), example


@pytest.mark.parametrize("family", [bymux, jmux], ids=["bymux", "jmux"])
@pytest.mark.parametrize("transport", ["tcp", "tls", "unix"])
@pytest.mark.parametrize("blocks", [False, True], ids=["asyncio", "blocking"])
@pytest.mark.parametrize("count", long_after(1, [AT_ONCE, IN_ALL]))
async def test_a_stream_ends_in_order_only_if_it_is_complete(
    family: Any, transport: str, blocks: bool, count: int, files: CertificateFiles, tmp_path: Path
) -> None:
    for number in range(count):
        rng = random.Random(f"{family.__name__} {transport} {number}")
        # Consecutive examples of a short run differ from those of the other families and transports.
        (broken,) = breaks(rng, 1, ways=(WAYS[(number + len(transport) + len(family.__name__)) % len(WAYS)],))
        directory = tmp_path / str(number)
        directory.mkdir()
        async with asyncio.timeout(STALL_S):
            await check(family, transport, broken, rng, files, directory, blocks=blocks)
