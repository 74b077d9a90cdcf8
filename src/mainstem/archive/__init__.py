"""Aeron Archive: record, list and replay streams with a running archive, such as the reference's.

`connect` opens a session over the archive's control protocol. ``mainstem.archive.aio`` has the same names for asyncio.

Example:
    >>> with archive.connect("aeron:udp?endpoint=localhost:8010") as client:
    ...     client.start_recording("aeron:ipc", 1001)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.lazy import lazy_names

if TYPE_CHECKING:
    from mainstem.archive import aio as aio
    from mainstem.archive.calls import ClientStats, RecordingSubscription
    from mainstem.archive.channels import extension_channel
    from mainstem.archive.client import Client, ReplayMerge, connect
    from mainstem.archive.messages import RecordingSignal, SourceLocation
    from mainstem.archive.recording_events import (
        RecordingEvents,
        RecordingProgress,
        RecordingStarted,
        RecordingStopped,
    )
    from mainstem.archive.session import Signal
    from mainstem.recording.catalog import RecordingDescriptor

_HOMES = {
    "Client": "mainstem.archive.client",
    "ClientStats": "mainstem.archive.calls",
    "RecordingDescriptor": "mainstem.recording.catalog",
    "RecordingEvents": "mainstem.archive.recording_events",
    "RecordingProgress": "mainstem.archive.recording_events",
    "RecordingSignal": "mainstem.archive.messages",
    "RecordingStarted": "mainstem.archive.recording_events",
    "RecordingStopped": "mainstem.archive.recording_events",
    "RecordingSubscription": "mainstem.archive.calls",
    "ReplayMerge": "mainstem.archive.client",
    "Signal": "mainstem.archive.session",
    "SourceLocation": "mainstem.archive.messages",
    "connect": "mainstem.archive.client",
    "extension_channel": "mainstem.archive.channels",
}

__all__ = [
    "Client",
    "ClientStats",
    "RecordingDescriptor",
    "RecordingEvents",
    "RecordingProgress",
    "RecordingSignal",
    "RecordingStarted",
    "RecordingStopped",
    "RecordingSubscription",
    "ReplayMerge",
    "Signal",
    "SourceLocation",
    "aio",
    "connect",
    "extension_channel",
]

_GUESSES = dict.fromkeys(("AeronArchive", "Archive", "ArchiveClient"), "connect")

__getattr__, __dir__ = lazy_names(__name__, _HOMES, ("aio",), guesses=_GUESSES)
