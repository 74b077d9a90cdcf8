"""Recordings for a query to read, and a query that has read part of them, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.streams import Stream, record

from mainstem.recording import Recorder
from mainstem.spark.lags import source_options
from mainstem.spark.sources.features import ReadAllAvailable, ReadMaxBytes
from mainstem.spark.sources.recording import RecordingStreamReader

if TYPE_CHECKING:
    from pathlib import Path

STREAM = {"stream_id": 1001, "initial_term_id": -5, "term_buffer_length": 65536, "mtu_length": 1408}
NAMES = {"position": False, "payload": False}


def recorded(path: Path, *, count: int = 100) -> Path:
    with Recorder(path) as recorder:
        for session in (1, 2):
            writer = recorder.start(**STREAM, session_id=session, join_position=0)
            record(writer, Stream(session_id=session), [bytes(96)] * count)
    return path


class Progress:
    """A query that has read up to ``most`` bytes of its source, or everything."""

    def __init__(self, path: Any, most: int | None = None, **options: Any) -> None:
        reader = RecordingStreamReader(source_options(path, options), NAMES)
        limit = ReadAllAvailable() if most is None else ReadMaxBytes(most)
        self.start = reader.initialOffset()
        offset = reader.latestOffset(self.start, limit) if most != 0 else self.start
        self.lastProgress = {"sources": [{"endOffset": "of another source"}, {"endOffset": offset}]}
        reader.stop()
