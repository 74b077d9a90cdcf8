"""Private: the supported QUIC libraries behind one interface. A `QuicAdapter` connects a library to the engine.

The two libraries are ``qh3`` (the default: its core is compiled and several times faster) and ``aioquic`` (the reference,
written in Python). Each side of a connection can use either.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from mainstem.errors import ConfigurationError, needs_extras

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.adapter import QuicAdapter
    from mainstem.aqueduct.quic.server_context import ServerContext
    from mainstem.aqueduct.quic.tickets import ServerTickets, SessionCache
    from mainstem.aqueduct.settings import Settings

BACKENDS = ("qh3", "aioquic")


class Backend(Protocol):
    """The module of one QUIC library, such as `qh3_backend`."""

    def client(
        self, settings: Settings, *, server_name: str, sessions: SessionCache | None, origin: str
    ) -> QuicAdapter:
        """Return a client's connection, which has not begun yet. Raises ConfigurationError."""
        ...

    def server_context(self, settings: Settings, tickets: ServerTickets | None) -> ServerContext:
        """Return what all connections of one server share. Raises ConfigurationError."""
        ...


def load_backend(name: str) -> Backend:
    """Return a backend by name. Raises ConfigurationError if it is unknown, or MissingExtraError if it is not installed."""
    if name not in BACKENDS:
        raise ConfigurationError(f"unknown backend {name!r}; choose one of {', '.join(BACKENDS)}")
    with needs_extras():
        return cast("Backend", import_module(f"mainstem.aqueduct.quic.{name}_backend"))
