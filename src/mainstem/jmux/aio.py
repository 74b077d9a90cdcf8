"""Jmux for asyncio: the same API as :mod:`mainstem.jmux`, but calls wait in the event loop.

Await the results of ``connect`` and ``serve``, or use them with ``async with``. Handlers and methods that wait are coroutines.
``write`` is a plain call; use ``drain`` to wait for the peer's ration.

Example:
    >>> async def upper(session):
    ...     session.write((await session.read(-1)).upper())
    >>> async with aio.serve(upper, "127.0.0.1", 7001):
    ...     async with aio.connect("127.0.0.1", 7001) as client:
    ...         print(await client.request(b"tide"))
"""

from __future__ import annotations

from mainstem._internal.endpoint_stats import EndpointStats
from mainstem.jmux.aio_client import Client, ClientSession, connect
from mainstem.jmux.aio_server import ServerSession, serve
from mainstem.jmux.settings import Settings
from mainstem.mux.aio_stream import StreamStats
from mainstem.mux.sockets import Server

__all__ = [
    "Client",
    "ClientSession",
    "EndpointStats",
    "Server",
    "ServerSession",
    "Settings",
    "StreamStats",
    "connect",
    "serve",
]
