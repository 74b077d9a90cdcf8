"""Retention of shipped data: removes whole segments from the beginning of a recording, by time or up to a query's position.

Theory of operation. Each recording has a limit. A limit by time is the end of the last segment whose frames were all recorded
before that time. A limit by query is the position that the query's checkpoint has committed. If there are several, the lowest one
applies. Only whole segments are removed, so the remaining part begins between two messages, and readers of the directory and of the
store see the same data. The current segment of a growing recording stays.

A removal first commits a manifest without the segments, which lists their objects as ``garbage``. The objects are deleted later,
when no reader can still use an older manifest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mainstem.recording.identity import is_stored_identity
from mainstem.recording.segments import first_segment_base, segment_base
from mainstem.recording.shipping.chunks import UNKNOWN, Chunk
from mainstem.recording.shipping.manifest import (
    DEFAULT_GRACE_NS,
    Manifest,
    ManifestLog,
    ShippedRecording,
    listed,
    tidied,
)
from mainstem.recording.shipping.page_tree import Item, Pages, spliced

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainstem.store import Store

# A function that returns the position before which a recording's data may be removed.
Limit = Callable[[ShippedRecording, Pages], int]


@dataclass(frozen=True, slots=True)
class Removed:
    recording_id: int
    start: int
    end: int
    objects: int
    nbytes: int


def before_time(time_ns: int) -> Limit:
    """Return a limit by time: data recorded before epoch ``time_ns`` may be removed.

    If the times of a recording are unknown, none of its data may be removed.
    """

    def end_of(items: Sequence[Item], pages: Pages, end: int) -> int:
        for item in items:
            if UNKNOWN < item.last_ns < time_ns:
                end = item.end
                continue
            # Times increase with positions, so no later item is older.
            return end if isinstance(item, Chunk) else end_of(pages.read(item), pages, end)
        return end

    return lambda entry, pages: end_of(entry.tree.items, pages, entry.start)


@dataclass(frozen=True, slots=True)
class ConsumedPosition:
    """The position up to which a query has read a recording.

    ``identity`` is the stored identity of the recording or, for an ended recording, its CRC-32, which is all that an offset keeps.
    """

    recording_id: int
    identity: str | int
    position: int
    archive_id: str | None = None


def before_committed(archive_id: str, committed: Iterable[ConsumedPosition]) -> Limit:
    """Return a limit at the positions that queries have committed. Recordings that no query has started are kept completely."""
    positions: dict[int, dict[str | int, int]] = {}
    for each in committed:
        if each.archive_id in (None, archive_id):
            of_id = positions.setdefault(each.recording_id, {})
            of_id[each.identity] = min(each.position, of_id.get(each.identity, each.position))

    def limit(entry: ShippedRecording, _: Pages) -> int:
        of_id = positions.get(entry.descriptor.recording_id, {})
        mine = (at for stored, at in of_id.items() if is_stored_identity(stored, entry.descriptor))
        return min(mine, default=entry.start)

    return limit


def lowest(limits: Sequence[Limit]) -> Limit:
    """Return the lowest of several limits."""
    return lambda entry, pages: min(limit(entry, pages) for limit in limits)


def removable(entry: ShippedRecording, limit: int) -> int:
    """Return the end of the last whole segment before a limit.

    A value of at most ``entry.start`` means that nothing can be removed.
    """
    d = entry.descriptor
    if entry.is_complete and limit >= entry.end:
        return entry.end
    limit = min(limit, entry.end)
    if limit <= first_segment_base(d):
        return entry.start
    # The segment that contains the last byte of a growing recording stays, even if it is full.
    return min(segment_base(d, limit), segment_base(d, max(entry.end - 1, 0)))


def remove(
    store: Store,
    archive_id: str,
    limit: Limit,
    now_ns: int,
    *,
    grace_ns: int = DEFAULT_GRACE_NS,
) -> list[Removed]:
    """Remove the data before a limit from an archive, and return what was removed from each recording.

    The removed objects can be deleted ``grace_ns`` later. Raises RecordingError if a page or the manifest is missing or corrupt,
    and CommitConflictError if other writers win every attempt to commit.
    """
    chain = ManifestLog(store, archive_id)
    pages = chain.pages
    removed: list[Removed] = []

    def change(current: Manifest) -> Manifest | None:
        removed.clear()
        pages.discard()
        recordings, names = dict(current.recordings), list[str]()
        for key, entry in chain.recording_pages.all(current).items():
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
        refs = listed(chain, names, now_ns + grace_ns, current.number + 1)
        following = replace(current.following(now_ns), recordings=recordings, garbage=(*current.garbage, *refs))
        return tidied(chain, following, now_ns + grace_ns)

    chain.commit(None, change)
    return removed
