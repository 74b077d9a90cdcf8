"""Two streams over one bymux connection: a large one, and a small one that does not wait for it.

python examples/mux_streams.py
"""

from __future__ import annotations

import asyncio
import time

from mainstem import bymux

BULK = 200_000_000


async def serve(stream: bymux.aio.Stream) -> None:
    """Echo a short stream; read a long one to its end."""
    if await stream.readexactly(1) == b"e":
        stream.write(await stream.read())
        return
    while await stream.read():
        pass


async def send_bulk(connection: bymux.aio.Connection) -> None:
    async with connection.open_stream() as stream:
        stream.write(b"s")
        for _ in range(BULK // 65536):
            stream.write(bytes(65536))
            await stream.drain()


async def main() -> None:
    async with (
        bymux.aio.serve(serve, "127.0.0.1", 0) as listener,
        bymux.aio.connect("127.0.0.1", listener.port) as connection,
    ):
        bulk = asyncio.ensure_future(send_bulk(connection))
        trips = 0
        slowest = 0.0
        while not bulk.done():
            begun = time.monotonic()
            async with connection.open_stream() as stream:
                stream.write(b"etide")
                assert await stream.read() == b"tide"
            slowest = max(slowest, time.monotonic() - begun)
            trips += 1
        print(f"{BULK // 1_000_000} MB went through beside {trips} round trips, the slowest of {slowest * 1e3:.1f} ms")


if __name__ == "__main__":
    asyncio.run(main())
