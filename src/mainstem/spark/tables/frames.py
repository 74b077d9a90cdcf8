"""``frames``: one row for each protocol frame of a capture, with the channel that it belongs to; and TCP's events, and problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.capture.schema import COLUMNS, Column
from mainstem.spark.folds.channel_of import CHANNEL
from mainstem.spark.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHANNEL_COLUMN = Column("channel", "string", "aeron: the endpoint that data goes to, told from either direction")
FRAMES = Table(
    "frames",
    "one row for each frame of every protocol, each event of TCP and each problem",
    (*COLUMNS, CHANNEL_COLUMN),
    ("file", "packet", "frame_index", "protocol"),
)


def frames(capture: DataFrame) -> DataFrame:
    """What ``mainstem.capture`` read, and the channel of each frame. A payload that was read is kept."""
    return capture.selectExpr(*capture.columns, f"case when protocol = 'aeron' then {CHANNEL} end as channel")
