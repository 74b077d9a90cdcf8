"""What an ingest has done so far, and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.spark.ingest.options import OBSERVED
from mainstem.spark.lags import lags_of

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from mainstem.spark.ingest.options import IngestOptions

COUNTS = ("messages", "rows", "problems", "rescued")


class Count:
    """What a query has done so far, gathered from its progress, which remembers only the last micro-batches."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, ...]] = {}

    def update(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            observed = progress["observedMetrics"].get(OBSERVED)
            if observed is not None and observed["rows"]:
                self._seen[progress["batchId"]] = tuple(observed[name] for name in COUNTS)

    def _sum(self, which: int) -> int:
        return sum(counts[which] for counts in self._seen.values())

    @property
    def messages(self) -> int:
        """Read so far."""
        return self._sum(0)

    @property
    def rows(self) -> int:
        """Written so far, those of unreadable messages among them."""
        return self._sum(1)

    @property
    def problems(self) -> int:
        """Messages that could not be read."""
        return self._sum(2)

    @property
    def rescued(self) -> int:
        """Rows with fields that the schema lacks."""
        return self._sum(3)


def remaining(query: StreamingQuery, options: IngestOptions) -> tuple[int, int]:
    """(bytes of the recordings that were read, bytes that there are); (0, 0) where nothing is recorded."""
    if not options.recordings:
        return 0, 0
    progress = query.lastProgress
    lags = lags_of(progress["sources"] if progress else [], options.reading)
    return sum(each.position for each in lags), sum(each.recorded_position for each in lags)
