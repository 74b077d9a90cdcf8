"""``frames``: one row for each protocol frame of a capture, with the channel that it belongs to."""

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
    "one row for each frame of every protocol",
    (*COLUMNS, CHANNEL_COLUMN),
    ("file", "packet", "frame_index"),
)


def frames(capture: DataFrame) -> DataFrame:
    """The frames of what ``mainstem.capture`` read: no events of TCP, no problems. A payload that was read is kept."""
    names = [*capture.columns, f"case when protocol = 'aeron' then {CHANNEL} end as channel"]
    return capture.where("protocol not in ('tcp', 'problem')").selectExpr(*names)
