"""Aqueduct for asyncio: `connect` and `serve` open connections, `channel` and `oneshot` make channels.

Example:
    >>> async def service(connection):
    ...     async for request in connection.receiver:
    ...         await request["response"].send(len(request["text"]))
    >>> async with aio.serve(service, "0.0.0.0", 4433, certificate=certificate, key=key) as server:
    ...     await server.wait()
"""

from __future__ import annotations

from mainstem.aqueduct.certificates import make_certificates
from mainstem.aqueduct.channels import Receiver, Sender, channel, oneshot
from mainstem.aqueduct.client import connect
from mainstem.aqueduct.connection import Connection
from mainstem.aqueduct.events import Mode
from mainstem.aqueduct.limits import Limits
from mainstem.aqueduct.quic.tickets import ServerTickets, SessionCache
from mainstem.aqueduct.serializers import CborSerializer, Message, MsgspecSerializer, RawSerializer, Serializer
from mainstem.aqueduct.server import Server, serve
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
    "channel",
    "connect",
    "make_certificates",
    "oneshot",
    "serve",
]
