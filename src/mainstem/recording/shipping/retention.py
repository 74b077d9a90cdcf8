"""Retention of shipped data: removes whole segments from a recording's beginning, by time or up to a query's position.

Theory of operation. Each recording has a limit: by time, the end of the last segment whose frames were all recorded before; by
a query, the position that its checkpoint has committed. The lower one counts. Segments are removed as a whole, so that the rest
begins between two messages and readers of a directory and a store see the same. A growing recording's current segment stays.

First comes the manifest without the segments, with the list of their objects (``garbage``). The objects are deleted later, when
no reader of an older manifest can use them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zlib import crc32

from mainstem.recording.segments import first_segment_base, segment_base
from mainstem.recording.shipping.chunks import UNKNOWN, Chunk
from mainstem.recording.shipping.manifest import (
    DEFAULT_GRACE_NS,
    Manifest,
    ManifestLog,
    RecordingPages,
    ShippedRecording,
    listed,
    tidied,
)
from mainstem.recording.shipping.page_tree import Item, Pages, spliced

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainstem.store import Store

# The position before which everything of a recording may go.
Limit = Callable[[ShippedRecording, Pages], int]


@dataclass(frozen=True, slots=True)
class Removed:
    recording_id: int
    start: int
    end: int
    objects: int
    nbytes: int


def before_time(time_ns: int) -> Limit:
    """A limit by time: everything before it was recorded before epoch ``time_ns``. Recordings without times have none."""

    def end_of(items: Sequence[Item], pages: Pages, end: int) -> int:
        for item in items:
            if UNKNOWN < item.last_ns < time_ns:
                end = item.end
                continue
            # Times grow with positions: no later item is older.
            return end if isinstance(item, Chunk) else end_of(pages.read(item), pages, end)
        return end

    return lambda entry, pages: end_of(entry.tree.items, pages, entry.start)


@dataclass(frozen=True, slots=True)
class ConsumedPosition:
    """How far a query has read a recording.

    ``identity`` is the descriptor's, or its CRC-32, which is what an offset keeps of an ended recording.
    """

    recording_id: int
    identity: str | int
    position: int
    archive_id: str | None = None


def before_committed(archive_id: str, committed: Iterable[ConsumedPosition]) -> Limit:
    """A limit by a query's committed positions; nothing of a recording that it has not started may be removed."""
    positions: dict[tuple[int, str | int], int] = {}
    for each in committed:
        if each.archive_id in (None, archive_id):
            key = (each.recording_id, each.identity)
            positions[key] = min(each.position, positions.get(key, each.position))

    def limit(entry: ShippedRecording, _: Pages) -> int:
        d = entry.descriptor
        keys = [(d.recording_id, d.identity), (d.recording_id, crc32(d.identity.encode()))]
        return min((positions[key] for key in keys if key in positions), default=entry.start)

    return limit


def lowest(limits: Sequence[Limit]) -> Limit:
    """The limit that all of these allow."""
    return lambda entry, pages: min(limit(entry, pages) for limit in limits)


def removable(entry: ShippedRecording, limit: int) -> int:
    """The end of the last whole segment that a limit allows to remove; at most ``entry.start`` if none."""
    d = entry.descriptor
    if entry.is_complete and limit >= entry.end:
        return entry.end
    limit = min(limit, entry.end)
    if limit <= first_segment_base(d):
        return entry.start
    # The segment with the last byte of a growing recording stays, whole as it may be.
    return min(segment_base(d, limit), segment_base(d, max(entry.end - 1, 0)))


def remove(
    store: Store,
    archive_id: str,
    limit: Limit,
    now_ns: int,
    *,
    grace_ns: int = DEFAULT_GRACE_NS,
) -> list[Removed]:
    """Remove everything before a limit from an archive. Raises RecordingError and CommitConflictError."""
    chain, recording_pages, pages = (
        ManifestLog(store, archive_id),
        RecordingPages(store, archive_id),
        Pages(store, archive_id),
    )
    removed: list[Removed] = []

    def change(current: Manifest) -> Manifest | None:
        removed.clear()
        while pages.written:
            store.delete(f"{archive_id}/{pages.written.pop()}")
        recordings, names = dict(current.recordings), list[str]()
        for key, entry in recording_pages.all(current).items():
            end = removable(entry, limit(entry, pages))
            if end <= entry.start:
                continue
            splice = spliced(entry.tree, key, 0, end, (), pages)
            recordings[key] = replace(entry, start=end, tree=splice.tree)
            names += [*splice.pages, *(chunk.name for chunk in splice.chunks)]
            nbytes = sum(chunk.nbytes for chunk in splice.chunks)
            removed.append(Removed(key, entry.start, end, len(splice.chunks), nbytes))
        if not removed:
            return None
        refs = listed(store, archive_id, names, now_ns + grace_ns, current.number + 1)
        following = replace(current.following(now_ns), recordings=recordings, garbage=(*current.garbage, *refs))
        return tidied(store, recording_pages, following, now_ns + grace_ns)

    chain.commit(None, change)
    return removed
