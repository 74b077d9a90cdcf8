"""The archive behind an http(s) URL: ``mainstem serve``, which includes the growing tail, or any server with range requests.

With ``mainstem serve``, each trigger costs one request for the active recordings and one for the list of files. The catalog is
requested only if it has changed. Bytes are requested with the entity tag of the recording, so those of a recreated directory are
rejected. Other servers have no listings, so the names of segments are derived from the catalog, and a search finds which segments
were purged.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING, Any

from mainstem.errors import RecordingError, RecordingNotFound
from mainstem.recording.archive import DirectoryArchive
from mainstem.recording.catalog import CATALOG_FILE, MAX_CATALOG_LENGTH, NULL
from mainstem.recording.fetching import FetchedSegment
from mainstem.recording.index import index_name
from mainstem.recording.segments import first_segment_base, segment_name
from mainstem.store.base import OneVersion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mainstem.recording.archive import ArchiveSegment
    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.index import RecordingIndex
    from mainstem.store.http import HttpStore

MAX_SEGMENTS = 1 << 21  # per recording: more than any server has files in a directory


def identity_tag(descriptor: RecordingDescriptor, name: str) -> str:
    """Return the entity tag that ``mainstem serve`` gives a recording's file. It stays the same while the file grows.

    The file of another recording has another tag.
    """
    return hashlib.sha256(f"{descriptor.identity}\n{descriptor.recording_id}\n{name}".encode()).hexdigest()[:32]


def _read_to(file: OneVersion, start: int, place: memoryview) -> int:
    """Read a range of a file into memory. Return the number of bytes."""
    data = file.read(start, start + len(place), place=place)
    if isinstance(data, bytes):
        place[: len(data)] = data
    return len(data)


class ServedArchive(DirectoryArchive):
    """The recordings behind an http(s) URL."""

    def __init__(self, store: HttpStore) -> None:
        super().__init__(store, keep_listing=True)
        self.http = store
        self._tagged_catalog = "", b""

    def _catalog_bytes(self) -> bytes:
        self._tagged_catalog = self.http.read_whole(CATALOG_FILE, MAX_CATALOG_LENGTH, self._tagged_catalog)
        return self._tagged_catalog[1]

    def segments(self, descriptor: RecordingDescriptor) -> Mapping[int, int]:
        if self.http.is_served:
            return super().segments(descriptor)
        return self._segments_by_name(descriptor)

    def _segments_by_name(self, descriptor: RecordingDescriptor) -> dict[int, int]:
        first, step = first_segment_base(descriptor), descriptor.segment_file_length
        end = self._end(descriptor)
        if end is None:
            bases: list[int] = []
            while len(bases) < MAX_SEGMENTS and self._length(descriptor, first + len(bases) * step) is not None:
                bases.append(first + len(bases) * step)
        else:
            every = range(first, max(end, first), step)
            # Segments are purged from the front, so if a segment exists, all later ones do, too.
            there = bisect_left(every, True, key=lambda base: self._length(descriptor, base) is not None)
            bases = self._checked(descriptor, every[there:])
        return dict.fromkeys(bases, step)

    def _checked(self, descriptor: RecordingDescriptor, bases: range) -> list[int]:
        """Return the bases as a list if the segment of the last one exists, because the end in the catalog can be wrong."""
        if len(bases) > MAX_SEGMENTS or (bases and self._length(descriptor, bases[-1]) is None):
            raise RecordingError(
                f"{self.url}: recording {descriptor.recording_id} ends at {descriptor.stop_position} in its catalog, and "
                "its segments do not reach that far"
            )
        return list(bases)

    def _end(self, descriptor: RecordingDescriptor) -> int | None:
        if descriptor.stop_position != NULL:
            return descriptor.stop_position
        index = self.index(descriptor)
        return None if index is None else index.recorded_position

    def _length(self, descriptor: RecordingDescriptor, base: int) -> int | None:
        try:
            return self.store.size(segment_name(descriptor.recording_id, base))
        except FileNotFoundError:
            return None

    def segment(self, descriptor: RecordingDescriptor, base: int) -> ArchiveSegment:
        """Like ``Archive.segment``. The file has its full length from the start, so no request is needed to open it."""
        name = segment_name(descriptor.recording_id, base)
        tag = identity_tag(descriptor, name)
        if descriptor.stop_position != NULL and not self.http.is_served:
            file = OneVersion(self.http, name)
            read, read_to = file.read, partial(_read_to, file)
        else:
            # Other servers change the entity tag of a file while a recorder writes it.
            read = partial(self.http.read_of, tag, name)
            read_to = partial(self.http.read_to, tag, name)
        return FetchedSegment(
            f"{self.url}/{name}",
            descriptor.segment_file_length,
            read,
            term_mask=descriptor.term_buffer_length - 1,
            fetch_into=read_to,
        )

    def index(self, descriptor: RecordingDescriptor) -> RecordingIndex | None:
        name = index_name(descriptor.recording_id)
        if not self.http.is_served:
            return self._stored_index(descriptor, name, self._index_reader(descriptor, name))
        tag = identity_tag(descriptor, name)
        return self._stored_index(descriptor, name, partial(self.http.read_of, tag, name))

    def recorded_positions(self, descriptors: Sequence[RecordingDescriptor]) -> list[int | None]:
        """Like ``Archive.recorded_positions``. With ``mainstem serve``, this takes one request per page of active recordings."""
        if not self.http.is_served:
            return [self._end(each) for each in descriptors]
        positions: dict[tuple[int, str], int | None] = {}
        for row in self.http.rows("/v1/recordings?active=1", "recordings", 0):
            match row:
                case {"recording_id": int(recording_id), "problem": str(problem)}:
                    raise RecordingError(f"{self.url}: recording {recording_id}: {problem[:200]}")
                case {
                    "recording_id": int(recording_id),
                    "identity": str(identity),
                    "recorded_position": int() | None as end,
                }:
                    positions[recording_id, identity] = end
                case _:
                    raise RecordingError(f"{self.url}: the server sent a recording in another form")
        return [
            each.stop_position
            if each.stop_position != NULL
            # A recording that is no longer active has stopped since the catalog was read, at its recorded position.
            else positions[key]
            if (key := (each.recording_id, str(each.identity))) in positions
            else self._end(each)
            for each in descriptors
        ]

    def wait(self, descriptor: RecordingDescriptor, position: int, seconds: float) -> int | None:
        """Wait until a recording extends past a position or has stopped, and return its recorded position.

        Works only with ``mainstem serve``.
        """
        target = f"/v1/recordings/{descriptor.recording_id}?after={position}&wait={seconds:.3f}"
        try:
            row: dict[str, Any] = self.http.page(target, wait_s=seconds)
        except FileNotFoundError as error:
            raise RecordingNotFound(f"{self.url} holds no recording {descriptor.recording_id} any more") from error
        if row.get("identity") != str(descriptor.identity):
            raise RecordingError(f"{self.url}: recording {descriptor.recording_id} was replaced")
        recorded = row.get("recorded_position")
        return recorded if isinstance(recorded, int) else None
