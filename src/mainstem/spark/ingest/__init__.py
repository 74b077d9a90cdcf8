"""Private: loads recordings or a live channel into a table, once or continuously, each message once.

The table is partitioned by ``date`` and ``stream_id``. It also has ``recording_id``, ``session_id``, ``position``,
``recorded_at``, ``problem``, the codec's columns, ``rescued`` and ``payload``. Every message is in it:

- If the codec cannot read a message, a value has another type than its column, or there are no rows, the message becomes a row
  with the reason in ``problem``, its bytes in ``payload``, and nulls in the codec's columns.
- Fields that the schema lacks are in ``rescued``, as JSON.

A restarted ingest uses the table's columns. Other columns are refused unless ``evolve`` allows adding them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.lazy import lazy_names

if TYPE_CHECKING:
    from mainstem.codecs.rows import RESCUE_COLUMNS
    from mainstem.spark.ingest.options import META, OBSERVED, IngestOptions
    from mainstem.spark.ingest.query import Count, remaining, source, start, table

__all__ = ["META", "OBSERVED", "RESCUE_COLUMNS", "Count", "IngestOptions", "remaining", "source", "start", "table"]

# Imported lazily: `mainstem compact` opens tables without Spark.
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
