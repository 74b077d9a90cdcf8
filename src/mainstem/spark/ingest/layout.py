"""The table's columns besides those of the parser, its partitions, and what lies beside its files."""

from __future__ import annotations

from mainstem.codecs.rows import RESCUE_COLUMNS

__all__ = ["CHECKPOINT", "META", "META_DDL", "OBSERVED", "PARTITIONS", "RESCUE_COLUMNS", "RESCUE_DDL", "SCHEMA_FILE"]

META = ("date", "stream_id", "recording_id", "session_id", "position", "recorded_at", "problem")
META_DDL = "date date, stream_id int, recording_id bigint, session_id int, position bigint, recorded_at timestamp, problem string"
RESCUE_DDL = "rescued string, payload binary"
PARTITIONS = ("date", "stream_id")
OBSERVED = "ingested"
# Beside the checkpoint, which Spark's readers of the table pass over alike.
CHECKPOINT, SCHEMA_FILE = "_checkpoint", "_schema.json"
