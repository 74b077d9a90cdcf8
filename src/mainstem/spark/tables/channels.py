"""``channels``: one row for each endpoint that was talked to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.spark.folds.channels import ChannelFold
from mainstem.spark.tables.table import of_fold, tell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLD = ChannelFold()
CHANNELS = of_fold(FOLD, "channels", "one row for each endpoint that was talked to")


def channels(frames: DataFrame) -> DataFrame:
    """Every channel of every protocol, from frames of captures."""
    return tell(FOLD, frames, "channels")
