"""Deletes local segments that are shipped, old enough, and not in use by a reader.

A reader holds a shared lock on each segment file that it has mapped (``segments.SegmentMemory``). Segments are deleted from the
oldest onwards. Each is locked exclusively, without waiting, and deletion stops at the first segment that is in use. So the segments
from which a replay reads exist, and so do all later ones. The last segment of a recording is never deleted, because the recorder
continues in it.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._internal.units import parse_duration_ns, parse_size
from mainstem.errors import ConfigurationError
from mainstem.recording.segments import segment_name, segments_of
from mainstem.recording.shipping.page_tree import between

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mainstem._internal.clock import Clock
    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.shipping.manifest import ShippedRecording
    from mainstem.recording.shipping.page_tree import Pages


@dataclass(frozen=True, slots=True)
class LocalRetention:
    """The data to keep in the directory: bytes written within ``age_ns``, or the newest ``nbytes``. One of the two is None."""

    age_ns: int | None = None
    nbytes: int | None = None

    @classmethod
    def parse(cls, text: str, *, name: str) -> LocalRetention:
        try:
            return cls(age_ns=parse_duration_ns(text, name=name, plain_unit=""))
        except ConfigurationError:
            pass
        try:
            return cls(nbytes=parse_size(text, name=name))
        except ConfigurationError:
            raise ConfigurationError(f"{name} must be an age (24h, 7d) or a size (100g, 512m), got {text!r}") from None


@dataclass(frozen=True, slots=True)
class _Segment:
    path: Path
    age_ns: int
    nbytes: int


class KnownTimes:
    """Times of the wall clock, compared with it when they are first seen, and from then on measured with the monotonic clock.

    So setting the wall clock neither ages nor rejuvenates what is known.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[tuple[object, int], int] = {}
        self._used: dict[tuple[object, int], int] = {}

    def since_ns(self, name: object, time_ns: int) -> int:
        """Return how long ago the time of something was; negative if it is in the future."""
        now_ns, key = self._clock.monotonic_ns(), (name, time_ns)
        known = self._known.get(key)
        if known is None:
            known = now_ns - (self._clock.epoch_ns() - time_ns)
        self._used[key] = known
        return now_ns - known

    def forget_others(self) -> None:
        """Forget the times that were not asked for since the last call."""
        self._known, self._used = self._used, {}


def delete_shipped(
    directory: Path,
    recordings: Iterable[tuple[RecordingDescriptor, ShippedRecording]],
    keep: LocalRetention,
    pages: Pages,
    times: KnownTimes,
) -> tuple[int, int]:
    """Delete the segments that are no longer to be kept. Return their number, and the bytes that they used on disk."""
    candidates: dict[int, list[_Segment]] = {}
    total = 0
    for descriptor, entry in recordings:
        segments = []
        all_shipped = True
        bases = segments_of(directory, descriptor)
        for base in bases:
            path = directory / segment_name(descriptor.recording_id, base)
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            total += status.st_blocks * 512
            all_shipped = all_shipped and base != bases[-1] and _is_shipped(descriptor, entry, base, pages)
            if all_shipped:
                age_ns = times.since_ns(path, status.st_mtime_ns)
                segments.append(_Segment(path, age_ns, status.st_blocks * 512))
        candidates[descriptor.recording_id] = segments
    times.forget_others()
    count = nbytes = 0
    # Delete the oldest of all recordings' first segments. If a reader uses it, skip that recording.
    while heads := {key: segments[0] for key, segments in candidates.items() if segments}:
        key = max(heads, key=lambda each: heads[each].age_ns)
        head = heads[key]
        is_old = keep.age_ns is not None and head.age_ns > keep.age_ns
        is_over = keep.nbytes is not None and total - nbytes > keep.nbytes
        if not is_old and not is_over:
            break
        if not _deleted(head.path):
            candidates[key] = []
            continue
        candidates[key].pop(0)
        count += 1
        nbytes += head.nbytes
    return count, nbytes


def _is_shipped(descriptor: RecordingDescriptor, entry: ShippedRecording, base: int, pages: Pages) -> bool:
    """Return whether each position of a segment is in the archive, or was removed from the archive by retention."""
    begin, end = max(base, descriptor.start_position), base + descriptor.segment_file_length
    if entry.descriptor.identity != descriptor.identity or end > entry.end:
        return False
    at = begin
    for chunk in between(entry.tree, begin, end, pages):
        if chunk.start > at and chunk.start > entry.start:
            return False
        at = chunk.end
    return at >= end or end <= entry.start


def _deleted(path: Path) -> bool:
    """Delete a segment unless a reader uses it. Return whether it no longer exists."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
