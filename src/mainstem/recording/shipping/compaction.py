"""Compaction: merges a segment's chunks into one object, and deletes objects that no manifest refers to.

Only complete segments are compacted. The chunks are downloaded into a local temporary file, so memory use stays constant, and are
verified. The merged object is uploaded and read back, and a manifest that refers to it is committed. The replaced objects stay for
a grace period (``garbage`` in the manifest). A shipper can keep running during a compaction.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.errors import RecordingError
from mainstem.recording.segments import segment_base
from mainstem.recording.shipping.chunks import UNKNOWN, BlockSums, Chunk, put_verified, stored_ranges
from mainstem.recording.shipping.layout import chunk_name
from mainstem.recording.shipping.manifest import (
    DEFAULT_GRACE_NS,
    Manifest,
    ManifestLog,
    ShippedRecording,
    garbage_names,
    listed,
)
from mainstem.recording.shipping.page_tree import Pages, between, spliced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mainstem.store import Store

# Each commit covers this many segments and rewrites their pages. A run that is killed loses at most the segments that it has not
# committed yet.
SEGMENTS_PER_COMMIT = 16
# A shipper puts an object before it commits the manifest that refers to it, so a new object can be unreferenced for some minutes.
# Only objects that are older than this are deleted as orphans.
MIN_ORPHAN_AGE_NS = 24 * 3600 * NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Compacted:
    """How many chunks were replaced by how many objects, and the size of the chunks in bytes."""

    chunks: int = 0
    objects: int = 0
    nbytes: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(self.chunks + other.chunks, self.objects + other.objects, self.nbytes + other.nbytes)


def compact(
    store: Store,
    archive_id: str,
    now_ns: Callable[[], int],
    *,
    grace_ns: int = DEFAULT_GRACE_NS,
    stops: Callable[[], bool] = lambda: False,
) -> Compacted:
    """Merge the chunks of each complete segment into one object, and return what was replaced.

    The merged objects are committed in batches. If ``stops`` returns True, no further segment is started, and those merged so far
    are committed. Replaced objects can be deleted ``grace_ns`` after the commit, so queries that still read an older manifest must
    end within that time. ``now_ns`` returns the present time (epoch). Compacting again is safe: a segment that has only one chunk
    is skipped, and objects that a killed run left behind are deleted by ``remove_orphans``.

    Raises RecordingError if a chunk, a page or the manifest is missing or corrupt, CommitConflictError if other writers win every
    attempt to commit, and StoreError if the store fails.
    """
    chain, done = ManifestLog(store, archive_id), Compacted()
    manifest = chain.latest(probe=True)
    if manifest is None:
        return done
    batch: list[tuple[int, list[Chunk], Chunk]] = []

    def commit() -> None:
        nonlocal done
        done += _replace(chain, batch, now_ns() + grace_ns, now_ns())
        batch.clear()

    entries = chain.recording_pages.all(manifest).items()
    for key, group in ((key, group) for key, entry in entries for group in _groups(entry, chain.pages)):
        if stops():
            break
        batch.append((key, group, _merged(store, archive_id, key, group)))
        if len(batch) == SEGMENTS_PER_COMMIT:
            commit()
    if batch:
        commit()
    return done


def _groups(entry: ShippedRecording, pages: Pages) -> Iterator[list[Chunk]]:
    """Yield the chunks of each complete segment that has more than one."""
    d = entry.descriptor
    for base, group in groupby(
        between(entry.tree, entry.start, entry.end, pages), lambda chunk: segment_base(d, chunk.start)
    ):
        chunks = list(group)
        is_closed = entry.is_complete or chunks[-1].end == base + d.segment_file_length
        touches = all(a.end == b.start for a, b in pairwise(chunks))
        if len(chunks) > 1 and is_closed and touches:
            yield chunks


def _merged(store: Store, archive_id: str, recording_id: int, chunks: Sequence[Chunk]) -> Chunk:
    """Put one object with the contents of the chunks, and return its chunk."""
    first, last = chunks[0], chunks[-1]
    checksum, index, sums = 0, b"", BlockSums()
    with tempfile.NamedTemporaryFile(prefix="mainstem-compact-") as file:
        for chunk in chunks:
            name, sum_of_chunk, end = f"{archive_id}/{chunk.name}", 0, 0
            try:
                for start, data in stored_ranges(store, name, chunk.nbytes):
                    sum_of_chunk, end = crc32(data, sum_of_chunk), start + len(data)
                    of_frames = data[: max(chunk.length - start, 0)]
                    index += data[len(of_frames) :]
                    checksum = crc32(of_frames, checksum)
                    sums.add(of_frames)
                    file.write(of_frames)
            except FileNotFoundError:
                raise RecordingError(f"{store.url}: {name} is missing") from None
            if end < chunk.nbytes:
                raise RecordingError(f"{store.url}: {name} has {end} bytes, not {chunk.nbytes}")
            if sum_of_chunk != chunk.crc32:
                raise RecordingError(f"{store.url}: {name} is corrupt: its checksum differs")
        sums.add(index)
        table = sums.table()
        checksum = crc32(index, checksum)
        file.write(index + table)
        file.flush()
        merged = Chunk(
            start=first.start,
            end=last.end,
            name=chunk_name(recording_id, first.start, last.end),
            crc32=checksum,
            first_entry=first.first_entry,
            entries=sum(chunk.entries for chunk in chunks),
            before=first.before,
            messages=sum(chunk.messages for chunk in chunks),
            first_ns=first.first_ns,
            last_ns=last.last_ns,
            checksums=crc32(table) if table else UNKNOWN,
        )
        put_verified(store, f"{archive_id}/{merged.name}", Path(file.name), crc32(table, checksum))
    return merged


def _replace(
    chain: ManifestLog, batch: Sequence[tuple[int, list[Chunk], Chunk]], after_ns: int, now_ns: int
) -> Compacted:
    """Commit the merged chunks, and return what was replaced.

    A merged chunk whose segment another process has changed is not used, and is deleted.
    """
    pages = chain.pages
    unused: list[str] = []
    done = Compacted()

    def change(current: Manifest) -> Manifest | None:
        nonlocal done
        done = Compacted()
        unused.clear()
        pages.discard()
        recordings, names = dict(current.recordings), list[str]()
        everything = chain.recording_pages.all(current)
        for key, group, merged in batch:
            entry = recordings.get(key) or everything.get(key)
            present = list(between(entry.tree, merged.start, merged.end, pages)) if entry is not None else []
            if entry is None or present != group:
                # Another process has removed or compacted the segment.
                unused.append(merged.name)
                continue
            splice = spliced(entry.tree, key, merged.start, merged.end, [merged], pages)
            recordings[key] = replace(entry, tree=splice.tree)
            names += [*splice.pages, *(chunk.name for chunk in splice.chunks)]
            done += Compacted(len(splice.chunks), 1, sum(chunk.nbytes for chunk in splice.chunks))
        if not done.objects:
            return None
        # If this change has written a page and then replaced it, no manifest has ever referred to that page.
        fresh = set(pages.written)
        unused.extend(name for name in names if name in fresh)
        names = [name for name in names if name not in fresh]
        refs = listed(chain, names, after_ns, current.number + 1)
        return replace(current.following(now_ns), recordings=recordings, garbage=(*current.garbage, *refs))

    chain.commit(None, change)
    pages.written.clear()
    for name in unused:
        chain.store.delete(f"{chain.archive_id}/{name}")
    return done


def referred(chain: ManifestLog, manifest: Manifest) -> Iterator[str]:
    """Yield the names of all objects that a manifest refers to, including its garbage lists but not the objects named in them.

    Reads every page.
    """
    yield from (ref.name for ref in manifest.pages)
    yield from (ref.name for ref in manifest.garbage)

    def of(items: Sequence[object]) -> Iterator[str]:
        for item in items:
            yield item.name  # type: ignore[attr-defined]
            if not isinstance(item, Chunk):
                yield from of(chain.pages.read(item))  # type: ignore[arg-type]

    for entry in chain.recording_pages.all(manifest).values():
        yield from of(entry.tree.items)


def remove_orphans(store: Store, archive_id: str, now_ns: int, *, age_ns: int = MIN_ORPHAN_AGE_NS) -> int:
    """Delete unreferenced objects that killed processes have left behind, and return their number.

    Only objects that are at least ``age_ns`` old are deleted. Raises RecordingError if the manifest or a page cannot be read.
    """
    # List the objects before reading the manifest: objects that are committed in between are then referenced.
    candidates = {
        file.name.removeprefix(f"{archive_id}/")
        for file in store.list(f"{archive_id}/")
        if file.modified_ns is not None
        and now_ns - file.modified_ns >= age_ns
        and not file.name.startswith(f"{archive_id}/manifests/")
    }
    chain = ManifestLog(store, archive_id)
    manifest = chain.latest(probe=True)
    if manifest is None:
        return 0
    candidates.difference_update(referred(chain, manifest))
    for ref in manifest.garbage:
        candidates.difference_update(garbage_names(chain, ref))
    for name in candidates:
        store.delete(f"{archive_id}/{name}")
    return len(candidates)
