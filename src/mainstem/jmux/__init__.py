"""Jmux: requests and responses over one connection (the Jini ERI multiplexing protocol, version 1).

:mod:`mainstem.jmux.aio` has the same API for asyncio.

Example:
    >>> def upper(session):
    ...     session.write(session.read(-1).upper())
    >>> with jmux.serve(upper, "127.0.0.1", 7001):
    ...     with jmux.connect("127.0.0.1", 7001) as client:
    ...         print(client.request(b"tide"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.endpoint_stats import EndpointStats
from mainstem._internal.lazy import lazy_names

if TYPE_CHECKING:
    from mainstem.jmux import aio
    from mainstem.jmux.blocking import Client, ClientSession, ServerSession, connect, serve
    from mainstem.jmux.settings import Settings
    from mainstem.mux.aio_stream import StreamStats
    from mainstem.mux.blocking import Server

# Imported on first use, so that importing only the engines does not import asyncio.
_HOMES = {
    "Client": "mainstem.jmux.blocking",
    "ClientSession": "mainstem.jmux.blocking",
    "Server": "mainstem.mux.blocking",
    "ServerSession": "mainstem.jmux.blocking",
    "Settings": "mainstem.jmux.settings",
    "StreamStats": "mainstem.mux.aio_stream",
    "connect": "mainstem.jmux.blocking",
    "serve": "mainstem.jmux.blocking",
}

__all__ = [
    "Client",
    "ClientSession",
    "EndpointStats",
    "Server",
    "ServerSession",
    "Settings",
    "StreamStats",
    "aio",
    "connect",
    "serve",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES, ("aio",))
