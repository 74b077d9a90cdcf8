"""Dropping what ``mainstem.channel`` sent more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY = ("stream_id", "reserved_value")


def without_repeats(recordings: DataFrame, *, within: str = "1 hour") -> DataFrame:
    """The messages of a DataFrame that ``mainstem.recording`` or ``mainstem.live`` read, each once.

    A message is known by its stream and by the key in its reserved value (``mainstem.repeats``), so the DataFrame must have
    the columns stream_id, reserved_value and, for a stream, recorded_at. One query may write to a stream. A streaming
    DataFrame gets a watermark on recorded_at: what comes again later than ``within`` is not known any more.
    """
    if recordings.isStreaming:
        return recordings.withWatermark("recorded_at", within).dropDuplicatesWithinWatermark(list(KEY))
    return recordings.dropDuplicates(list(KEY))
