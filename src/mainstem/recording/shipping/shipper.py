"""Copies a recorder's recordings to a store, chunk by chunk, and commits them there.

Theory of operation
-------------------

One process ships a directory, on the recorder's host and without the recorder's lock. In each round it

1. reads the catalog and the end of each recording, and decides what is due: whole chunks, and the ends of segments and recordings,
   immediately; everything else after ``roll_after_ns``;
2. writes the names of the objects that it is about to put into a journal in the directory;
3. puts the objects, ``uploads`` at a time, and reads each back to compare it;
4. puts full pages, and then the next manifest, which commits the round;
5. clears the journal, and deletes local segments that ``keep`` no longer covers (``local_retention``).

The manifest is the only state: a new shipper continues at the ends that it names. A shipper first commits itself as the archive's
shipper. From then on no put of its predecessor can take effect, however late it arrives. So the objects that are named in the
journal, but not referred to by the manifest, can be deleted. A shipper that is killed before step 4 leaves unreferenced objects.
One that is killed after it leaves a journal whose names are all referenced.

The range ``[start, end)`` of a shipped recording contains each byte exactly once: each chunk begins where the previous one ended,
and a commit is refused if the archive's end differs. Data that was lost before it was shipped, because its segments were deleted,
is left out, logged and counted. If the shipped part differs from the directory, because the directory was restored from a backup or
was truncated by a power failure, shipping of that recording stops with an error that is logged and counted.

Memory use is bounded by twice the size of ``uploads`` chunks, even during an outage, because unshipped data stays on disk.
"""

from __future__ import annotations

import logging
import os
import platform
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.errors import RecordingError
from mainstem.recording.segments import segment_base, segment_name
from mainstem.recording.shipping.chunks import UNKNOWN, BlockSums, Chunk, put_verified
from mainstem.recording.shipping.layout import chunk_name, nonce
from mainstem.recording.shipping.local_recording import (
    Journal,
    LocalCatalog,
    ShipperLock,
    checksum_of,
    first_available,
    frames,
    identity_of,
    local_end,
    next_chunk,
    waited_ns,
)
from mainstem.recording.shipping.local_retention import KnownTimes, LocalRetention, delete_shipped
from mainstem.recording.shipping.manifest import (
    DEFAULT_GRACE_NS,
    CommitConflictError,
    Manifest,
    ManifestLog,
    ShippedRecording,
    Shipper,
    collect_garbage,
    tidied,
)
from mainstem.recording.shipping.page_tree import FANOUT, appended, between
from mainstem.recording.shipping.status import RecordingLag, ShippingStats, ShippingStatus
from mainstem.store.disk import DISK
from mainstem.store.threads import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstem._internal.clock import Clock
    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.shipping.local_recording import PlannedChunk
    from mainstem.store import Store
    from mainstem.store.disk import Disk

log = logging.getLogger("mainstem.recording")

DEFAULT_ROLL_AFTER_NS = 10 * NS_PER_SECOND
# Large enough that the cost of a request hardly matters, and small enough that a few chunks fit into the memory of a small machine.
DEFAULT_CHUNK_SIZE = 8 << 20
MIN_CHUNK_SIZE = 64 << 10
MAX_CHUNK_SIZE = 1 << 30
DEFAULT_UPLOADS = 4
# The maximum number of chunks per commit. It is limited so that readers soon see what was shipped.
CHUNKS_PER_COMMIT = 256
# Once the manifest itself has this many chunks over all recordings (800 kB), tails of ``SHORT_TAIL`` chunks move into pages too.
MAX_INLINE_CHUNKS = 4096
SHORT_TAIL = 16
# How long to wait before reading an unreadable recording again.
BLOCKED_NS = 10 * NS_PER_SECOND
KEEP_INTERVAL_NS = 10 * NS_PER_SECOND
WAIT_S = 0.05


