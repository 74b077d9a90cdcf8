"""Mainstem: reliable message streams, and their way into Apache Spark.

The public names are those in ``__all__`` here and in these modules: ``mainstem.aio``, ``mainstem.errors``, ``mainstem.settings``,
``mainstem.message_keys``, ``mainstem.instruments``, ``mainstem.metrics``, ``mainstem.bymux``, ``mainstem.jmux``,
``mainstem.aqueduct``, ``mainstem.duologue``, ``mainstem.archive``, ``mainstem.recording``, ``mainstem.capture``,
``mainstem.codecs``, ``mainstem.sim`` and ``mainstem.spark`` with its public subpackages. Everything else is private and may change
in any release.

The names here, and the five families (``mainstem.aio`` and the packages of the other four), are loaded on first use, so that a
program pays only for what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem import _shared_names
from mainstem._internal.lazy import lazy_names

if TYPE_CHECKING:
    from mainstem import aio as aio
    from mainstem import aqueduct as aqueduct
    from mainstem import archive as archive
    from mainstem import bymux as bymux
    from mainstem import duologue as duologue
    from mainstem import jmux as jmux
    from mainstem._shared_names import *  # noqa: F403
    from mainstem._version import __version__ as __version__
    from mainstem.aeron.client import (
        Aeron,
        Counter,
        ExclusivePublication,
        Image,
        Operation,
        Poller,
        Publication,
        Request,
        Requester,
        Responder,
        Subscription,
        connect,
    )
    from mainstem.recording import Recordings, open_recordings

__all__ = [
    "Aeron",
    "Counter",
    "ExclusivePublication",
    "Image",
    "Operation",
    "Poller",
    "Publication",
    "Recordings",
    "Request",
    "Requester",
    "Responder",
    "Subscription",
    "aio",
    "connect",
    "open_recordings",
]

_FAMILIES = ("aio", "aqueduct", "archive", "bymux", "duologue", "jmux")
_HOMES = {
    **dict.fromkeys(__all__, "mainstem.aeron.client"),
    **_shared_names.HOMES,
    "Recordings": "mainstem.recording",
    "__version__": "mainstem._version",
    "open_recordings": "mainstem.recording",
}
__all__ += _shared_names.__all__

_GUESSES = {
    "Archive": "archive.connect",
    "AeronArchive": "archive.connect",
    "Client": "Aeron",
    "Context": "ClientContext",
    "Driver": "MediaDriver",
    **{name: f"`import mainstem.{name}`" for name in ("analysis", "capture", "codecs", "recording", "spark", "store")},
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _FAMILIES, guesses=_GUESSES)
