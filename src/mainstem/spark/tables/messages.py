"""``messages``: one row for each whole message of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = ("recording_id", "session_id", "stream_id", "position", "recorded_at", "length", "reserved_value", "payload")


def messages(recordings: DataFrame) -> DataFrame:
    """The messages of a DataFrame that ``mainstem.recording`` read, batch or streaming.

    recording_id bigint, session_id int, stream_id int: which stream; position bigint: the position at the message's end,
    as ``offer`` returned it; recorded_at timestamp: when it was recorded, to about 100 ms; length int: bytes of payload;
    reserved_value bigint: what the publisher put there; payload binary. (recording_id, position) is unique.
    """
    return recordings.select(*COLUMNS)
