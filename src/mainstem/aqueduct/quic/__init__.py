"""Private: QUIC behind one interface: a `QuicAdapter` is between a QUIC library and the engine.

Two libraries are supported: ``qh3`` (the default: its core is compiled and several times faster) and ``aioquic`` (the
reference in Python). Both sides of a connection may use either.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from mainstem.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.adapter import Backend

BACKENDS = {"qh3": "quic", "aioquic": "quic-aioquic"}
"""The backends by name, each with the extra that installs it."""


def load_backend(name: str) -> Backend:
    """The backend of that name. Raises ConfigurationError if it is unknown, MissingExtraError if it is not installed."""
    if name not in BACKENDS:
        raise ConfigurationError(f"backend {name!r}; there are {', '.join(BACKENDS)}")
    try:
        module = import_module(f"mainstem.aqueduct.quic.{name}_backend")
    except ImportError as error:
        raise MissingExtraError(name, BACKENDS[name]) from error
    return cast("Backend", module.BACKEND)
