"""A server that reads nothing, in its own process, to test how much data a client can make it buffer.

Usage: ``python flooded_server.py CERTIFICATE KEY``. Prints its port.
"""

from __future__ import annotations

import asyncio
import logging
import sys

from mainstem.aqueduct import aio


async def handler(connection: aio.Connection) -> None:
    await connection.wait_closed()


async def main() -> None:
    logging.disable(logging.CRITICAL)
    server = await aio.serve(
        handler,
        certificate=sys.argv[1],
        key=sys.argv[2],
        max_channels=2000,
        max_streams=4000,
        max_open_streams=4000,
        max_buffered_bytes=8 << 20,
        connection_window=8 << 20,
    )
    async with server:
        print(server.port, flush=True)
        await server.wait()


if __name__ == "__main__":
    asyncio.run(main())
