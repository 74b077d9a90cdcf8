"""One archive in two tiers: the shipped part, in an object store for example, and the tail, where it is being recorded.

Theory of operation. Both tiers hold ranges of the same recordings, by the same positions. A position is in the tail only, in both
for a while, or in the shipped part only. ``shipped_end`` of a recording is the position before which the shipped part has
everything. Each range that a reader fetches comes from one tier: from the shipped part if it ends at or before the shipped end,
otherwise from the tail. If that tier does not have it (any more) or is unreachable, it comes from the other one. Rows are cut by
positions and not by tiers, so none is read twice, and a range that neither tier has is an error, never a gap.

If one tier becomes unreachable, its last known state is still valid: positions never move backwards and shipped bytes never change.
A reader that has seen both tiers keeps going with the one that remains. A reader that has never seen the tail doesn't know where
the recordings end, and one that has never seen the shipped part doesn't know where they begin, so both raise ``StoreError``.

The archive ids, if both tiers have one, and the identity of each recording tell whether both tiers hold the same archive.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.log_throttle import LogThrottle
from mainstem.errors import RecordingError, StoreError
from mainstem.recording.catalog import NULL
from mainstem.recording.fetching import FetchedSegment
from mainstem.recording.index import IndexEntry, RecordingIndex
from mainstem.recording.segments import segment_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mainstem.recording.archive import Archive, ArchiveSegment
    from mainstem.recording.catalog import RecordingDescriptor

T = TypeVar("T")

log = LogThrottle(logging.getLogger("mainstem.recording"))


class TieredArchive:
    """The shipped part of an archive and its tail, as one archive.

    Args:
        shipped: The part that is complete, or complete up to a position: an object store, or another directory.
        tail: The archive where the recordings grow: ``mainstem serve``, or the recorder's directory.
    """

    def __init__(self, shipped: Archive, tail: Archive) -> None:
        self.shipped, self.tail = shipped, tail
        # Threads fetch segments, but only one thread may use an archive at a time.
        self.lock = threading.RLock()
        # What was last read from a tier, by what it is.
        self._seen: dict[tuple[object, ...], Any] = {}
        self._shipped_ends: dict[int, int] = {}
        self._recorded: dict[int, int] = {}
        self._merged: list[RecordingDescriptor] = []
        self._is_same: bool | None = None

    @property
    def url(self) -> str:
        return self.shipped.url

    @property
    def archive_id(self) -> str:
        return self.shipped.archive_id

    @property
    def host(self) -> str:
        return self.shipped.host or self.tail.host

    @property
    def has_sessions(self) -> bool:
        return self.shipped.has_sessions and self.tail.has_sessions

    def refresh(self) -> None:
        """Like ``Archive.refresh``; an unreachable tier keeps its last known state."""
        with self.lock:
            self._shipped_ends.clear()
            for archive in (self.shipped, self.tail):
                try:
                    archive.refresh()
                except StoreError as error:
                    _log_unreachable(archive, error)

    def close(self) -> None:
        self.shipped.close()
        self.tail.close()

    # -- recordings --------------------------------------------------------------------------------------------------

    def recordings(self) -> list[RecordingDescriptor]:
        """Like ``Archive.recordings``: the recordings of both tiers, by id.

        Raises RecordingError if the tiers are not of the same archive.
        """
        with self.lock:
            in_store, _ = self._latest(self.shipped, self.shipped.recordings, "recordings")
            tails, is_current = self._latest(self.tail, self.tail.recordings, "recordings")
            if self._is_same is None and is_current:
                self._check_same()
        merged = {each.recording_id: each for each in in_store}
        for descriptor in tails:
            shipped = merged.get(descriptor.recording_id)
            if shipped is not None and shipped.identity != descriptor.identity:
                raise RecordingError(
                    f"recording {descriptor.recording_id} of {self.shipped.url} and of {self.tail.url} are not the same:"
                    " the tail is of another archive"
                )
            # An unreachable tail may have ended since, but not before what it is known to have: it was extended then.
            has_ended = (
                shipped is not None
                and descriptor.stop_position == NULL
                and shipped.stop_position >= self._recorded.get(descriptor.recording_id, 0)
            )
            if is_current or not has_ended:
                merged[descriptor.recording_id] = descriptor
        descriptors = [merged[key] for key in sorted(merged)]
        if descriptors != self._merged:  # otherwise return the same list, like an archive whose catalog has not changed
            self._merged = descriptors
        return self._merged

    def _latest(self, tier: Archive, read: Callable[[], T], *key: object) -> tuple[T, bool]:
        """Return what ``read`` returns, or has last returned if the tier is unreachable, and whether the tier was reachable."""
        key = ("tail" if tier is self.tail else "shipped", *key)
        try:
            found = self._seen[key] = read()
        except StoreError as error:
            if key not in self._seen:
                raise
            _log_unreachable(tier, error)
            return self._seen[key], False
        return found, True

    def _check_same(self) -> None:
        try:
            ids = self.shipped.archive_id, self.tail.archive_id
        except StoreError:
            return  # checked the next time
        # The id of an archive without an identity is its URL.
        if ids[0] != ids[1] and ids[0] != self.shipped.url and ids[1] != self.tail.url:
            raise RecordingError(
                f"{self.shipped.url} is archive {ids[0]} and {self.tail.url} is archive {ids[1]}: a tail is of the same archive"
            )
        self._is_same = True

    def shipped_end(self, descriptor: RecordingDescriptor) -> int:
        """Return the position before which the shipped part has everything except what retention removed; -1 if it has nothing."""
        key = descriptor.recording_id
        with self.lock:
            if key not in self._shipped_ends:
                self._shipped_ends[key], _ = self._latest(
                    self.shipped, lambda: self.shipped_end_now(descriptor), "end", key
                )
            return self._shipped_ends[key]

    def shipped_end_now(self, descriptor: RecordingDescriptor) -> int:
        """Like ``shipped_end``, but read again. Raises StoreError if the shipped part is unreachable."""
        in_store = self._seen["shipped", "recordings"] = self.shipped.recordings()
        shipped = next((each for each in in_store if each.recording_id == descriptor.recording_id), None)
        if shipped is None or shipped.identity != descriptor.identity:
            return NULL
        if shipped.stop_position != NULL:
            return shipped.stop_position
        index = self.shipped.index(shipped)
        if index is None:
            return NULL
        try:
            return index.recorded_position
        finally:
            index.close()

    def recorded(self, descriptor: RecordingDescriptor, position: int) -> int:
        """Return the highest known end of a recording, including ``position``. It never decreases."""
        with self.lock:
            known = max(self._recorded.get(descriptor.recording_id, 0), position)
            self._recorded[descriptor.recording_id] = known
            return known

    # -- segments ----------------------------------------------------------------------------------------------------

    def segments(self, descriptor: RecordingDescriptor) -> Mapping[int, int]:
        with self.lock:
            key = descriptor.recording_id
            shipped: Mapping[int, int] = {}
            if self.shipped_end(descriptor) != NULL:
                shipped, _ = self._latest(self.shipped, lambda: self.shipped.segments(descriptor), "segments", key)
            # The shipped part determines where the recording begins, so only the tail's segments can be unknown.
            if ("tail", "recordings") in self._seen:
                self._seen.setdefault(("tail", "segments", key), {})
            tail, _ = self._latest(self.tail, lambda: self.tail.segments(descriptor), "segments", key)
            return _Union(shipped, tail)

    def segment(self, descriptor: RecordingDescriptor, base: int) -> ArchiveSegment:
        """Like ``Archive.segment``. Each fetched range comes from one of the tiers."""
        tiers = _SegmentTiers(self, descriptor, base)
        return FetchedSegment(
            f"{self.url}/{segment_name(descriptor.recording_id, base)}",
            descriptor.segment_file_length,
            tiers.fetch,
            term_mask=descriptor.term_buffer_length - 1,
        )

    def recorded_positions(self, descriptors: Sequence[RecordingDescriptor]) -> list[int | None]:
        with self.lock:
            is_current = True
            try:
                tails = self.tail.recorded_positions(descriptors)
            except StoreError as error:
                is_current = False
                if any(self._recorded.get(each.recording_id) is None for each in descriptors):
                    raise
                _log_unreachable(self.tail, error)
                tails = [None] * len(descriptors)
            there = self._seen.get(("tail", "recordings"), ()) if is_current else ()
            # Only a walk finds the ends of these in the tail: Aeron Archive's directories do not have them.
            walked = {each.recording_id for each in there if each.stop_position == NULL}
            positions: list[int | None] = []
            for each, tail in zip(descriptors, tails, strict=True):
                end, key = self.shipped_end(each), each.recording_id
                is_unknown = tail is None and (key in walked or (end == NULL and key not in self._recorded))
                positions.append(None if is_unknown else self.recorded(each, max(tail or 0, end)))
            return positions

    def index(self, descriptor: RecordingDescriptor) -> RecordingIndex | None:
        with self.lock:
            shipped = None
            if self.shipped_end(descriptor) != NULL:
                try:
                    shipped = self.shipped.index(descriptor)
                except StoreError as error:
                    _log_unreachable(self.shipped, error)
            tail = self.tail.index(descriptor) if shipped is None else None
            if shipped is None and tail is None:
                return None
            return TieredIndex(self, descriptor, shipped, tail)


class _Union(Mapping[int, int]):
    """The segments of two tiers, ascending. Neither list is read completely."""

    def __init__(self, shipped: Mapping[int, int], tail: Mapping[int, int]) -> None:
        self._shipped, self._tail = shipped, tail

    def __iter__(self) -> Iterator[int]:
        last = None
        for base in heapq.merge(self._shipped, self._tail):
            if base != last:
                yield base
            last = base

    def __getitem__(self, base: int) -> int:
        lengths = [length for each in (self._shipped, self._tail) if (length := each.get(base)) is not None]
        if not lengths:
            raise KeyError(base)
        return max(lengths)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _SegmentTiers:
    """Selects the tier from which each range of one segment is read."""

    def __init__(self, archive: TieredArchive, descriptor: RecordingDescriptor, base: int) -> None:
        self._archive, self._descriptor, self._base = archive, descriptor, base
        self._segments: dict[int, ArchiveSegment] = {}

    def fetch(self, start: int, end: int) -> bytes:
        """Return the bytes of a range.

        Raises RecordingError if neither tier has them, and StoreError if the tier that may have them is unreachable.
        """
        archive, errors = self._archive, []
        is_shipped = self._base + end <= archive.shipped_end(self._descriptor)
        for tier in (archive.shipped, archive.tail) if is_shipped else (archive.tail,):
            try:
                return self._read(tier, start, end)
            except (RecordingError, StoreError) as error:
                errors.append(error)
        if not is_shipped:
            # It may have been shipped since the last listing. Only the shipped part can tell that it is lost.
            with archive.lock:
                archive.refresh()
                self._segments.pop(id(archive.shipped), None)
                shipped_end = archive.shipped_end_now(self._descriptor)
            if self._base + end <= shipped_end:
                return self._read(archive.shipped, start, end)
        raise next((error for error in errors if isinstance(error, StoreError)), errors[0])

    def _read(self, tier: Archive, start: int, end: int) -> bytes:
        with self._archive.lock:
            segment = self._segments.get(id(tier))
            if segment is None:
                segment = self._segments[id(tier)] = tier.segment(self._descriptor, self._base)
        return segment.read(start, end)


class TieredIndex(RecordingIndex):
    """The index of a recording: from the shipped part as far as that reaches, otherwise from the tail."""

    def __init__(
        self,
        archive: TieredArchive,
        descriptor: RecordingDescriptor,
        shipped: RecordingIndex | None,
        tail: RecordingIndex | None,
    ) -> None:
        self._archive, self._descriptor, self._shipped = archive, descriptor, shipped
        self._name = f"the index of recording {descriptor.recording_id} in {archive.url}"
        self._tail = tail
        self._has_tail = None if tail is None else True

    def _tail_index(self) -> RecordingIndex:
        """Return the tail's index, or the shipped part's if the tail has none. Raises StoreError if the tail is unreachable."""
        if self._has_tail is None:
            with self._archive.lock:
                self._tail = self._archive.tail.index(self._descriptor)
            self._has_tail = self._tail is not None
        index = self._tail or self._shipped
        assert index is not None, "one of the two has an index"
        return index

    def _of(self, position: int) -> RecordingIndex:
        if self._shipped is not None and position <= self._shipped.recorded_position:
            return self._shipped
        return self._tail_index()

    def refresh(self) -> None:
        """Like ``RecordingIndex.refresh``. Keeps the last known state while the tail is unreachable."""
        if self._shipped is not None:
            self._shipped.refresh()
        try:
            self._tail_index().refresh()
        except StoreError as error:
            if self._archive.recorded(self._descriptor, 0) == 0:
                raise
            _log_unreachable(self._archive.tail, error)

    @property
    def recorded_position(self) -> int:
        position = 0 if self._shipped is None else self._shipped.recorded_position
        try:
            position = max(position, self._tail_index().recorded_position)
        except StoreError:
            if self._archive.recorded(self._descriptor, 0) == 0:
                raise
        return self._archive.recorded(self._descriptor, position)

    @property
    def count(self) -> int:
        return self._tail_index().count

    def at_or_before(self, position: int) -> IndexEntry | None:
        return self._of(position).at_or_before(position)

    def after(self, position: int) -> IndexEntry | None:
        entry = self._shipped.after(position) if self._shipped is not None else None
        return entry or self._tail_index().after(position)

    def at_time(self, time_ns: int) -> IndexEntry | None:
        entry = self._shipped.at_time(time_ns) if self._shipped is not None else None
        return entry or self._tail_index().at_time(time_ns)

    def before_time(self, time_ns: int) -> IndexEntry | None:
        return self._tail_index().before_time(time_ns)

    def within(self, messages: int, position: int) -> IndexEntry | None:
        return self._of(position).within(messages, position)

    def around(self, start: int, end: int) -> list[IndexEntry]:
        return self._of(end).around(start, end)

    def times_around(self, start: int, end: int) -> tuple[memoryview, memoryview]:
        return self._of(end).times_around(start, end)

    def sessions_around(self, start: int, end: int) -> tuple[memoryview, memoryview]:
        return self._of(end).sessions_around(start, end)

    def at(self, index: int) -> IndexEntry:
        return self._tail_index().at(index)

    def close(self) -> None:
        for index in (self._shipped, self._tail):
            if index is not None:
                index.close()


def _log_unreachable(archive: Archive, error: Exception) -> None:
    text = f"{archive.url} is unreachable, reading from the other tier: {error}"
    log.log(logging.WARNING, archive.url, text, SYSTEM_CLOCK.monotonic_ns())
