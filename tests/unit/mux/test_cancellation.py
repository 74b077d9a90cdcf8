"""Cancelling the user of a stream or session in each of its first loop iterations leaves nothing behind.

`tests/system/test_cancellation.py` cancels every call of the APIs.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.mux_pair import bymux_pair, jmux_pair

from mainstem import bymux
from mainstem.jmux import aio as jmux


async def test_cancelling_the_user_of_a_stream_leaves_nothing_behind() -> None:
    """Cancel the whole exchange in each of its first loop iterations: streams end, handlers end, ids are released."""

    async def hold(stream: Any) -> None:
        async for data in stream:
            stream.write(data)
        await asyncio.Event().wait()

    for turns in range(40):
        client, server = bymux_pair(hold, settings=bymux.Settings(stream_window=100))
        jmux_client, endpoint = jmux_pair(hold, settings=jmux.Settings(initial_ration=256))

        async def exchange(client: bymux.aio.Connection = client) -> None:
            async with await client.open_stream() as stream:
                stream.write(bytes(1000))
                await stream.readexactly(1000)
                stream.finish()
                await stream.read(-1)

        async def request(client: Any = jmux_client) -> None:
            async with client.open_session() as session:
                session.write(bytes(1000))
                session.finish()
                await session.read(-1)

        tasks = [asyncio.ensure_future(exchange()), asyncio.ensure_future(request())]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not client._protocol.engine.streams, turns
        assert not server._protocol.engine.streams, turns
        assert not server._protocol.tasks, turns
        for connection in jmux_client._pool.connections:
            assert not connection.engine.busy, turns
        for other in endpoint.servers:
            assert not other.tasks, turns
        await asyncio.gather(client.close(), server.close(), jmux_client.close(), return_exceptions=True)
        await asyncio.gather(*(other.wait_ended() for other in endpoint.servers))
