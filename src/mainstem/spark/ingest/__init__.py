"""Private: recordings, or a live channel, into a table: once or for as long as it runs, each message once.

The table has the columns ``date``, ``stream_id`` (its partitions), ``recording_id``, ``session_id``, ``position``,
``recorded_at``, ``problem``, those of the codec, ``rescued`` and ``payload``. Every message is in it, at least once:

- A message that the codec cannot read, that has a value of another type than its column, or that has no rows at all, is a row
  with its reason in ``problem``, the message in ``payload``, and nothing in the codec's columns.
- Fields that the schema does not have are in ``rescued``, as JSON.

The columns are those of the table: a restart reads with the same ones, and is refused when others are given, unless they
may be added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.lazy import lazy_names

if TYPE_CHECKING:
    from mainstem.codecs.rows import RESCUE_COLUMNS
    from mainstem.spark.ingest.options import META, OBSERVED, IngestOptions
    from mainstem.spark.ingest.query import Count, remaining, source, start, table

__all__ = ["META", "OBSERVED", "RESCUE_COLUMNS", "Count", "IngestOptions", "remaining", "source", "start", "table"]

# Imported when they are used: `mainstem compact` opens tables without Spark.
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