@dataclass(frozen=True, kw_only=True)
class ShippingOptions:
    """How to ship a directory. ``bytes_per_second`` limits puts only; reading objects back to verify them comes on top."""

    roll_after_ns: int = DEFAULT_ROLL_AFTER_NS
    chunk_size: int = DEFAULT_CHUNK_SIZE
    uploads: int = DEFAULT_UPLOADS
    bytes_per_second: int | None = None
    keep: LocalRetention | None = None
    verify: bool = True


@dataclass(slots=True)
class Progress:
    """The share of one recording in a round: ``[begin, position)`` is planned or shipped, out of ``[begin, end)``."""

    descriptor: RecordingDescriptor
    begin: int
    end: int
    position: int
    rolls: bool
    is_boundary: bool = True
    has_index: bool = True
    chunks: list[Chunk | None] = field(default_factory=list)


class ArchiveShipper:
    """Ships one directory to one store.

    A round ends early once ``stops`` returns True. The retries of ``store`` are expected to end then too.

    Attributes:
        shipped: The entries of the last manifest, by recording id.
    """

    def __init__(
        self,
        directory: Path | str,
        store: Store,
        options: ShippingOptions,
        *,
        clock: Clock,
        counts: ShippingStats | None = None,
        stops: Callable[[], bool] = lambda: False,
        pause: Callable[[float], None],
        disk: Disk = DISK,
    ) -> None:
        self.directory = Path(directory)
        self.options = options
        self.counts = counts if counts is not None else ShippingStats()
        self._store, self._clock, self._stops, self._pause = store, clock, stops, pause
        self._lock = ShipperLock(self.directory)
        try:
            self.identity = identity_of(self.directory, disk)
        except BaseException:
            self._lock.close()
            raise
        self._me = Shipper(nonce(), platform.node(), os.getpid(), str(self.directory.resolve()))
        self._chain = ManifestLog(store, self.identity.id)
        self._journal = Journal(self.directory, store.url)
        self._catalog = LocalCatalog(self.directory)
        self._manifest: Manifest | None = None
        self.shipped: dict[int, ShippedRecording] = {}
        # The end of each recording when it was last looked at, and the monotonic time of that.
        self._ends: dict[int, tuple[int, int]] = {}
        self._settled: dict[int, RecordingDescriptor] = {}
        # The monotonic time since which each recording has had bytes that are not shipped.
        self._since: dict[int, int] = {}
        self._checked: set[int] = set()
        # The session of each recording whose last shipped chunk was compared.
        self._compared: dict[int, int] = {}
        self._blocked: dict[int, tuple[int, str]] = {}
        self._next_put_ns = self._kept_ns = self._rolled_ns = 0
        self._segment_times, self._grace_ends = KnownTimes(clock), KnownTimes(clock)

    def close(self) -> None:
        self._lock.close()

    # -- the archive -------------------------------------------------------------------------------------------------

    @property
    def manifest(self) -> Manifest:
        """The manifest as of the last commit. The first access commits this process as the archive's shipper."""
        if self._manifest is None:
            manifest = self._chain.commit(None, self._taken_over)
            self._journal.delete_unreferred(self._chain, manifest)
            self._adopt(manifest)
        assert self._manifest is not None
        return self._manifest

    def _taken_over(self, current: Manifest) -> Manifest:
        if current.shipper is not None and current.shipper.id != self._me.id:
            log.info("archive %s was shipped by %s before", self.identity.id, current.shipper)
        return current.following(self._clock.epoch_ns(), shipper=self._me, host=self.identity.host)

    def _adopt(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self.shipped = self._chain.recording_pages.all(manifest)

    # -- rounds ------------------------------------------------------------------------------------------------------

    def do_work(self, *, drains: bool = False) -> int:
        """Run one round: ship and commit what is due. Return the number of committed bytes.

        Raises CommitConflictError if another shipper has taken over the archive, and ShippingEnded if shipping ends while the store
        does not respond.
        """
        manifest = self.manifest
        due = self._due(drains=drains)
        committed = 0
        if due:
            self._ship(due)
            committed = self._commit(manifest, due)
        self._delete_shipped()
        self._collect_garbage()
        return committed

    def drain(self) -> None:
        """Ship everything recorded so far, or until ``stops`` returns True."""
        self._due(drains=True)
        ends = {key: end for key, (end, _) in self._ends.items()}
        while not self._stops() and any(
            self._position(key) < end and key not in self._blocked for key, end in ends.items()
        ):
            self.do_work(drains=True)
        if not self._stops():
            self.do_work(drains=True)

    def _position(self, recording_id: int) -> int:
        entry = self.shipped.get(recording_id)
        return entry.end if entry is not None else -1

    def _due(self, *, drains: bool) -> list[Progress]:
        """Return the recordings to ship now, beginning with those that have waited longest."""
        self.manifest  # noqa: B018 - what is shipped is known from here on
        due, now_ns = [], self._clock.monotonic_ns()
        # Roll twice per period: one commit then covers many slow recordings, and nothing waits longer than a period.
        rolls = drains or now_ns - self._rolled_ns >= self.options.roll_after_ns // 2
        for descriptor in self._catalog.recordings():
            key = descriptor.recording_id
            if self._settled.get(key) is descriptor:
                continue
            blocked_ns, _ = self._blocked.get(key, (0, ""))
            if blocked_ns > now_ns and not drains:
                continue
            try:
                progress = self._due_of(descriptor, drains=drains, rolls=rolls)
            except RecordingError as error:
                self._block(key, error)
                continue
            if progress is not None:
                due.append(progress)
        if rolls and due:
            self._rolled_ns = now_ns
        return sorted(due, key=lambda each: self._since.get(each.descriptor.recording_id, 0))

    def _due_of(self, descriptor: RecordingDescriptor, *, drains: bool, rolls: bool) -> Progress | None:
        key, now_ns = descriptor.recording_id, self._clock.monotonic_ns()
        entry = self.shipped.get(key)
        begin = entry.end if entry is not None else descriptor.start_position
        seen = self._ends.get(key)
        end = self._local_end(descriptor, begin)
        self._ends[key] = end, now_ns
        if entry is not None:
            self._check_identity(entry, descriptor)
        if end <= begin:
            if entry is not None and end < begin and key not in self._checked:
                self._checked.add(key)
                log.warning(
                    "recording %d of %s ends at %d and was shipped up to %d; shipping continues once it is longer",
                    key,
                    self.directory,
                    end,
                    begin,
                )
            self._since.pop(key, None)
            if entry is not None and entry.descriptor == descriptor:
                if descriptor.stop_position >= 0:
                    self._settled[key] = descriptor
                return None
            return Progress(descriptor, begin, begin, begin, rolls=True)
        # Before another session extends a recording, it can be truncated.
        session_id = descriptor.session_id
        if entry is not None and self._compared.get(key) != session_id:
            self._compare(entry, descriptor)
            self._compared[key] = session_id
        if key not in self._since:
            self._since[key] = self._waiting_since(descriptor, begin, seen, now_ns)
        stopped = descriptor.stop_position >= 0
        waited = rolls and now_ns - self._since[key] >= self.options.roll_after_ns // 2
        progress = Progress(descriptor, begin, end, begin, rolls=drains or stopped or waited)
        changed = entry is None or entry.descriptor != descriptor
        return progress if changed or progress.rolls or self._has_whole_chunk(progress) else None

    def _local_end(self, descriptor: RecordingDescriptor, shipped: int) -> int:
        known, _ = self._ends.get(descriptor.recording_id, (0, 0))
        return local_end(self.directory, descriptor, max(known, shipped))

    def _waiting_since(
        self, descriptor: RecordingDescriptor, position: int, seen: tuple[int, int] | None, now_ns: int
    ) -> int:
        """Return the monotonic time since which bytes after a position have existed.

        Only the wall clock relates the recorder's times to the present, and it can be set. What this process has ``seen`` limits
        the result: the bytes existed then, or they did not exist yet.
        """
        since_ns = now_ns - waited_ns(self.directory, descriptor, position, self._clock.epoch_ns())
        if seen is None:
            return since_ns
        end, seen_ns = seen
        return min(since_ns, seen_ns) if end > position else max(since_ns, seen_ns)

    def _has_whole_chunk(self, progress: Progress) -> bool:
        d, at = progress.descriptor, progress.position
        segment_end = segment_base(d, at) + d.segment_file_length
        return progress.end - at >= self.options.chunk_size or progress.end >= segment_end

    def _check_identity(self, entry: ShippedRecording, descriptor: RecordingDescriptor) -> None:
        """Raise RecordingError if the directory has another recording under the id of a shipped one."""
        if entry.descriptor.identity != descriptor.identity:
            raise RecordingError(
                f"recording {descriptor.recording_id} of {self.directory} is not the one that was shipped: start, stream, first"
                f" term id and term length were {entry.descriptor.identity} and are {descriptor.identity}"
            )

    def _compare(self, entry: ShippedRecording, descriptor: RecordingDescriptor) -> None:
        """Raise RecordingError if the last shipped chunk differs from the directory."""
        last = next(between(entry.tree, entry.end - 1, entry.end, self._chain.pages), None)
        if last is None:
            return
        name = segment_name(descriptor.recording_id, segment_base(descriptor, last.start))
        if not (self.directory / name).exists():
            return
        if checksum_of(self.directory, descriptor, last.start, last.end) != last.crc32:
            raise RecordingError(
                f"recording {descriptor.recording_id} of {self.directory} is not the one that was shipped: positions"
                f" {last.start} to {last.end} differ"
            )

    @property
    def blocked(self) -> list[str]:
        """Why recordings are not shipped any further: one sentence per recording."""
        return [text for _, (_, text) in sorted(self._blocked.items())]

    def _block(self, key: int, error: RecordingError) -> None:
        text = str(error)
        self.counts.failed(text)
        _, before = self._blocked.get(key, (0, ""))
        if text != before:
            log.error("%s; recording %d is not shipped any further until that changes", text, key)
        self._blocked[key] = (self._clock.monotonic_ns() + BLOCKED_NS, text)

    # -- chunks ------------------------------------------------------------------------------------------------------

    def _ship(self, due: Iterable[Progress]) -> None:
        """Put chunks of each recording in turn. All of them are stored when this returns."""
        queue, running = deque(due), deque[tuple[Progress, int, Call]]()
        begin_ns, count = self._clock.monotonic_ns(), 0
        while queue or running:
            while queue and len(running) < self.options.uploads:
                progress = queue.popleft()
                is_over = (
                    count >= CHUNKS_PER_COMMIT
                    or self._stops()
                    or (count and self._clock.monotonic_ns() - begin_ns >= self.options.roll_after_ns)
                )
                if is_over and progress.is_boundary:
                    continue
                chunk = self._next_chunk(progress)
                if chunk is not None:
                    count += 1
                    running.append(self._started(progress, chunk))
                    # A commit must end at a frame boundary. Until there is one, ship the next chunk of the same recording first.
                    queue.append(progress) if progress.is_boundary else queue.appendleft(progress)
            if running:
                progress, slot, call = running.popleft()
                while not call.wait(WAIT_S):
                    pass
                progress.chunks[slot] = call.result()

    def _next_chunk(self, progress: Progress) -> PlannedChunk | None:
        if progress.position >= progress.end or (
            progress.is_boundary and not progress.rolls and not self._has_whole_chunk(progress)
        ):
            return None
        d, at = progress.descriptor, progress.position
        try:
            if not (self.directory / segment_name(d.recording_id, segment_base(d, at))).exists():
                available = min(first_available(self.directory, d, at), progress.end)
                log.warning(
                    "recording %d: positions %d to %d were deleted before they were shipped",
                    d.recording_id,
                    at,
                    available,
                )
                self.counts.add(lost_bytes=available - at)
                progress.position = at = available
                if at >= progress.end:
                    return None
            chunk = next_chunk(self.directory, d, at, progress.end, self.options.chunk_size, self._clock.epoch_ns())
        except RecordingError as error:
            self._block(d.recording_id, error)
            return None
        progress.position, progress.is_boundary, progress.has_index = chunk.end, chunk.is_boundary, chunk.has_index
        return chunk

    def _started(self, progress: Progress, chunk: PlannedChunk) -> tuple[Progress, int, Call]:
        nbytes = chunk.end - chunk.start + len(chunk.index)
        self._pace(nbytes)
        name = chunk_name(progress.descriptor.recording_id, chunk.start, chunk.end)
        self._journal.add(name)
        slot = len(progress.chunks)
        progress.chunks.append(None)
        return progress, slot, Call(self._uploaded, progress.descriptor, chunk, name)

    def _pace(self, nbytes: int) -> None:
        if self.options.bytes_per_second is None:
            return
        now_ns = self._clock.monotonic_ns()
        while self._next_put_ns > now_ns and not self._stops():
            self._pause(min((self._next_put_ns - now_ns) / NS_PER_SECOND, WAIT_S))
            now_ns = self._clock.monotonic_ns()
        self._next_put_ns = max(self._next_put_ns, now_ns) + nbytes * NS_PER_SECOND // self.options.bytes_per_second

    def _uploaded(self, descriptor: RecordingDescriptor, chunk: PlannedChunk, name: str) -> Chunk | None:
        """Put a chunk; runs in a thread of its own. Return None if the segment cannot be read."""
        try:
            data = frames(self.directory, descriptor, chunk.start, chunk.end) + chunk.index
        except RecordingError as error:
            self._block(descriptor.recording_id, error)
            return None
        checksum, whole, sums = crc32(data), f"{self.identity.id}/{name}", BlockSums()
        sums.add(data)
        table = sums.table()
        data += table
        if self.options.verify:
            self.counts.add(bytes_verified=put_verified(self._store, whole, data))
        else:
            self._store.put(whole, data)
        self.counts.add(objects=1, bytes_shipped=len(data))
        return Chunk(
            start=chunk.start,
            end=chunk.end,
            name=name,
            crc32=checksum,
            first_entry=0,
            entries=len(chunk.index) // 32,
            before=chunk.before,
            messages=chunk.messages,
            first_ns=chunk.first_ns,
            last_ns=chunk.last_ns,
            checksums=crc32(table) if table else UNKNOWN,
        )

    # -- commits -----------------------------------------------------------------------------------------------------

    def _commit(self, base: Manifest, due: list[Progress]) -> int:
        ready = {each.descriptor.recording_id: each for each in due if self._is_change(each)}
        if not ready:
            return 0

        def change(current: Manifest) -> Manifest:
            self._chain.pages.discard()
            if current.shipper is None or current.shipper.id != self._me.id:
                raise CommitConflictError(
                    f"{self._store.url}: archive {self.identity.id} belongs to {current.shipper} now; this is {self._me}"
                )
            everything = self._chain.recording_pages.all(current)
            recordings = dict(current.recordings)
            inline = sum(len(entry.tree.tail) for entry in recordings.values())
            most = FANOUT if inline < MAX_INLINE_CHUNKS else SHORT_TAIL
            for key, progress in ready.items():
                recordings[key] = self._grown(everything.get(key), progress, most)
            following = current.following(self._clock.epoch_ns(), recordings=recordings)
            return tidied(self._chain, following, self._clock.epoch_ns() + DEFAULT_GRACE_NS)

        self._adopt(self._chain.commit(base, change))
        self._chain.pages.written.clear()
        self._journal.clear()
        self.counts.add(commits=1)
        for key in ready:
            self._since.pop(key, None)
            self._blocked.pop(key, None)
        return sum(each.position - each.begin for each in ready.values())

    def _is_change(self, progress: Progress) -> bool:
        """Return whether a round has something to commit. Drops the first unreadable chunk and all chunks after it."""
        chunks = progress.chunks
        if None in chunks:
            del chunks[chunks.index(None) :]
            progress.position, progress.is_boundary = chunks[-1].end if chunks else progress.begin, True  # type: ignore[union-attr]
        if not progress.is_boundary:
            return False
        entry = self.shipped.get(progress.descriptor.recording_id)
        return bool(chunks) or entry is None or entry.descriptor != progress.descriptor

    def _grown(self, entry: ShippedRecording | None, progress: Progress, most: int) -> ShippedRecording:
        d, chunks = progress.descriptor, [chunk for chunk in progress.chunks if chunk is not None]
        start = chunks[0].start if chunks else progress.begin
        if entry is None:
            entry = ShippedRecording(d, start, progress.begin)
        if entry.end != progress.begin:
            raise CommitConflictError(
                f"{self._store.url}: recording {d.recording_id} of archive {self.identity.id} ends at {entry.end}, not at"
                f" {progress.begin}"
            )
        if not chunks:
            return replace(entry, descriptor=d)
        # Number the index entries as they are in the store, without those that were lost.
        last, entries = chunks[-1], entry.entries
        for i, chunk in enumerate(chunks):
            chunks[i] = replace(chunk, first_entry=entries)
            entries += chunk.entries
        return replace(
            entry,
            descriptor=d,
            end=progress.position,
            tree=appended(entry.tree, d.recording_id, chunks, self._chain.pages, most),
            messages=last.before + last.messages,
            entries=entries,
            has_index=entry.has_index and progress.has_index,
            recorded_ns=last.last_ns,
        )

    # -- around ------------------------------------------------------------------------------------------------------

    def _delete_shipped(self) -> None:
        keep, now_ns = self.options.keep, self._clock.monotonic_ns()
        if keep is None or now_ns < self._kept_ns:
            return
        self._kept_ns = now_ns + KEEP_INTERVAL_NS
        catalog = self._catalog.recordings()
        present = [(d, self.shipped[d.recording_id]) for d in catalog if d.recording_id in self.shipped]
        if not present or not self._is_still_mine():
            return
        count, nbytes = delete_shipped(self.directory, present, keep, self._chain.pages, self._segment_times)
        self.counts.add(segments_deleted=count, bytes_deleted=nbytes)

    def _collect_garbage(self) -> None:
        """Delete the objects that retention and compaction have removed from the archive, once their grace period is over."""
        over = [ref for ref in self.manifest.garbage if self._grace_ends.since_ns(ref.name, ref.after_ns) >= 0]
        self._grace_ends.forget_others()
        if over:
            manifest, _ = collect_garbage(self._chain, self._clock.epoch_ns(), self.manifest, over)
            if manifest is not None:
                self._adopt(manifest)

    def _is_still_mine(self) -> bool:
        """Return whether the archive still belongs to this shipper, and so has everything it committed.

        This is checked before anything is deleted locally.
        """
        latest = self._chain.latest(probe=True)
        return latest is not None and latest.shipper is not None and latest.shipper.id == self._me.id

    def status(self) -> ShippingStatus:
        """Return how far each recording that is growing or not completely shipped has been shipped. Other threads may call this."""
        now_ns = self._clock.monotonic_ns()
        lags = []
        for d in self._catalog.recordings():
            if self._settled.get(d.recording_id) is d:
                continue
            entry, seen = self.shipped.get(d.recording_id), self._ends.get(d.recording_id)
            shipped = entry.end if entry is not None else d.start_position
            recorded = self._local_end(d, shipped)
            since = self._since.get(d.recording_id)
            if since is None:
                since = self._waiting_since(d, shipped, seen, now_ns) if recorded > shipped else now_ns
            # The shipping thread may just have stored a later time.
            seconds = max(now_ns - since, 0) / NS_PER_SECOND
            lags.append(RecordingLag(d.recording_id, d.stream_id, d.session_id, recorded, shipped, seconds))
        number = self._manifest.number if self._manifest is not None else 0
        since_ns = self.counts.failing_since_ns
        failing = 0.0 if since_ns is None else max(now_ns - since_ns, 0) / NS_PER_SECOND
        return ShippingStatus(self.identity.id, self.identity.host, self._store.url, number, self.counts, lags, failing)
