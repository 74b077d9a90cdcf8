"""Reads shipped recordings: an ``Archive`` over manifests and chunks.

Theory of operation. ``refresh`` lists the manifests and reads the highest one. Everything else is looked up in it, and in the pages
that a query needs. Pages and chunks are immutable, so they are read once and cached. A segment is memory in which the frame at
position p is at offset p - base; ranges of its chunks are fetched on demand. An index lookup starts at the manifest. Each chunk and
page has the position, time, number of messages and number of entries at its beginning, which leads to the one chunk whose entries
the lookup needs.

A recording only grows from one refresh to the next. It is shown as stopped once all of it is in the store.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK, Clock
from mainstem.errors import RecordingError, RecordingNotFound
from mainstem.recording.catalog import NULL
from mainstem.recording.fetching import CorruptRangeError, FetchedSegment
from mainstem.recording.index import ENTRY_LENGTH, IndexEntry, RecordingIndex
from mainstem.recording.segments import segment_base
from mainstem.recording.shipping.chunk_reader import ChunkReader, MappedChunk
from mainstem.recording.shipping.manifest import Manifest, ManifestLog
from mainstem.recording.shipping.page_tree import PageRef, Pages, between, last_where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mainstem.recording.archive import ArchiveSegment
    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.shipping.chunks import Chunk
    from mainstem.recording.shipping.manifest import ShippedRecording
    from mainstem.recording.shipping.page_tree import ChunkTree, Item
    from mainstem.store import Store

# The minimum interval between looking for a newer manifest, for a reader that waits for the end of a recording. Each look is a
# listing.
REFRESH_NS = NS_PER_SECOND
# The number of index blocks that a reader caches. A block has the entries of one chunk: 64 kB for 128 MiB of frames.
MAX_BLOCKS = 32


class ShippedArchive:
    has_sessions = True

    def __init__(self, store: Store, archive_id: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.store = store
        self._archive_id = archive_id
        self._clock = clock
        self._chain = ManifestLog(store, archive_id)
        self.pages = self._chain.pages
        self.chunk_reader = ChunkReader(store, archive_id)
        self._manifest: Manifest | None = None
        self._shipped: dict[int, ShippedRecording] = {}
        self._read_ns = 0

    @property
    def url(self) -> str:
        return f"{self.store.url.rstrip('/')}/{self._archive_id}"

    @property
    def archive_id(self) -> str:
        return self._archive_id

    @property
    def host(self) -> str:
        return self.manifest.host

    @property
    def manifest(self) -> Manifest:
        """The manifest as of the last refresh, or an empty one if a shipper has not put the first one yet."""
        if self._manifest is None:
            self.refresh()
        return self._manifest or Manifest(self._archive_id)

    def refresh(self) -> None:
        self._read_ns = self._clock.monotonic_ns()
        manifest = self._chain.latest()
        if manifest is not None and (self._manifest is None or manifest.number > self._manifest.number):
            self._manifest, self._shipped = manifest, self._chain.recording_pages.all(manifest)

    def refresh_when_due(self) -> None:
        if self._clock.monotonic_ns() - self._read_ns >= REFRESH_NS:
            self.refresh()

    @property
    def shipped(self) -> dict[int, ShippedRecording]:
        """Every recording by id, including those that retention has emptied."""
        self.manifest  # noqa: B018 - it is read when it has not been
        return self._shipped

    def entry(self, recording_id: int) -> ShippedRecording:
        try:
            return self.shipped[recording_id]
        except KeyError:
            raise RecordingNotFound(f"{self.url} holds no recording {recording_id}") from None

    def recordings(self) -> list[RecordingDescriptor]:
        """Like ``Archive.recordings``: the recordings that have data or can still grow."""
        return [
            _shown(entry)
            for _, entry in sorted(self.shipped.items())
            if entry.start < entry.end or not entry.is_complete or entry.descriptor.start_position == entry.end
        ]

    def segments(self, descriptor: RecordingDescriptor) -> Mapping[int, int]:
        """Like ``Archive.segments``. Only the pages that a lookup needs are read."""
        return SegmentLengths(descriptor, self.entry(descriptor.recording_id).tree, self.pages)

    def segment(self, descriptor: RecordingDescriptor, base: int) -> ArchiveSegment:
        entry = self.entry(descriptor.recording_id)
        chunks = list(between(entry.tree, base, base + descriptor.segment_file_length, self.pages))
        if not chunks:
            raise RecordingError(f"segment {base} of recording {descriptor.recording_id} is missing in {self.url}")
        mask = descriptor.term_buffer_length - 1
        if len(chunks) == 1 and chunks[0].start == base:
            path = self.store.local_path(f"{self._archive_id}/{chunks[0].name}")
            if path is not None:
                return MappedChunk(path, chunks[0], self.chunk_reader, term_mask=mask)
        name = f"{self.url}/{descriptor.recording_id}/{base}"
        fetch = _Fetch(self.chunk_reader, name, chunks, base)
        # If a fetched range ends at the end of its chunk, it can be verified without reading more.
        cuts = [chunk.end - base for chunk in chunks]
        return FetchedSegment(name, chunks[-1].end - base, fetch, term_mask=mask, cuts=cuts)

    def index(self, descriptor: RecordingDescriptor) -> RecordingIndex | None:
        """Like ``Archive.index``. Return None if the recording had no index when it was shipped."""
        entry = self.entry(descriptor.recording_id)
        return ShippedIndex(self, descriptor.recording_id) if entry.has_index else None

    def recorded_positions(self, descriptors: Sequence[RecordingDescriptor]) -> list[int | None]:
        """Like ``Archive.recorded_positions``: return the shipped ends as of the last refresh."""
        entries = (self.entry(each.recording_id) for each in descriptors)
        return [entry.end if entry.has_index or entry.is_complete else None for entry in entries]

    def close(self) -> None:
        self.store.close()


def _shown(entry: ShippedRecording) -> RecordingDescriptor:
    """Return the descriptor as readers see it: stopped only if all of the recording is shipped.

    A recording that ended, was removed and then continued can begin within a segment. It is shown as starting there.
    """
    d = entry.descriptor
    if entry.start > max(d.start_position, segment_base(d, entry.start)):
        d = replace(d, start_position=entry.start)
    if entry.is_complete:
        return replace(d, stop_position=entry.end)
    return replace(d, stop_position=NULL, stop_timestamp=NULL)


class SegmentLengths(Mapping[int, int]):
    """The length of each available segment, by base. It is computed on demand, because a long recording has a million segments."""

    def __init__(self, descriptor: RecordingDescriptor, tree: ChunkTree, pages: Pages) -> None:
        self._descriptor, self._tree, self._pages = descriptor, tree, pages

    def __iter__(self) -> Iterator[int]:
        last = -1
        for base in self._bases(self._tree.items):
            if base > last:
                last = base
                yield base

    def _bases(self, items: Sequence[Item]) -> Iterator[int]:
        d = self._descriptor
        for item in items:
            # If a page has only chunks without gaps, its segments are known without reading it.
            if isinstance(item, PageRef) and (item.level > 1 or item.length < item.end - item.start):
                yield from self._bases(self._pages.read(item))
                continue
            bases = range(segment_base(d, item.start), item.end, d.segment_file_length)
            if len(bases) > item.count:
                raise RecordingError(
                    f"recording {d.recording_id}: {item.count} chunks from {item.start} to {item.end} cannot lie in "
                    f"{len(bases)} segments"
                )
            yield from bases

    def __getitem__(self, base: int) -> int:
        d = self._descriptor
        if segment_base(d, base) != base:
            raise KeyError(base)
        end = None
        for chunk in between(self._tree, base, base + d.segment_file_length, self._pages):
            end = chunk.end
        if end is None:
            raise KeyError(base)
        return end - base

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Fetch:
    """Reads the bytes of a segment, by offset, from its chunks."""

    def __init__(self, reader: ChunkReader, name: str, chunks: list[Chunk], base: int) -> None:
        self._reader, self._name = reader, name
        self._chunks, self._base = chunks, base
        self._ends = [chunk.end for chunk in chunks]

    def __call__(self, start: int, end: int) -> bytes | memoryview:
        position, stop = self._base + start, self._base + end
        parts: list[memoryview] = []
        while position < stop:
            number = bisect_left(self._ends, position + 1)
            chunk = self._chunks[number] if number < len(self._chunks) else None
            if chunk is None or chunk.start > position:
                raise RecordingError(f"{self._name}: position {position} was deleted before it was shipped")
            until = min(stop, chunk.end)
            try:
                parts.append(self._reader.read(chunk, position - chunk.start, until - chunk.start))
            except CorruptRangeError as error:
                error.before = b"".join((*parts, error.before))
                raise
            position = until
        return parts[0] if len(parts) == 1 else b"".join(parts)


class ShippedIndex(RecordingIndex):
    def __init__(self, archive: ShippedArchive, recording_id: int) -> None:
        self._archive, self._recording_id = archive, recording_id
        self._name = f"{archive.url}/{recording_id}"
        self._blocks: OrderedDict[str, bytes] = OrderedDict()

    @property
    def _recording(self) -> ShippedRecording:
        return self._archive.entry(self._recording_id)

    @property
    def recorded_position(self) -> int:
        """The end of the shipped part as of the archive's last refresh."""
        return self._recording.end

    def refresh(self) -> None:
        self._archive.refresh_when_due()

    @property
    def _removed(self) -> int:
        """The number of entries before the first available chunk. ``count`` excludes them."""
        items = self._recording.tree.items
        return items[0].first_entry if items else self._recording.entries

    @property
    def count(self) -> int:
        return self._recording.entries - self._removed

    def _written(self) -> int:
        return self.count

    def _read(self, first: int, last: int) -> bytes:
        parts, at, removed = [], first, self._removed
        while at < last:
            chunk = self._chunk_of(at + removed)
            if chunk is None or not chunk.first_entry <= at + removed < chunk.first_entry + chunk.entries:
                break
            begin = at + removed - chunk.first_entry
            stop = min(last + removed - chunk.first_entry, chunk.entries)
            parts.append(self._block(chunk)[begin * ENTRY_LENGTH : stop * ENTRY_LENGTH])
            at += stop - begin
        return b"".join(parts)

    def _chunk_of(self, number: int) -> Chunk | None:
        """Return the chunk that can contain an entry: the last chunk that begins at or before it."""
        return last_where(self._recording.tree, lambda item: item.first_entry <= number, self._archive.pages)

    def _block(self, chunk: Chunk) -> bytes:
        block = self._blocks.get(chunk.name)
        if block is None:
            name = f"{self._archive.archive_id}/{chunk.name}"
            try:
                block = bytes(self._archive.chunk_reader.read(chunk, chunk.length, chunk.nbytes))
            except FileNotFoundError:
                raise RecordingError(f"{self._archive.store.url}: {name} is missing") from None
            self._blocks[chunk.name] = block
            if len(self._blocks) > MAX_BLOCKS:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(chunk.name)
        return block

    def _first(self, holds: Callable[[IndexEntry], bool]) -> int:
        """Like ``RecordingIndex._first``, but find the chunk first, so that only the entries of one chunk are read.

        The chunk is found by its beginning. In position, time and messages, the beginning is not after the chunk's own entries, and
        not before those of preceding chunks. So if ``holds`` is false for the beginning, the first entry for which it is true is
        not in a preceding chunk.
        """
        chunk = last_where(self._recording.tree, lambda item: not holds(_begin(item)), self._archive.pages)
        if chunk is None:
            return 0
        first = chunk.first_entry - self._removed
        return first + bisect_left(range(chunk.entries), True, key=lambda number: holds(self.at(first + number)))

    def close(self) -> None: ...


def _begin(item: Item) -> IndexEntry:
    """Return the beginning of a chunk or page as an index entry."""
    return IndexEntry(item.start, item.first_ns, item.before)
