"""bymux: byte streams in both directions over one connection, with credit and heartbeats for each.

``BymuxEngine`` is the protocol without input and output; ``connect``, ``serve``, ``attach`` and ``over_publications`` are its
asyncio API; :mod:`mainstem.bymux.blocking` is its blocking one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.bymux import events
from mainstem.bymux.codec import INFINITE, Header, Packet, decode_header
from mainstem.bymux.engine import BymuxEngine
from mainstem.bymux.settings import InitialStream, Settings
from mainstem.bymux.state import Half, Role
from mainstem.bymux.stream import Stream
from mainstem.endpoint_stats import EndpointStats

if TYPE_CHECKING:
    from mainstem.bymux.aio import BymuxStream, Connection, attach, connect, over_publications, serve

# The asyncio API is imported on first use: the protocols need no asyncio.
_ASYNCIO = ("BymuxStream", "Connection", "attach", "connect", "over_publications", "serve")

__all__ = [
    "INFINITE",
    "BymuxEngine",
    "BymuxStream",
    "Connection",
    "EndpointStats",
    "Half",
    "Header",
    "InitialStream",
    "Packet",
    "Role",
    "Settings",
    "Stream",
    "attach",
    "connect",
    "decode_header",
    "events",
    "over_publications",
    "serve",
]


def __getattr__(name: str) -> Any:
    if name in _ASYNCIO:
        from mainstem.bymux import aio

        return getattr(aio, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
