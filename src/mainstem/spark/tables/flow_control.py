"""``flow_control``: one row for each silence of a publisher, and whose fault it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.spark.folds.path import PathFold
from mainstem.spark.tables.table import of_fold, tell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLD = PathFold()
FLOW_CONTROL = of_fold(FOLD, "flow_control", "one row for each silence of a publisher, and whose fault it was")


def flow_control(frames: DataFrame) -> DataFrame:
    """The silences of publishers of Aeron streams and who is to blame, from frames of captures."""
    return tell(FOLD, frames, "flow_control")
