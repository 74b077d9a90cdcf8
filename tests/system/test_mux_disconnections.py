"""A thousand streams while the connection under them is cut twenty times: each one either is correct or reports its failure."""

from __future__ import annotations

import asyncio
import hashlib
import random
from typing import TYPE_CHECKING

import pytest
from tests.support.truncating_proxy import CuttingProxy

from mainstem import bymux
from mainstem.errors import Delivery, MainstemError
from mainstem.jmux import aio as jmux

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable

pytestmark = [pytest.mark.system, pytest.mark.long]

STREAMS, CUTS = 1000, 20
# A cut may fail all open streams. At least this many more complete between two cuts, so the streams outlast the cuts.
AT_ONCE = 25
# Both directions of a thousand streams are about 15 MB, so the cuts fall into the first half.
MOST = 450_000
SIZES = (0, 1, 10, 1000, 10_000, 40_000)


def reply_to(data: bytes) -> bytes:
    """Return the digest and length of what was received, followed by a payload with its own digest."""
    payload = random.Random(len(data)).randbytes(len(data) // 2)
    head = hashlib.sha256(data).digest() + hashlib.sha256(payload).digest() + len(payload).to_bytes(4, "big")
    return head + payload


def check(data: bytes, whole: bytes) -> None:
    assert whole[:32] == hashlib.sha256(data).digest()
    assert whole[32:64] == hashlib.sha256(whole[68:]).digest()
    assert int.from_bytes(whole[64:68], "big") == len(whole) - 68


async def everything(parts: AsyncIterable[bytes]) -> bytes:
    return b"".join([part async for part in parts])


class Count:
    """Runner of all streams that counts how each one ended."""

    def __init__(self) -> None:
        self.right = self.failed = 0

    async def run(self, exchange: Callable[[bytes], Awaitable[bytes]], rng: random.Random) -> None:
        at_once = asyncio.Semaphore(AT_ONCE)

        async def one(data: bytes) -> None:
            async with at_once:
                try:
                    whole = await exchange(data)
                except MainstemError:
                    self.failed += 1
                    return
            check(data, whole)
            self.right += 1

        await asyncio.gather(*(one(rng.randbytes(rng.choice(SIZES))) for _ in range(STREAMS)))

    def verify(self, proxy: CuttingProxy) -> None:
        assert self.right + self.failed == STREAMS
        assert proxy.cut == CUTS
        assert self.right >= STREAMS // 10
        assert self.failed >= CUTS


async def test_bymux_streams_are_correct_or_report_failure() -> None:
    async def answer(stream: bymux.aio.Stream) -> None:
        for part in (reply := reply_to(await everything(stream)))[:68], reply[68:]:
            stream.write(part)
            await stream.drain()

    rng, count = random.Random(3), Count()
    connecting = asyncio.Lock()
    connection: bymux.aio.Connection | None = None

    async def connected(port: int) -> bymux.aio.Connection:
        nonlocal connection
        async with connecting:
            if connection is None or connection.error is not None:
                connection = await bymux.aio.connect("127.0.0.1", port)
            return connection

    async with (
        bymux.aio.serve(answer, "127.0.0.1", 0) as listener,
        CuttingProxy(listener.port, cuts=CUTS, most=MOST, rng=rng) as proxy,
    ):

        async def exchange(data: bytes) -> bytes:
            async with await (await connected(proxy.port)).open_stream() as stream:
                for at in range(0, len(data), 5000):
                    stream.write(data[at : at + 5000])
                    await stream.drain()
                    await asyncio.sleep(0)
                stream.finish()
                return await everything(stream)

        await count.run(exchange, rng)
        assert connection is not None
        await connection.close()
        count.verify(proxy)


async def test_jmux_requests_succeed_or_report_failure_and_retryability() -> None:
    processed: dict[bytes, int] = {}

    async def answer(session: jmux.ServerSession) -> None:
        data = await everything(session)
        processed[data[:8]] = processed.get(data[:8], 0) + 1
        session.write(reply_to(data[8:]))

    rng, count = random.Random(4), Count()
    may_retry: list[bytes] = []
    number = 0
    async with (
        jmux.serve(answer, "127.0.0.1", 0) as listener,
        CuttingProxy(listener.port, cuts=CUTS, most=MOST, rng=rng) as proxy,
        jmux.connect("127.0.0.1", proxy.port, max_connections=1) as client,
    ):

        async def exchange(data: bytes) -> bytes:
            nonlocal number
            number += 1
            name = number.to_bytes(8, "big")
            async with client.open_session() as session:
                try:
                    session.write(name)
                    for at in range(0, len(data), 5000):
                        session.write(data[at : at + 5000])
                        await session.drain()
                        await asyncio.sleep(0)
                    session.finish()
                    whole = await everything(session)
                except MainstemError:
                    if session.may_retry:
                        may_retry.append(name)
                    raise
                assert session.delivery is Delivery.COMPLETE
                return whole

        await count.run(exchange, rng)
        count.verify(proxy)
    assert not any(name in processed for name in may_retry), "what may be sent again was not executed"
    assert max(processed.values()) == 1
