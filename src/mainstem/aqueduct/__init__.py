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

_NAMES = {
    "blocking": ("Connection", "Receiver", "Sender", "Server", "channel", "connect", "oneshot", "serve"),
    "certificates": ("make_certificates",),
    "events": ("Mode",),
    "limits": ("Limits",),
    "quic.tickets": ("ServerTickets", "SessionCache"),
    "serializers": ("CborSerializer", "Message", "MsgspecSerializer", "RawSerializer", "Serializer"),
    "settings": ("Settings",),
    "stats": ("AqueductStats",),
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}

__getattr__, __dir__ = lazy_names(__name__, _HOMES, ("aio",), guesses={"Client": "connect"})
