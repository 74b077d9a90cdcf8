"""What a reader needs of an archive, and the archive whose layout is that of a recorder's directory.

Theory of operation. A reader computes with positions; an archive has the bytes. ``Archive`` is what is between them, so that
the same reader serves a directory that is being written on this machine, one in an object store or on a server, and other
layouts. A segment is memory from the archive. A local file is mapped, and all of it is there, at its own offsets. Of a
remote one, ``chunks`` fetches ranges ahead into memory that is used again and again, in which a frame is as far into a term as
in the file (``place``): so the checks of term offsets, and frames across two chunks, are what they are in a mapped file.

One thread uses an archive at a time; its fetching threads are its own.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import RecordingError
from mainstem.recording.catalog import CATALOG_FILE, MAX_CATALOG_LENGTH, decode_catalog, read_catalog
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
from mainstem.recording.segments import SEGMENT_NAME, SegmentMemory, all_segment_bases, segment_name, segments_among
from mainstem.store.base import read_all
from mainstem.store.local import LocalStore
from mainstem.store.prefetch import in_threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from mmap import mmap
    from pathlib import Path

    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.store.base import Store

# Written once, when an archive gets its identity: {"id": "...", "host": "..."}.
IDENTITY_FILE = "mainstem-archive.json"
MAX_IDENTITY_LENGTH = 4096
# Longer than the tick of any file system's clock, and than the clocks of two machines usually differ.
UNSETTLED_NS = 2 * NS_PER_SECOND
NAMES_NS = NS_PER_SECOND


class ArchiveSegment(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def length(self) -> int:
        """The available bytes of the segment, from its base."""
        ...

    @property
    def memory(self) -> mmap | bytes:
        """The memory that holds each byte at its ``place``. Only read ranges that ``chunks`` yielded."""
        ...

    @property
    def is_mapped(self) -> bool:
        """Whether what was read stays readable until it is closed; otherwise its memory is that of one iteration."""
        ...

    def place(self, offset: int) -> int:
        """Where a file offset is in ``memory``: as far into a term as in the file."""
        ...

    def chunks(self, start: int, end: int) -> Iterator[tuple[int, int]]: ...

    def read(self, start: int, end: int) -> bytes:
        """The bytes ``[start, end)`` of the file, wherever frames begin. Raises RecordingError if they are missing."""
        ...

    def close(self) -> None: ...


class Archive(Protocol):
    """Recordings with one catalog and id."""

    @property
    def url(self) -> str:
        """Its location, for errors and for opening it elsewhere."""
        ...

    @property
    def archive_id(self) -> str:
        """The id, which stays the same wherever the archive is copied; the URL if it has none."""
        ...

    @property
    def host(self) -> str:
        """The host whose recorder wrote it; empty if unknown."""
        ...

    def refresh(self) -> None:
        """Drop cached listings."""
        ...

    def recordings(self) -> list[RecordingDescriptor]:
        """The recordings in catalog order. Raises RecordingError if there is no archive."""
        ...

    def segments(self, descriptor: RecordingDescriptor) -> Mapping[int, int]:
        """The length in bytes of each available segment of a recording, by base, ascending."""
        ...

    def segment(self, descriptor: RecordingDescriptor, base: int) -> ArchiveSegment:
        """Open a segment. Raises RecordingError if it is missing."""
        ...

    def recorded_positions(self, descriptors: Sequence[RecordingDescriptor]) -> list[int | None]:
        """The current recorded position of each recording, or None; bulk variant that opens no readers."""
        ...

    def index(self, descriptor: RecordingDescriptor) -> RecordingIndex | None:
        """The recorded position and the index; None if the recording has none. The caller closes it."""
        ...

    def close(self) -> None: ...


class DirectoryArchive:
    """A recorder's directory, or Aeron Archive's, in any store.

    With ``keep_listing``, and for remote stores, segments are listed once, until ``refresh``.
    """

    def __init__(self, store: Store, *, keep_listing: bool = False) -> None:
        self.store = store
        self.directory = store.local_path()
        self._keep_listing = keep_listing or self.directory is None
        self._listing: dict[int, dict[int, int]] | None = None
        # The result of `_bases`, its time, and the directory's modification time.
        self._names: tuple[int, int, dict[int, list[int]]] | None = None
        self._catalog: tuple[bytes, list[RecordingDescriptor]] | None = None
        self._identity: dict[str, str] | None = None

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def archive_id(self) -> str:
        default = self.url if self.directory is None else str(self.directory.absolute())
        return self._read_identity().get("id") or default

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
            raise RecordingError(f"{self.url} holds no recordings: there is no {CATALOG_FILE} in it") from error
        known, descriptors = self._catalog or (b"", [])
        if data != known:
            descriptors = decode_catalog(
                data, f"{self.url}/{CATALOG_FILE}", known={d.entry_offset: d for d in descriptors}, before=known
            )
            self._catalog = data, descriptors
        return descriptors

    def _catalog_bytes(self) -> bytes:
        return read_all(self.store, CATALOG_FILE, limit=MAX_CATALOG_LENGTH)

    def segments(self, descriptor: RecordingDescriptor) -> dict[int, int]:
        if self.directory is not None and not self._keep_listing:
            here: dict[int, int] = {}
            with suppress(FileNotFoundError):
                for base in segments_among(descriptor, self._bases(self.directory).get(descriptor.recording_id, ())):
                    with suppress(FileNotFoundError):
                        here[base] = (self.directory / segment_name(descriptor.recording_id, base)).stat().st_size
            return here
        lengths = self._listed().get(descriptor.recording_id, {})
        return {base: lengths[base] for base in segments_among(descriptor, lengths)}

    def _bases(self, directory: Path) -> dict[int, list[int]]:
        """The bases of the segments in a directory by recording, listed again when the directory has changed.

        Also after a second, because not every file system updates a directory's modification time.
        """
        changed_ns, now_ns = directory.stat().st_mtime_ns, SYSTEM_CLOCK.epoch_ns()
        if self._names is not None and self._names[0] == changed_ns and 0 <= now_ns - self._names[1] < NAMES_NS:
            return self._names[2]
        bases = all_segment_bases(directory)
        # Changes within one tick of a file system's clock leave the same time: names as young as that are read again.
        is_settled = now_ns - changed_ns > UNSETTLED_NS
        self._names = (changed_ns, now_ns, bases) if is_settled else None
        return bases

    def _listed(self) -> dict[int, dict[int, int]]:
        if self._listing is not None:
            return self._listing
        listing: dict[int, dict[int, int]] = {}
        for file in self.store.list(recursive=False):
            if match := SEGMENT_NAME.fullmatch(file.name):
                listing.setdefault(int(match[1]), {})[int(match[2])] = file.size
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
        mask = descriptor.term_buffer_length - 1
        return FetchedSegment(shown, length, lambda start, end: self.store.read(name, start, end), term_mask=mask)

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
        try:
            stored = StoredIndex(self.store, index_name(descriptor.recording_id), descriptor.recording_id)
        except FileNotFoundError:
            return None
        except CorruptIndexError as error:
            warn_without_index(error)
            return None
        return stored if stored.origin == descriptor.origin else None

    def close(self) -> None:
        self.store.close()


def local_archive(directory: Path, *, keep_listing: bool = False) -> DirectoryArchive:
    return DirectoryArchive(LocalStore(directory), keep_listing=keep_listing)
