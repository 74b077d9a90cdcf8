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

from mainstem._internal.lazy import lazy_names

if TYPE_CHECKING:
    from mainstem import aio as aio
    from mainstem import aqueduct as aqueduct
    from mainstem import archive as archive
    from mainstem import bymux as bymux
    from mainstem import duologue as duologue
    from mainstem import jmux as jmux
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

_FAMILIES = ("aio", "aqueduct", "archive", "bymux", "duologue", "jmux")
_HOMES = {
    **dict.fromkeys(__all__, "mainstem.aeron.client"),
    **dict.fromkeys(
        (
            "ActiveDriverError",
            "AdminAction",
            "BackPressured",
            "CaptureError",
            "ChannelError",
            "ChannelUriError",
            "ClientTimeout",
            "ClosedError",
            "ConfigurationError",
            "CorruptLogError",
            "DriverTimeout",
            "InternalError",
            "LocalProtocolError",
            "MainstemError",
            "MaxPositionExceeded",
            "MissingExtraError",
            "NotConnected",
            "OfferError",
            "ProtocolError",
            "RecordingError",
            "RegistrationError",
            "RemoteProtocolError",
            "StorageSpaceError",
            "StoreError",
            "Timeout",
        ),
        "mainstem.errors",
    ),
    "MediaDriver": "mainstem.aeron.driver.media_driver",
    "Recordings": "mainstem.recording",
    "__version__": "mainstem._version",
    "open_recordings": "mainstem.recording",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _FAMILIES)
