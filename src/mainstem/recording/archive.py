"""The interface between a reader and an archive, and the archive whose layout is that of a recorder's directory.

Theory of operation. A reader computes with positions; an archive provides the bytes. ``Archive`` is the interface between the two.
So the same reader can read a local directory while it is written, a directory in an object store or on a server, and other layouts.
A segment is memory that the archive provides. A local file is mapped, so all of it is available at its own offsets. For a remote
file, ``chunks`` fetches ranges ahead into memory that is reused. In that memory, a frame has the same offset within a term as in
the file (``place``), so checks of term offsets, and frames that span two chunks, work as in a mapped file.

Only one thread may use an archive at a time. Its fetching threads are internal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from mmap import PAGESIZE
from typing import TYPE_CHECKING, Protocol

from mainstem._core.layout import WALK_AT_END, WALK_AT_LIMIT, WALK_CORRUPT
from mainstem._core.log.columns import FrameWalk
from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import RecordingError
from mainstem.recording.catalog import (
    CATALOG_FILE,
    MAX_CATALOG_LENGTH,
    NULL,
    decode_catalog,
    no_recordings,
    read_catalog,
)
from mainstem.recording.fetching import FetchedSegment
from mainstem.recording.index import (
    CorruptIndexError,
    RecordingIndex,
    StoredIndex,
    index_name,
    open_index,
    recorded_position,
    warn_without_index,
)
from mainstem.recording.segments import (
    SegmentMemory,
    all_segment_bases,
    check_whole,
    first_segment_base,
    parse_segment_name,
    segment_name,
    segments_among,
)
from mainstem.store.base import OneVersion, read_all
from mainstem.store.local import LocalStore
from mainstem.store.open_store import place_of
from mainstem.store.threads import in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from mmap import mmap
    from pathlib import Path

    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.store.base import Store

# Written once, when an archive is given its identity: {"id": "...", "host": "..."}.
IDENTITY_FILE = "mainstem-archive.json"
MAX_IDENTITY_LENGTH = 4096
# Longer than the resolution of any file system's timestamps, and than the usual clock difference between two hosts.
UNSETTLED_NS = 2 * NS_PER_SECOND
NAMES_NS = NS_PER_SECOND


class ArchiveSegment(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def length(self) -> int:
        """The number of available bytes of the segment, from its base."""
        ...

    @property
    def memory(self) -> mmap | bytes:
        """The memory that has each byte at its ``place``. Read only ranges that ``chunks`` has yielded."""
        ...

    @property
    def is_mapped(self) -> bool:
        """Whether memory stays valid until the segment is closed. Otherwise, it is valid only during one iteration."""
        ...

    def place(self, offset: int) -> int:
        """Return where a file offset is in ``memory``. Its offset within a term is the same as in the file."""
        ...

    def chunks(self, start: int, end: int) -> Iterator[tuple[int, int]]: ...

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes ``[start, end)`` of the file, regardless of frame boundaries.

        Raises RecordingError if they are missing.
        """
        ...

    def close(self) -> None: ...


class Archive(Protocol):
    """Recordings that share one catalog and one id."""

    @property
    def url(self) -> str:
        """The location of the archive, for error messages and for opening it in another process."""
        ...

    @property
    def archive_id(self) -> str:
        """The id, which stays the same if the archive is copied. If it has none, its place (``place_of``)."""
        ...

    @property
    def host(self) -> str:
        """The host whose recorder wrote the archive; empty if unknown."""
        ...

    @property
    def has_sessions(self) -> bool:
        """Whether frames have the session ids with which they were recorded."""
        ...

    def refresh(self) -> None:
        """Drop cached listings."""
        ...

    def recordings(self) -> list[RecordingDescriptor]:
        """Return the recordings in catalog order. Raises RecordingError if there is no archive."""
        ...

    def segments(self, descriptor: RecordingDescriptor) -> Mapping[int, int]:
        """Return the length in bytes of each available segment of a recording, by base, ascending."""
        ...

    def segment(self, descriptor: RecordingDescriptor, base: int) -> ArchiveSegment:
        """Open a segment. Raises RecordingError if it is missing."""
        ...

    def recorded_positions(self, descriptors: Sequence[RecordingDescriptor]) -> list[int | None]:
        """Return the current recorded position of each recording, or None if unknown. Does not need a reader for each."""
        ...

    def index(self, descriptor: RecordingDescriptor) -> RecordingIndex | None:
        """Return the recorded position and the index, or None if the recording has none. The caller closes it."""
        ...

    def close(self) -> None: ...


