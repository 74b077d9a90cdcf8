"""Measures how far a streaming query is behind the recordings it reads, in bytes and in seconds.

A Python source cannot add its own metrics to Spark's progress, which contains only offsets. So these functions take the offsets
from the progress and read everything else from the recordings.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK, Clock
from mainstem.errors import ConfigurationError
from mainstem.recording import RecordingReader
from mainstem.recording.catalog import NULL
from mainstem.spark.sources.archives import ArchiveSet
from mainstem.spark.sources.offsets import Offset, parse_offset, present_keys
from mainstem.spark.sources.options import source_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql.streaming import StreamingQuery

    from mainstem.recording import RecordingDescriptor
    from mainstem.spark.sources.archives import OpenArchive
    from mainstem.spark.sources.offsets import ArchiveOffset
    from mainstem.spark.sources.options import RecordingOptions


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a query behind one recording.

    ``seconds`` is the age of the first unread message, to within about 100 ms. It is 0 if everything is read, and None if the
    recording has no times. ``archive`` is the id of the recording's archive, or its URL if it has no id, as in the column
    ``archive``.
    """

    recording_id: int
    position: int
    recorded_position: int
    seconds: float | None
    archive: str = ""

    @property
    def bytes(self) -> int:
        """Unread bytes of the stream, frame headers included."""
        return max(self.recorded_position - self.position, 0)


def lag(query: StreamingQuery, path: Path | str | Sequence[Path | str], **options: Any) -> list[Lag]:
    """Measure how far a streaming query is behind the recordings that it reads.

    Args:
        query: A query over ``mainstem.recording``. Its other sources are ignored.
        path: The location of the recordings, as given to the source: a directory, a URL, a pattern, or a list of them.
        **options: Options of ``mainstem.recording``. Only ``tail`` and the store's options have an effect here.

    Returns:
        A ``mainstem.spark.lags.Lag`` for each recording in the last micro-batch. Empty before the first micro-batch.

    Raises:
        ConfigurationError: An option does not exist or has an invalid value.
        StoreError: The store cannot be read.

    Example:
        >>> max(each.bytes for each in lag(query, "/data/recordings"))
        0
    """
    progress = query.lastProgress
    return lags_of(progress["sources"] if progress else [], source_options(path, options))


def lags_of(sources: Iterable[Any], options: RecordingOptions, clock: Clock = SYSTEM_CLOCK) -> list[Lag]:
    """Return the lags after a micro-batch, given the progress of its sources."""
    offset = Offset()
    for source in sources:
        offset.archives.update(_offsets(source["endOffset"]).archives)
    if not offset.archives:
        return []
    archives = ArchiveSet(options)
    try:
        there = archives.refresh()
        keys = present_keys(offset, {key: opened.url for key, opened in there.items()})
        return [lag for key, now in keys.items() for lag in _lags_in(there[now], offset.archives[key], clock)]
    finally:
        archives.close()


def _lags_in(opened: OpenArchive, offset: ArchiveOffset, clock: Clock) -> list[Lag]:
    positions = offset.all_positions
    same = [each for each in opened.descriptors if each.recording_id in positions and offset.is_of(each)]
    growing = [each for each in same if each.stop_position == NULL]
    ends = dict(zip((each.recording_id for each in growing), opened.archive.recorded_positions(growing), strict=True))
    return [_lag(opened, each, positions[each.recording_id], ends.get(each.recording_id), clock) for each in same]


def _offsets(text: Any) -> Offset:
    try:
        offset = json.loads(text) if isinstance(text, str) else text
        return parse_offset({key: value for key, value in offset.items() if key != "run"})
    except (AttributeError, KeyError, TypeError, ValueError, ConfigurationError):
        return Offset()


def _lag(opened: OpenArchive, descriptor: RecordingDescriptor, position: int, end: int | None, clock: Clock) -> Lag:
    # Do not open a recording that is fully read: out of ten thousand, most have ended.
    if descriptor.stop_position != NULL:
        end = descriptor.stop_position
    key, seconds = opened.key, None
    if end is not None and position >= end:
        return Lag(descriptor.recording_id, position, end, 0.0, key)
    with RecordingReader(opened.archive, descriptor) as reader:
        end = reader.end_position()
        if position >= end:
            seconds = 0.0
        elif reader.index is not None and (entry := reader.index.at_or_before(position)) is not None:
            seconds = max(clock.epoch_ns() - entry.time_ns, 0) / NS_PER_SECOND
    return Lag(descriptor.recording_id, position, end, seconds, key)


class LagListener(StreamingQueryListener):
    """A listener that calls ``report(query id, lags)`` after every micro-batch.

    Add it with ``spark.streams.addListener(LagListener(path, report))``.

    ``path`` and ``options`` are those of the source, as in ``lag``.
    """

    def __init__(
        self,
        path: Path | str | Sequence[Path | str],
        report: Callable[[str, list[Lag]], object],
        options: Mapping[str, object] | None = None,
    ) -> None:
        self._options, self._report = source_options(path, options), report

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        sources = [{"endOffset": source.endOffset} for source in progress.sources]
        self._report(str(progress.id), lags_of(sources, self._options))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass
