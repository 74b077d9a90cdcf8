"""Finds the recording that a stream continues, without reading the recordings of other streams.

A directory can have very many recordings, and every new session needs this lookup. So the catalog's offsets are kept in memory, a
quarter of a kilobyte each, by a key that all recordings of a stream share. The entry itself is read when its stream arrives.
"""

from __future__ import annotations

import struct
from contextlib import closing
from typing import TYPE_CHECKING

from mainstem.recording.index import open_index
from mainstem.recording.life import ENDED, NO_LIFE, OF_ARCHIVE, StreamLife, is_of_network

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from pathlib import Path

    from mainstem.recording.catalog import Catalog, RecordingDescriptor

# The number of recordings of one stream that are considered, newest first. A session can have any number of lives, each with a
# recording.
MAX_LIVES = 64

_KEY = struct.Struct("<4i")


def _key(descriptor: RecordingDescriptor) -> bytes:
    d = descriptor
    return _KEY.pack(d.session_id, d.stream_id, d.initial_term_id, d.term_buffer_length)


class KnownRecordings:
    """The recordings of a directory by stream. ``descriptors`` are those of its catalog, in order."""

    def __init__(self, directory: Path, catalog: Catalog, descriptors: Iterable[RecordingDescriptor]) -> None:
        self._directory, self._catalog = directory, catalog
        self._entries: dict[bytes, tuple[int, ...]] = {}
        for descriptor in descriptors:
            self.add(descriptor)

    def add(self, descriptor: RecordingDescriptor) -> None:
        key = _key(descriptor)
        self._entries[key] = (*self._entries.get(key, ()), descriptor.entry_offset)[-MAX_LIVES:]

    def previous(
        self, stream: RecordingDescriptor, life: StreamLife, written: Container[int]
    ) -> RecordingDescriptor | None:
        """Return the last recording of the same life of a stream, or None if there is none or it is in ``written``.

        ``stream`` describes the recording that would begin now. ``written`` has the ids of the recordings that are being written.
        """
        channel = stream.original_channel
        of_channel: RecordingDescriptor | None = None
        may_go_on = False
        for offset in reversed(self._entries.get(_key(stream), ())):
            d = self._catalog.entry(offset)
            recorded = self._recorded_life(d)
            if recorded == life and (life != NO_LIFE or d.original_channel == channel):
                return d if d.recording_id not in written else None
            if of_channel is None and d.original_channel == channel:
                of_channel = d
                may_go_on = recorded not in (None, NO_LIFE, ENDED) and d.recording_id not in written
        if of_channel is None or not may_go_on or not is_of_network(channel, stream.source_identity):
            return None
        # A driver creates a new image if it meets a stream again, and a publisher's position never decreases.
        is_same_source = of_channel.source_identity == stream.source_identity
        return of_channel if is_same_source and of_channel.stop_position <= stream.start_position else None

    def _recorded_life(self, descriptor: RecordingDescriptor) -> StreamLife | None:
        """Return the life that a recording belongs to, or None if an archive wrote or extended it."""
        index = open_index(self._directory, descriptor)
        if index is None:
            # Its recorder was killed when only the entry existed.
            is_empty = descriptor.start_position == descriptor.stop_position
            return descriptor.origin if is_empty and descriptor.origin != OF_ARCHIVE else None
        with closing(index):
            return index.life
