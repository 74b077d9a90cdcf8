"""How far a streaming query is behind the recordings it reads, in bytes and in seconds.

A source written in Python cannot put metrics of its own into Spark's progress; only the offsets are there. These helpers take
the offsets from the progress and read the recordings for the rest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from mainstem.clock import NS_PER_SECOND, SYSTEM_CLOCK, Clock
from mainstem.errors import ConfigurationError
from mainstem.recording import RecordingReader
from mainstem.recording.directories import directory_archive
from mainstem.spark.sources.offsets import Offset, parse_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql.streaming import StreamingQuery


@dataclass(frozen=True, slots=True)
class Lag:
    """One recording: what a query has read of it, what there is, and how long ago the first of what it has not was recorded.

    ``seconds`` is exact to about 100 ms, 0 when nothing is left to read, and None where the recording keeps no times.
    """

    recording_id: int
    position: int
    recorded_position: int
    seconds: float | None

    @property
    def bytes(self) -> int:
        """Of the stream, frame headers included."""
        return max(self.recorded_position - self.position, 0)


def lag(query: StreamingQuery, path: Path | str, *, clock: Clock = SYSTEM_CLOCK) -> list[Lag]:
    """The lag of a query behind every recording of ``path`` that its last micro-batch named; empty before the first one.

    A query over several sources is fine: those whose offsets are not of ``mainstem.recording`` are passed over.
    """
    progress = query.lastProgress
    return _lags(progress["sources"] if progress else [], path, clock)


def _lags(sources: Iterable[Any], path: Path | str, clock: Clock) -> list[Lag]:
    offset = Offset()
    for source in sources:
        offset.archives.update(_offsets(source["endOffset"]).archives)
    archive = directory_archive(path)
    at = offset.archives.get(archive.archive_id) or offset.archives.get(str(path))
    positions = at.all_positions if at is not None else offset.positions
    lags = []
    for descriptor in archive.recordings():
        if descriptor.recording_id in positions:
            with RecordingReader(archive, descriptor) as reader:
                lags.append(_lag(reader, positions[descriptor.recording_id], clock))
    return lags


def _offsets(text: Any) -> Offset:
    try:
        offset = json.loads(text) if isinstance(text, str) else text
        return parse_offset({key: value for key, value in offset.items() if key != "run"})
    except (AttributeError, KeyError, TypeError, ValueError, ConfigurationError):
        return Offset()


def _lag(reader: RecordingReader, position: int, clock: Clock) -> Lag:
    end, seconds = reader.end_position(), None
    if position >= end:
        seconds = 0.0
    elif reader.positions is not None and (entry := reader.positions.at_or_before(position)) is not None:
        seconds = max(clock.epoch_ns() - entry.time_ns, 0) / NS_PER_SECOND
    return Lag(reader.descriptor.recording_id, position, end, seconds)


class LagListener(StreamingQueryListener):
    """Calls ``report(query id, lags)`` after every micro-batch: ``spark.streams.addListener(LagListener(path, report))``."""

    def __init__(
        self, path: Path | str, report: Callable[[str, list[Lag]], object], *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._path, self._report, self._clock = path, report, clock

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Nothing was read yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A micro-batch ended."""
        progress = event.progress
        sources = [{"endOffset": source.endOffset} for source in progress.sources]
        self._report(str(progress.id), _lags(sources, self._path, self._clock))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """There was nothing to read."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """It is over."""
