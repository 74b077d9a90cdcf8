"""Jmux: requests and responses over one connection (the Jini ERI multiplexing protocol, version 1).

``connect`` and ``serve`` are its asyncio API; :mod:`mainstem.jmux.blocking` is its blocking one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.endpoint_stats import EndpointStats
from mainstem.jmux.settings import Settings

if TYPE_CHECKING:
    from mainstem.jmux.aio_client import Client, ClientSession, connect
    from mainstem.jmux.aio_server import JmuxListener, ServerSession, serve

# The asyncio API is imported on first use: the protocols need no asyncio.
_ASYNCIO = {
    "Client": "aio_client",
    "ClientSession": "aio_client",
    "connect": "aio_client",
    "JmuxListener": "aio_server",
    "ServerSession": "aio_server",
    "serve": "aio_server",
}

__all__ = [
    "Client",
    "ClientSession",
    "EndpointStats",
    "JmuxListener",
    "ServerSession",
    "Settings",
    "connect",
    "serve",
]


def __getattr__(name: str) -> Any:
    if name in _ASYNCIO:
        from importlib import import_module

        return getattr(import_module(f"mainstem.jmux.{_ASYNCIO[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
