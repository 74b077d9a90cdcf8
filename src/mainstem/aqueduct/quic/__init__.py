"""Private: the supported QUIC libraries behind one interface. A `QuicAdapter` connects a library to the engine.

The two libraries are ``qh3`` (the default: its core is compiled and several times faster) and ``aioquic`` (the reference,
written in Python). Each side of a connection can use either.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from mainstem.errors import ConfigurationError, needs_extras

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.adapter import Backend

BACKENDS = ("qh3", "aioquic")


def load_backend(name: str) -> Backend:
    """Return a backend by name. Raises ConfigurationError if it is unknown, or MissingExtraError if it is not installed."""
    if name not in BACKENDS:
        raise ConfigurationError(f"unknown backend {name!r}; choose one of {', '.join(BACKENDS)}")
    with needs_extras():
        module = import_module(f"mainstem.aqueduct.quic.{name}_backend")
    return cast("Backend", module.BACKEND)
