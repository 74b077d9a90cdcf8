"""A server that reads nothing, in a process of its own: how much memory can be made to wait in it?

``python flooded_server.py CERTIFICATE KEY``: prints its port.
"""

from __future__ import annotations

import asyncio
import logging
import sys

from mainstem import aqueduct
from mainstem.aqueduct import Connection, Limits

LIMITS = Limits(max_channels=2000, max_streams=4000, max_buffered_bytes=8 << 20)


async def handler(connection: Connection) -> None:
    await connection.wait_closed()


async def main() -> None:
    logging.disable(logging.CRITICAL)
    server = await aqueduct.serve(
        handler,
        certificate=sys.argv[1],
        key=sys.argv[2],
        limits=LIMITS,
        max_streams=4000,
        connection_window=8 << 20,
    )
    async with server:
        print(server.port, flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
