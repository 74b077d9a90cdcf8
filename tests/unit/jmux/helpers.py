"""Helpers shared by the Jmux tests."""

from __future__ import annotations

from tests.support.mux_engines import drain, shuttle

from mainstem.jmux import Settings
from mainstem.jmux.client_engine import ClientEngine
from mainstem.jmux.server_engine import ServerEngine

# The settings that the Java implementation announces, and how it splits its data.
JAVA = Settings(initial_ration=32768, fragment_limit=1024)
JAVA_HEADER = bytes.fromhex("4a6d7578 01 0080 00")


def client(settings: Settings = JAVA) -> ClientEngine:
    """Return a client that has exchanged headers with a Java server."""
    connection = ClientEngine(settings)
    connection.data_to_send()
    connection.receive_data(JAVA_HEADER)
    drain(connection)
    return connection


def server(settings: Settings = JAVA) -> ServerEngine:
    """Return a server that has exchanged headers with a Java client."""
    connection = ServerEngine(settings)
    connection.receive_data(JAVA_HEADER)
    connection.data_to_send()
    drain(connection)
    return connection


def pair(ours: Settings | None = None, theirs: Settings | None = None) -> tuple[ClientEngine, ServerEngine]:
    a, b = ClientEngine(ours), ServerEngine(theirs)
    shuttle(a, b)
    drain(a)
    drain(b)
    return a, b