class DirectoryArchive:
    """A directory of Mainstem's recorder or of Aeron Archive, in any store.

    With ``keep_listing``, and in remote stores, segments are listed once and then again only after ``refresh``.
    """

    has_sessions = True

    def __init__(self, store: Store, *, keep_listing: bool = False) -> None:
        self.store = store
        self.directory = store.local_path()
        self._keep_listing = keep_listing or self.directory is None
        self._listing: dict[int, dict[int, int]] | None = None
        # The directory's modification time, the time of the listing, and the result of `bases`.
        self._names: tuple[int, int, dict[int, list[int]]] | None = None
        self._catalog: tuple[bytes, list[RecordingDescriptor]] | None = None
        self._identity: dict[str, str] | None = None
        self._place = ""

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def archive_id(self) -> str:
        identity = self._read_identity().get("id")
        if identity:
            return identity
        if not self._place:
            self._place = place_of(self.url if self.directory is None else str(self.directory))
        return self._place

    @property
    def host(self) -> str:
        return self._read_identity().get("host", "")

    def _read_identity(self) -> dict[str, str]:
        if self._identity is None:
            identity: object = {}
            with suppress(FileNotFoundError):
                text = read_all(self.store, IDENTITY_FILE, limit=MAX_IDENTITY_LENGTH)
                try:
                    identity = json.loads(text)
                except (ValueError, RecursionError):
                    identity = None
            if not isinstance(identity, dict):
                raise RecordingError(f"{self.url}: {IDENTITY_FILE} is not a JSON object")
            self._identity = {str(key): str(value) for key, value in identity.items()}
        return self._identity

    def refresh(self) -> None:
        self._listing = None

    def recordings(self) -> list[RecordingDescriptor]:
        if self.directory is not None and not self._keep_listing:
            return read_catalog(self.directory)
        try:
            data = self._catalog_bytes()
        except FileNotFoundError as error:
            raise no_recordings(self.url, self.directory or self.store.local_path()) from error
        known, descriptors = self._catalog or (b"", [])
        if data != known:
            descriptors = decode_catalog(
                data, f"{self.url}/{CATALOG_FILE}", known={d.entry_offset: d for d in descriptors}, before=known
            )
            self._catalog = data, descriptors
        return descriptors

    def _catalog_bytes(self) -> bytes:
        return read_all(self.store, CATALOG_FILE, limit=MAX_CATALOG_LENGTH)

    def segments(self, descriptor: RecordingDescriptor) -> Mapping[int, int]:
        if self.directory is not None and not self._keep_listing:
            return _LocalSegments(self, self.directory, descriptor)
        lengths = self._listed().get(descriptor.recording_id, {})
        return {base: lengths[base] for base in segments_among(descriptor, lengths)}

    def bases(self, directory: Path) -> dict[int, list[int]]:
        """Return the bases of the segments in a directory, by recording. The directory is listed again if it has changed.

        It is also listed again after a second, because not every file system updates a directory's modification time.
        """
        try:
            changed_ns, now_ns = directory.stat().st_mtime_ns, SYSTEM_CLOCK.epoch_ns()
        except FileNotFoundError:
            return {}
        if self._names is not None and self._names[0] == changed_ns and 0 <= now_ns - self._names[1] < NAMES_NS:
            return self._names[2]
        bases = all_segment_bases(directory)
        # Two changes within the resolution of the file system's clock have the same time, so do not cache a listing of a recent
        # change.
        is_settled = now_ns - changed_ns > UNSETTLED_NS
        self._names = (changed_ns, now_ns, bases) if is_settled else None
        return bases

    def _listed(self) -> dict[int, dict[int, int]]:
        if self._listing is not None:
            return self._listing
        listing: dict[int, dict[int, int]] = {}
        for file in self.store.list(recursive=False):
            if (found := parse_segment_name(file.name)) is not None:
                listing.setdefault(found[0], {})[found[1]] = file.size
        self._listing = listing
        return listing

    def segment(self, descriptor: RecordingDescriptor, base: int) -> ArchiveSegment:
        name = segment_name(descriptor.recording_id, base)
        path = self.store.local_path(name)
        if path is not None:
            return SegmentMemory(path, base)
        shown = f"{self.url}/{name}"
        try:
            length = self.store.size(name)
        except FileNotFoundError as error:
            raise RecordingError(f"segment {shown} is missing") from error
        file = OneVersion(self.store, name)
        return FetchedSegment(
            shown,
            length,
            file.read,
            term_mask=descriptor.term_buffer_length - 1,
            begin=None if descriptor.stop_position != NULL else file.restart,
        )

    def recorded_positions(self, descriptors: Sequence[RecordingDescriptor]) -> list[int | None]:
        if self.directory is not None:
            return [recorded_position(self.directory, each.recording_id, origin=each.origin) for each in descriptors]
        return in_threads(self._recorded_position, descriptors)

    def _recorded_position(self, descriptor: RecordingDescriptor) -> int | None:
        index = self.index(descriptor)
        return None if index is None else index.recorded_position

    def index(self, descriptor: RecordingDescriptor) -> RecordingIndex | None:
        if self.directory is not None:
            return open_index(self.directory, descriptor)
        name = index_name(descriptor.recording_id)
        return self._stored_index(descriptor, name, self._index_reader(descriptor, name))

    def _index_reader(self, descriptor: RecordingDescriptor, name: str) -> Callable[[int, int], bytes]:
        """Return the function that reads an index. All of it is of the version whose header was read last.

        The index of an active recording only grows, and can be replaced by a longer copy.
        """
        if descriptor.stop_position == NULL:
            return lambda start, end: self.store.read(name, start, end)
        file = OneVersion(self.store, name)

        def read(start: int, end: int) -> bytes:
            if start == 0:  # the header
                file.restart()
            return file.read(start, end)

        return read

    def _stored_index(
        self, descriptor: RecordingDescriptor, name: str, read: Callable[[int, int], bytes]
    ) -> StoredIndex | None:
        """Return an index of a store, or None if it is missing or corrupt, or if an archive extended the recording."""
        try:
            index = StoredIndex(f"{self.url}/{name}", descriptor.recording_id, read, lambda: self.store.size(name))
        except FileNotFoundError:
            return None
        except CorruptIndexError as error:
            warn_without_index(error)
            return None
        return index if index.origin == descriptor.origin else None

    def close(self) -> None:
        self.store.close()


