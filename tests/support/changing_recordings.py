"""Read a location as Spark does, without Spark, while something changes the recordings there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainstem.spark.sources.features import ReadAllAvailable, ReadMaxBytes
from mainstem.spark.sources.options import parse_options
from mainstem.spark.sources.recording import RecordingBatchReader, RecordingStreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODES = ("batch", "stream", "available now")
# When the recordings change: before an offset, between the offset and its tasks, before a task, within a task, or after all of it.
MOMENTS = ("offset", "plan", "task", "rows", "end")
NAMES = {"position": False, "payload": True}
MAX_BYTES = 40_000


class Changes:
    """Calls ``change`` at one moment of reading: the second offset, the plan after it, and so on. So some rows are read before."""

    def __init__(self, moment: str, change: Callable[[], None]) -> None:
        self._moment, self._change, self._count = moment, change, 0
        self.has_happened = False

    def at(self, moment: str, number: int) -> None:
        if moment == self._moment and self._count < number:
            self._count += 1
            if self._count == number:
                self._change()
                self.has_happened = True


def read(location: str, options: dict[str, str], mode: str, changes: Changes) -> list[bytes]:
    """Return the payloads of all rows until a query ends in order."""
    parsed = parse_options({"path": location, "maxBytesPerTrigger": str(MAX_BYTES), "parallelism": "2"} | options)
    if mode == "batch":
        batch = RecordingBatchReader(parsed, NAMES)
        changes.at("offset", 1)
        tasks = batch.partitions()
        changes.at("plan", 1)
        rows = list(_rows(batch, tasks, changes))
        changes.at("end", 1)
        return rows
    stream = RecordingStreamReader(parsed, NAMES)
    try:
        if mode == "available now":
            stream.prepareForTriggerAvailableNow()
        return _followed(stream, changes)
    finally:
        stream.stop()


def _followed(stream: RecordingStreamReader, changes: Changes) -> list[bytes]:
    rows: list[bytes] = []
    start = json.loads(json.dumps(stream.initialOffset()))
    while True:
        if rows:
            changes.at("offset", 1)
        end = json.loads(json.dumps(stream.latestOffset(start, ReadMaxBytes(MAX_BYTES))))
        if end == start:
            if changes.has_happened:
                return rows
            changes.at("end", 1)
            end = json.loads(json.dumps(stream.latestOffset(start, ReadAllAvailable())))
        if rows:
            changes.at("plan", 1)
        rows += _rows(stream, stream.partitions(start, end), changes)
        start = end


def _rows(reader: Any, tasks: Any, changes: Changes) -> Iterator[bytes]:
    for number, task in enumerate(tasks):
        if number:
            changes.at("task", 1)
        for batch in reader.read(task):
            yield from (bytes(value.as_py()) for value in batch.column("payload"))
            changes.at("rows", 1)
