"""Tells recordings apart that have the same id, and finds a recording again that an archive has extended.

Recording ids are unique only within an archive, and both can be reused: a directory is deleted and recorded into again, a catalog
is deleted, or a store gets another archive's recordings. A recording is therefore known by its archive, its id, and what never
changes as long as it exists: the time when it started and the stream's first term id, which is random, with the stream id and the
term length.
An archive that extends a recording replaces its session and may replace its channel, and purging moves its start, so these are not
part of the identity. ``sessions`` says which session recorded a position.

Checkpoints of earlier releases contain ``start time/session/channel``, or the CRC-32 of that text, and stay readable.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class RecordingIdentity:
    """What distinguishes a recording from another one with the same id in its archive. As a text, it is stored in checkpoints."""

    start_timestamp: int
    stream_id: int
    initial_term_id: int
    term_buffer_length: int

    def __str__(self) -> str:
        return f"{self.start_timestamp}:{self.stream_id}:{self.initial_term_id}:{self.term_buffer_length}"

    @property
    def checksum(self) -> int:
        """The CRC-32 of the text, which an offset contains of each finished recording."""
        return zlib.crc32(str(self).encode())


class Identified(Protocol):
    """The part of a ``RecordingDescriptor`` by which a recording is recognized."""

    @property
    def identity(self) -> RecordingIdentity: ...
    @property
    def start_timestamp(self) -> int: ...
    @property
    def session_id(self) -> int: ...
    @property
    def original_channel(self) -> str: ...


def is_stored_identity(stored: str | int, descriptor: Identified, sessions: Iterable[int] = ()) -> bool:
    """Return whether a stored identity, or its CRC-32, is that of a recording.

    The CRC-32 of an earlier release covers the session that the recording had then: that of the descriptor, or one of ``sessions``.
    """
    if isinstance(stored, str):
        return stored == str(descriptor.identity) or _without_session(stored) == (
            str(descriptor.start_timestamp),
            descriptor.original_channel,
        )
    if stored == descriptor.identity.checksum or stored == _earlier_checksum(descriptor, descriptor.session_id):
        return True
    return any(stored == _earlier_checksum(descriptor, each) for each in sessions)


def stored_session(stored: str) -> int | None:
    """Return the session in a stored identity of an earlier release, or None."""
    parts = stored.split("/", 2)
    try:
        return int(parts[1]) if len(parts) == 3 else None
    except ValueError:
        return None


def _without_session(stored: str) -> tuple[str, str] | None:
    parts = stored.split("/", 2)
    return (parts[0], parts[2]) if len(parts) == 3 else None


def _earlier_checksum(descriptor: Identified, session_id: int) -> int:
    return zlib.crc32(f"{descriptor.start_timestamp}/{session_id}/{descriptor.original_channel}".encode())
