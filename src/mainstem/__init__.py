"""Mainstem: reliable message streams, and their way into Apache Spark.

What users may import: the names in ``__all__`` here, and what these modules list in theirs: ``mainstem.aio``,
``mainstem.errors``, ``mainstem.settings``, ``mainstem.message_keys``, ``mainstem.instruments``, ``mainstem.metrics``,
``mainstem.bymux``, ``mainstem.jmux``, ``mainstem.aqueduct``, ``mainstem.duologue``, ``mainstem.recording``,
``mainstem.capture``, ``mainstem.codecs``, ``mainstem.sim`` and ``mainstem.spark`` with its public subpackages. Everything else is
private and may change in any release.

The names here are loaded when they are first used, so that a program pays only for what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem import aio as aio
    from mainstem._version import __version__ as __version__
    from mainstem.aeron.client import (
        Action,
        Aeron,
        BufferClaim,
        ClientContext,
        ClientSettings,
        ClientStats,
        Counter,
        ExclusivePublication,
        Fragment,
        FragmentAssembler,
        Image,
        ImageStats,
        Message,
        OfferStatus,
        Operation,
        Poller,
        Publication,
        PublicationStats,
        Request,
        Requester,
        RequesterStats,
        Responder,
        ResponderStats,
        Subscription,
        SubscriptionStats,
        connect,
    )
    from mainstem.aeron.driver.media_driver import MediaDriver
    from mainstem.errors import (
        ActiveDriverError,
        AdminAction,
        BackPressured,
        CaptureError,
        ChannelError,
        ChannelUriError,
        ClientTimeout,
        ClosedError,
        ConfigurationError,
        CorruptLogError,
        DriverTimeout,
        InternalError,
        LocalProtocolError,
        MainstemError,
        MaxPositionExceeded,
        MissingExtraError,
        NotConnected,
        OfferError,
        ProtocolError,
        RecordingError,
        RegistrationError,
        RemoteProtocolError,
        StorageSpaceError,
        StoreError,
        Timeout,
    )
    from mainstem.recording import Recordings, open_recordings

_CLIENT = "mainstem.aeron.client"
_ERRORS = "mainstem.errors"
_RECORDING = "mainstem.recording"
_HOMES = {
    "__version__": "mainstem._version",
    "Action": _CLIENT,
    "Aeron": _CLIENT,
    "BufferClaim": _CLIENT,
    "ClientContext": _CLIENT,
    "ClientSettings": _CLIENT,
    "Counter": _CLIENT,
    "ExclusivePublication": _CLIENT,
    "Fragment": _CLIENT,
    "FragmentAssembler": _CLIENT,
    "Image": _CLIENT,
    "Message": _CLIENT,
    "MediaDriver": "mainstem.aeron.driver.media_driver",
    "OfferStatus": _CLIENT,
    "Poller": _CLIENT,
    "Publication": _CLIENT,
    "Responder": _CLIENT,
    "Request": _CLIENT,
    "Requester": _CLIENT,
    "Subscription": _CLIENT,
    "connect": _CLIENT,
    "ActiveDriverError": _ERRORS,
    "AdminAction": _ERRORS,
    "BackPressured": _ERRORS,
    "CaptureError": _ERRORS,
    "ChannelError": _ERRORS,
    "ChannelUriError": _ERRORS,
    "ClientTimeout": _ERRORS,
    "ClosedError": _ERRORS,
    "ConfigurationError": _ERRORS,
    "CorruptLogError": _ERRORS,
    "DriverTimeout": _ERRORS,
    "InternalError": _ERRORS,
    "LocalProtocolError": _ERRORS,
    "MainstemError": _ERRORS,
    "MaxPositionExceeded": _ERRORS,
    "MissingExtraError": _ERRORS,
    "NotConnected": _ERRORS,
    "OfferError": _ERRORS,
    "ProtocolError": _ERRORS,
    "RecordingError": _ERRORS,
    "Recordings": _RECORDING,
    "RegistrationError": _ERRORS,
    "RemoteProtocolError": _ERRORS,
    "StorageSpaceError": _ERRORS,
    "StoreError": _ERRORS,
    "Timeout": _ERRORS,
    "open_recordings": _RECORDING,
    "ClientStats": _CLIENT,
    "ImageStats": _CLIENT,
    "Operation": _CLIENT,
    "PublicationStats": _CLIENT,
    "RequesterStats": _CLIENT,
    "ResponderStats": _CLIENT,
    "SubscriptionStats": _CLIENT,
}

__all__ = [
    "Action",
    "ActiveDriverError",
    "AdminAction",
    "Aeron",
    "BackPressured",
    "BufferClaim",
    "CaptureError",
    "ChannelError",
    "ChannelUriError",
    "ClientContext",
    "ClientSettings",
    "ClientStats",
    "ClientTimeout",
    "ClosedError",
    "ConfigurationError",
    "CorruptLogError",
    "Counter",
    "DriverTimeout",
    "ExclusivePublication",
    "Fragment",
    "FragmentAssembler",
    "Image",
    "ImageStats",
    "InternalError",
    "LocalProtocolError",
    "MainstemError",
    "MaxPositionExceeded",
    "MediaDriver",
    "Message",
    "MissingExtraError",
    "NotConnected",
    "OfferError",
    "OfferStatus",
    "Operation",
    "Poller",
    "ProtocolError",
    "Publication",
    "PublicationStats",
    "RecordingError",
    "Recordings",
    "RegistrationError",
    "RemoteProtocolError",
    "Request",
    "Requester",
    "RequesterStats",
    "Responder",
    "ResponderStats",
    "StorageSpaceError",
    "StoreError",
    "Subscription",
    "SubscriptionStats",
    "Timeout",
    "aio",
    "connect",
    "open_recordings",
]


def __getattr__(name: str) -> object:
    if name == "aio":
        return importlib.import_module("mainstem.aio")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
