"""``messages``: one row for each whole message of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.capture.schema import Column
from mainstem.spark.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MESSAGES = Table(
    "messages",
    "one row for each whole message of a recording",
    (
        Column("recording_id", "bigint", "the recording"),
        Column("session_id", "int", "the publisher's session"),
        Column("stream_id", "int", "the stream"),
        Column("position", "bigint", "the position at the message's end, as offer returned it"),
        Column("recorded_at", "timestamp", "when it was recorded, to about 100 ms"),
        Column("length", "int", "bytes of payload"),
        Column("reserved_value", "bigint", "what the publisher put there"),
        Column("payload", "binary", "the message"),
    ),
    ("recording_id", "position"),
)
COLUMNS = MESSAGES.names


def messages(recordings: DataFrame) -> DataFrame:
    """The messages of a DataFrame that ``mainstem.recording`` read, batch or streaming; the columns are in ``MESSAGES``."""
    return recordings.select(*COLUMNS)
