"""The names that are the same objects in ``mainstem`` and ``mainstem.aio``, loaded on first use."""

# ruff: noqa: TC004 - the names in __all__ are loaded from HOMES

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.aeron.client import (
        Action,
        BufferClaim,
        ClientContext,
        ClientSettings,
        ClientStats,
        Fragment,
        FragmentAssembler,
        ImageStats,
        Message,
        OfferStatus,
        PublicationStats,
        RequesterStats,
        ResponderStats,
        SubscriptionStats,
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
        RecordingNotFound,
        RegistrationError,
        RemoteProtocolError,
        StorageSpaceError,
        StoreError,
        Timeout,
    )

__all__ = [
    "Action",
    "BufferClaim",
    "ClientContext",
    "ClientSettings",
    "ClientStats",
    "Fragment",
    "FragmentAssembler",
    "ImageStats",
    "Message",
    "OfferStatus",
    "PublicationStats",
    "RequesterStats",
    "ResponderStats",
    "SubscriptionStats",
]
HOMES = dict.fromkeys(__all__, "mainstem.aeron.client")
__all__ += [
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
    "RecordingNotFound",
    "RegistrationError",
    "RemoteProtocolError",
    "StorageSpaceError",
    "StoreError",
    "Timeout",
]
HOMES = dict.fromkeys(__all__, "mainstem.errors") | HOMES
__all__ += ["MediaDriver"]
HOMES["MediaDriver"] = "mainstem.aeron.driver.media_driver"
