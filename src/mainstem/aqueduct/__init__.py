"""Aqueduct: message channels sent through message channels, over QUIC.

In `mainstem.aqueduct.aio`, `connect` and `serve` open connections, `channel` and `oneshot` make channels; handles travel inside
messages. Here is what they work with. The engine underneath, `AqueductConnection`, uses no library, socket or clock.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainstem.aqueduct import aio
    from mainstem.aqueduct.certificates import make_certificates
    from mainstem.aqueduct.connection import AqueductConnection
    from mainstem.aqueduct.events import Mode
    from mainstem.aqueduct.limits import Limits
    from mainstem.aqueduct.middleware import CborSerializer, Message, MsgspecSerializer, RawSerializer, Serializer
    from mainstem.aqueduct.quic.tickets import ServerTickets, Sessions
    from mainstem.aqueduct.settings import Settings
    from mainstem.aqueduct.stats import AqueductStats

__all__ = [
    "AqueductConnection",
    "AqueductStats",
    "CborSerializer",
    "Limits",
    "Message",
    "Mode",
    "MsgspecSerializer",
    "RawSerializer",
    "Serializer",
    "ServerTickets",
    "Sessions",
    "Settings",
    "aio",
    "make_certificates",
]

_HOMES = {
    "AqueductConnection": "connection",
    "AqueductStats": "stats",
    "CborSerializer": "middleware",
    "Limits": "limits",
    "Message": "middleware",
    "Mode": "events",
    "MsgspecSerializer": "middleware",
    "RawSerializer": "middleware",
    "Serializer": "middleware",
    "ServerTickets": "quic.tickets",
    "Sessions": "quic.tickets",
    "Settings": "settings",
    "make_certificates": "certificates",
}


def __getattr__(name: str) -> Any:
    if name == "aio":
        return import_module(f"{__name__}.aio")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
