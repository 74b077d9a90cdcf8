"""Private: loads recordings or a live channel into a table, once or continuously. Each message is loaded exactly once.

The table is partitioned by ``date`` and ``stream_id``. It also has the columns ``recording_id``, ``session_id``, ``position``,
``recorded_at`` and ``problem``, the codec's columns, ``rescued`` and ``payload``. It contains every message:

- If the codec cannot read a message, if a value has another type than its column, or if the message has no rows, the message
  becomes a row with the reason in ``problem``, its bytes in ``payload``, and nulls in the codec's columns.
- Fields that the schema lacks go to ``rescued``, as JSON.

When an ingest restarts, it uses the table's columns. It refuses other columns unless ``evolve`` allows adding them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.lazy import lazy_names

if TYPE_CHECKING:
    from mainstem.codecs.rows import RESCUE_COLUMNS
    from mainstem.spark.ingest.options import META, OBSERVED, IngestOptions
    from mainstem.spark.ingest.query import Count, remaining, source, start, table

__all__ = ["META", "OBSERVED", "RESCUE_COLUMNS", "Count", "IngestOptions", "remaining", "source", "start", "table"]

# Imported lazily, because `mainstem compact` opens tables without Spark.
_HOMES = {
    "META": "mainstem.spark.ingest.options",
    "OBSERVED": "mainstem.spark.ingest.options",
    "RESCUE_COLUMNS": "mainstem.codecs.rows",
    "Count": "mainstem.spark.ingest.query",
    "IngestOptions": "mainstem.spark.ingest.options",
    "remaining": "mainstem.spark.ingest.query",
    "source": "mainstem.spark.ingest.query",
    "start": "mainstem.spark.ingest.query",
    "table": "mainstem.spark.ingest.query",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
