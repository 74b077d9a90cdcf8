"""Jmux: requests and responses over one connection (the Jini ERI multiplexing protocol, version 1).

``ClientConnection`` and ``ServerConnection`` are the protocol without input and output.
"""

from __future__ import annotations

from mainstem.mux.jmux.client import ClientConnection
from mainstem.mux.jmux.codec import Kind, Message, decode_message
from mainstem.mux.jmux.server import ServerConnection
from mainstem.mux.jmux.session import Session
from mainstem.mux.jmux.settings import Settings
from mainstem.mux.jmux.state import Delivery, Half, Role

__all__ = [
    "ClientConnection",
    "Delivery",
    "Half",
    "Kind",
    "Message",
    "Role",
    "ServerConnection",
    "Session",
    "Settings",
    "decode_message",
]
