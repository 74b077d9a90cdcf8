"""Aqueduct: message channels sent through message channels, over QUIC.

`connect` and `serve` open connections; `channel` and `oneshot` make channels; handles travel inside messages. The engine
underneath, `AqueductConnection`, uses no library, socket or clock.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainstem.aqueduct.aio import Connection
    from mainstem.aqueduct.certificates import make_certificates
    from mainstem.aqueduct.client import connect
    from mainstem.aqueduct.connection import AqueductConnection
    from mainstem.aqueduct.events import Mode
    from mainstem.aqueduct.handles import Receiver, Sender, channel, oneshot
    from mainstem.aqueduct.limits import Limits
    from mainstem.aqueduct.middleware import CborSerializer, Message, MsgspecSerializer, RawSerializer, Serializer
    from mainstem.aqueduct.quic.settings import QuicSettings
    from mainstem.aqueduct.quic.tickets import ServerTickets, Sessions
    from mainstem.aqueduct.server import Server, serve
    from mainstem.aqueduct.stats import AqueductStats

__all__ = [
    "AqueductConnection",
    "AqueductStats",
    "CborSerializer",
    "Connection",
    "Limits",
    "Message",
    "Mode",
    "MsgspecSerializer",
    "QuicSettings",
    "RawSerializer",
    "Receiver",
    "Sender",
    "Serializer",
    "Server",
    "ServerTickets",
    "Sessions",
    "channel",
    "connect",
    "make_certificates",
    "oneshot",
    "serve",
]

_HOMES = {
    "AqueductConnection": "connection",
    "AqueductStats": "stats",
    "CborSerializer": "middleware",
    "Connection": "aio",
    "Limits": "limits",
    "Message": "middleware",
    "Mode": "events",
    "MsgspecSerializer": "middleware",
    "QuicSettings": "quic.settings",
    "RawSerializer": "middleware",
    "Receiver": "handles",
    "Sender": "handles",
    "Serializer": "middleware",
    "Server": "server",
    "ServerTickets": "quic.tickets",
    "Sessions": "quic.tickets",
    "connect": "client",
    "make_certificates": "certificates",
    "channel": "handles",
    "oneshot": "handles",
    "serve": "server",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
