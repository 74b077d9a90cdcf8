"""Aqueduct: message channels sent through message channels, over QUIC.

`connect` and `serve` open connections, `channel` and `oneshot` make channels; handles travel inside messages. Calls block;
`mainstem.aqueduct.aio` has the same names for asyncio. The engine underneath does no I/O and has no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.lazy import lazy_names

if TYPE_CHECKING:
    from mainstem.aqueduct import aio
    from mainstem.aqueduct.blocking import Connection, Receiver, Sender, Server, channel, connect, oneshot, serve
    from mainstem.aqueduct.certificates import make_certificates
    from mainstem.aqueduct.events import Mode
    from mainstem.aqueduct.limits import Limits
    from mainstem.aqueduct.quic.tickets import ServerTickets, SessionCache
    from mainstem.aqueduct.serializers import CborSerializer, Message, MsgspecSerializer, RawSerializer, Serializer
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
    "SessionCache",
    "Settings",
    "aio",
    "channel",
    "connect",
    "make_certificates",
    "oneshot",
    "serve",
]

_HOMES = {
    "AqueductStats": "mainstem.aqueduct.stats",
    "CborSerializer": "mainstem.aqueduct.serializers",
    "Connection": "mainstem.aqueduct.blocking",
    "Limits": "mainstem.aqueduct.limits",
    "Message": "mainstem.aqueduct.serializers",
    "Mode": "mainstem.aqueduct.events",
    "MsgspecSerializer": "mainstem.aqueduct.serializers",
    "RawSerializer": "mainstem.aqueduct.serializers",
    "Receiver": "mainstem.aqueduct.blocking",
    "Sender": "mainstem.aqueduct.blocking",
    "Serializer": "mainstem.aqueduct.serializers",
    "Server": "mainstem.aqueduct.blocking",
    "ServerTickets": "mainstem.aqueduct.quic.tickets",
    "SessionCache": "mainstem.aqueduct.quic.tickets",
    "Settings": "mainstem.aqueduct.settings",
    "channel": "mainstem.aqueduct.blocking",
    "connect": "mainstem.aqueduct.blocking",
    "make_certificates": "mainstem.aqueduct.certificates",
    "oneshot": "mainstem.aqueduct.blocking",
    "serve": "mainstem.aqueduct.blocking",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES, ("aio",))
