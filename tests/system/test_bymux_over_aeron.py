"""bymux over a pair of real Aeron publications, through a real driver."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.support.ports import free_port
from tests.support.waiting import soon

import mainstem
from mainstem import bymux

pytestmark = pytest.mark.system


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
