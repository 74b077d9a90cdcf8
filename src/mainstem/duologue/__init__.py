"""Duologues: a server opens a pair of streams for each of its clients, even through NAT, and enforces limits.

The design is the Aeron guide's second echo server (docs/protocols/duologue.md, 4), as a layer for any protocol. A client sends a
request on the all-clients channel. The server responds with ports and a session, encrypted with the client's one-time pad. Both
then continue on their own pair of streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.lazy import lazy_names

if TYPE_CHECKING:
    from mainstem._internal.address_prefixes import AddressPrefixes
    from mainstem.duologue import aio
    from mainstem.duologue.client import Client, connect
    from mainstem.duologue.crypto import ServerKey
    from mainstem.duologue.server import Duologue, Server, serve
    from mainstem.duologue.settings import Settings
    from mainstem.duologue.stats import DuologueStats, ServerStats

_HOMES = {
    "Client": "mainstem.duologue.client",
    "Duologue": "mainstem.duologue.server",
    "DuologueStats": "mainstem.duologue.stats",
    "AddressPrefixes": "mainstem._internal.address_prefixes",
    "Server": "mainstem.duologue.server",
    "ServerKey": "mainstem.duologue.crypto",
    "Settings": "mainstem.duologue.settings",
    "ServerStats": "mainstem.duologue.stats",
    "connect": "mainstem.duologue.client",
    "serve": "mainstem.duologue.server",
}

__all__ = [
    "AddressPrefixes",
    "Client",
    "Duologue",
    "DuologueStats",
    "Server",
    "ServerKey",
    "ServerStats",
    "Settings",
    "aio",
    "connect",
    "serve",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES, ("aio",))
