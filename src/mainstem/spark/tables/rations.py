"""``rations``: one row for each ration that a Jmux peer gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.spark.folds.multiplexed import MuxFold
from mainstem.spark.tables.table import of_fold, tell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLD = MuxFold()
RATIONS = of_fold(FOLD, "rations", "one row for each ration that a Jmux peer gave")


def rations(frames: DataFrame) -> DataFrame:
    """The rations that Jmux peers gave one another, from frames of captures."""
    return tell(FOLD, frames, "rations")
