"""bymux: byte streams in both directions over one connection, with credit and heartbeats for each.

``BymuxConnection`` is the protocol without input and output; ``connect``, ``serve`` and ``attach`` are its asyncio face, and
``BlockingConnection`` its blocking one.
"""

from __future__ import annotations

from mainstem.mux.bymux.codec import INFINITE, Header, Packet, decode_header
from mainstem.mux.bymux.connection import BymuxConnection
from mainstem.mux.bymux.settings import InitialStream, Settings
from mainstem.mux.bymux.state import Half, Role
from mainstem.mux.bymux.stream import Stream

__all__ = [
    "INFINITE",
    "BymuxConnection",
    "Half",
    "Header",
    "InitialStream",
    "Packet",
    "Role",
    "Settings",
    "Stream",
    "decode_header",
]
