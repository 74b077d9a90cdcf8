"""Aqueduct: message channels sent through message channels, over QUIC.

`connect` and `serve` open connections, `channel` and `oneshot` make channels; handles travel inside messages. Calls block;
`mainstem.aqueduct.aio` has the same names for asyncio. The engine underneath uses no library, socket or clock.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainstem.aqueduct import aio
    from mainstem.aqueduct.blocking import Connection, Receiver, Sender, Server, channel, connect, oneshot, serve
    from mainstem.aqueduct.certificates import make_certificates
    from mainstem.aqueduct.events import Mode
    from mainstem.aqueduct.limits import Limits
    from mainstem.aqueduct.middleware import CborSerializer, Message, MsgspecSerializer, RawSerializer, Serializer
    from mainstem.aqueduct.quic.tickets import ServerTickets, Sessions
    from mainstem.aqueduct.settings import Settings
    from mainstem.aqueduct.stats import AqueductStats

__all__ = [
    "AqueductStats",
    "CborSerializer",
    "Connection",
    "Limits",
    "Message",
    "Mode",
    "MsgspecSerializer",
    "RawSerializer",
    "Receiver",
    "Sender",
    "Serializer",
    "Server",
    "ServerTickets",
    "Sessions",
    "Settings",
    "aio",
    "channel",
    "connect",
    "make_certificates",
    "oneshot",
    "serve",
]

_HOMES = {
    "AqueductStats": "stats",
    "CborSerializer": "middleware",
    "Connection": "blocking",
    "Limits": "limits",
    "Message": "middleware",
    "Mode": "events",
    "MsgspecSerializer": "middleware",
    "RawSerializer": "middleware",
    "Receiver": "blocking",
    "Sender": "blocking",
    "Serializer": "middleware",
    "Server": "blocking",
    "ServerTickets": "quic.tickets",
    "Sessions": "quic.tickets",
    "Settings": "settings",
    "channel": "blocking",
    "connect": "blocking",
    "make_certificates": "certificates",
    "oneshot": "blocking",
    "serve": "blocking",
}


def __getattr__(name: str) -> Any:
    if name == "aio":
        return import_module(f"{__name__}.aio")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
