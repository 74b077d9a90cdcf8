"""Aqueduct for asyncio: `connect` and `serve` open connections, `channel` and `oneshot` make channels.

Example:
    >>> async def service(connection):
    ...     async for request in connection.receiver:
    ...         await request["response"].send(len(request["text"]))
    >>> async with aio.serve(service, "0.0.0.0", 4433, certificate=certificate, key=key) as server:
    ...     await server.wait()
"""

from __future__ import annotations

from mainstem.aqueduct.asyncio_connection import Connection
from mainstem.aqueduct.client import connect
from mainstem.aqueduct.handles import Receiver, Sender, channel, oneshot
from mainstem.aqueduct.server import Server, serve

__all__ = ["Connection", "Receiver", "Sender", "Server", "channel", "connect", "oneshot", "serve"]