class _LocalSegments(Mapping[int, int]):
    """The length of each segment in a local directory, by base.

    The directory, which can have very many files, is listed only for segments after the first.
    """

    def __init__(self, archive: DirectoryArchive, directory: Path, descriptor: RecordingDescriptor) -> None:
        self._archive, self._directory, self._descriptor = archive, directory, descriptor

    def __iter__(self) -> Iterator[int]:
        first = first_segment_base(self._descriptor)
        if first in self:
            yield first
        bases = self._archive.bases(self._directory).get(self._descriptor.recording_id, ())
        yield from (base for base in segments_among(self._descriptor, bases) if base != first and base in self)

    def __getitem__(self, base: int) -> int:
        try:
            return (self._directory / segment_name(self._descriptor.recording_id, base)).stat().st_size
        except FileNotFoundError:
            raise KeyError(base) from None

    def __len__(self) -> int:
        return sum(1 for _ in self)


def local_archive(directory: Path, *, keep_listing: bool = False) -> DirectoryArchive:
    return DirectoryArchive(LocalStore(directory), keep_listing=keep_listing)


# -- the end of a recording without a stored end -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordingEnd:
    """The end of a recording's frames, and why the walk ended there.

    ``position`` is the end of the last whole frame. Usually, ``suspect`` is the same. But if the walk ended before the limit, and
    the last frame crosses a page boundary, ``suspect`` is the start of that frame, because nothing proves that all of its pages
    were written.

    ``reason`` is ``end`` if the limit was reached or nothing more was written, ``torn`` if a frame is truncated, ``corrupt`` if a
    frame header is invalid, and ``missing`` if a segment file is missing or too short.
    """

    position: int
    suspect: int
    reason: str


def readable_start(archive: Archive, descriptor: RecordingDescriptor) -> int:
    """Return the first readable position of a recording, later than its start if segments were purged."""
    start, stop = descriptor.start_position, descriptor.stop_position
    first = next(iter(archive.segments(descriptor)), start)
    # Segments past the end can be left over from a deletion that was interrupted.
    return max(start, first if stop == NULL else min(first, stop))


def find_end(
    archive: Archive, descriptor: RecordingDescriptor, *, limit: int | None = None, known: int = 0
) -> RecordingEnd:
    """Walk the last segment and return where its whole frames end.

    The walk begins at ``known`` if that is a frame boundary in the part of the segment that is walked. With ``limit``, segments
    that begin at or after it are ignored, and the walk does not go past it.
    """
    bases = list(archive.segments(descriptor))
    start = descriptor.start_position
    if limit is not None:
        bases = [base for base in bases if base < limit]
    if not bases:
        return RecordingEnd(start, start, "end" if limit in (None, start) else "missing")
    base = bases[-1]
    segment = archive.segment(descriptor, base)
    try:
        end = segment.length if limit is None else min(segment.length, limit - base)
        begin = max(start - base, 0)
        if begin > end:
            return RecordingEnd(start, start, "torn")
        if begin < known - base <= end:
            begin = known - base
        walk = FrameWalk()
        walk.term_mask = descriptor.term_buffer_length - 1
        offset, last, stopped = begin, begin, WALK_AT_LIMIT
        for at, chunk_end in segment.chunks(begin, end):
            first = segment.place(at)
            stopped = walk.run(segment.memory, first, first + chunk_end - at)
            check_whole(segment.memory, segment.name)
            offset = at + walk.offset - first
            last = at + walk.last - first if offset > at else last
            if stopped != WALK_AT_LIMIT:
                break
        position = base + offset
        if stopped == WALK_AT_LIMIT:
            whole = limit is None or position == limit
            return RecordingEnd(position, position, "end" if whole else "missing")
        reason = {WALK_AT_END: "end", WALK_CORRUPT: "corrupt"}.get(stopped, "torn")
        crosses = offset > begin and last // PAGESIZE != (offset - 1) // PAGESIZE
        return RecordingEnd(position, base + last if crosses else position, reason)
    finally:
        segment.close()
