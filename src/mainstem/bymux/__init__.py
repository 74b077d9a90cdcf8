"""bymux: bidirectional byte streams over one connection, each with its own credit and heartbeats.

Calls in this package block. :mod:`mainstem.bymux.aio` has the same names for asyncio.
"""

from __future__ import annotations

from mainstem._internal.endpoint_stats import EndpointStats
from mainstem.bymux import aio
from mainstem.bymux.blocking import Connection, Server, Stream, attach, connect, over_publications, serve
from mainstem.bymux.codec import INFINITE
from mainstem.bymux.settings import InitialStream, Settings
from mainstem.bymux.state import HalfState, Role
from mainstem.mux.aio_stream import StreamStats

__all__ = [
    "INFINITE",
    "Connection",
    "EndpointStats",
    "HalfState",
    "InitialStream",
    "Role",
    "Server",
    "Settings",
    "Stream",
    "StreamStats",
    "aio",
    "attach",
    "connect",
    "over_publications",
    "serve",
]
