"""``sessions``: one row for each session of a stream and each endpoint that it went to, or for each recorded session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.spark.folds.path import PathFold
from mainstem.spark.folds.recordings import RecordingFold
from mainstem.spark.tables.table import of_fold, tell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLD, RECORDED_FOLD = PathFold(), RecordingFold()
SESSIONS = of_fold(FOLD, "sessions", "one row for each session of an Aeron stream and each endpoint that it went to")
RECORDED_SESSIONS = of_fold(RECORDED_FOLD, "recorded_sessions", "one row for each session of a stream in a recording")


def sessions(rows: DataFrame) -> DataFrame:
    """The sessions of Aeron streams, from frames of captures; or those that were recorded, from rows of recordings."""
    if "recording_id" in rows.columns:
        fold = RecordingFold(frames=True) if "type" in rows.columns else RECORDED_FOLD
        return tell(fold, rows, "recorded_sessions")
    return tell(FOLD, rows, "sessions")
