"""Duologues: a server opens a pair of streams for each of its clients, through NAT, within limits.

The design is the Aeron guide's second echo server (docs/protocols/duologue.md, 4), as a layer for any protocol: a client sends a
request on the all-clients channel, the server responds with ports and a session under the client's one-time pad, and both continue
on streams of their own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.duologue import aio
    from mainstem.duologue.client import Client, connect
    from mainstem.duologue.crypto import ServerKey
    from mainstem.duologue.limits import AddressPrefixes
    from mainstem.duologue.server import Duologue, Server, serve
    from mainstem.duologue.settings import ClientSettings, ServerSettings
    from mainstem.duologue.stats import DuologueStats, ServerStats

_HOMES = {
    "Client": "client",
    "ClientSettings": "settings",
    "Duologue": "server",
    "DuologueStats": "stats",
    "AddressPrefixes": "limits",
    "Server": "server",
    "ServerKey": "crypto",
    "ServerSettings": "settings",
    "ServerStats": "stats",
    "connect": "client",
    "serve": "server",
}

__all__ = [
    "AddressPrefixes",
    "Client",
    "ClientSettings",
    "Duologue",
    "DuologueStats",
    "Server",
    "ServerKey",
    "ServerSettings",
    "ServerStats",
    "aio",
    "connect",
    "serve",
]


def __getattr__(name: str) -> object:
    if name == "aio":
        return importlib.import_module(f"{__name__}.aio")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
