"""``retransmits``: one row for each Aeron data frame that passed again, or late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.spark.folds.path import PathFold
from mainstem.spark.tables.table import of_fold, tell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLD = PathFold()
RETRANSMITS = of_fold(FOLD, "retransmits", "one row for each Aeron data frame that passed again, or late")


def retransmits(frames: DataFrame) -> DataFrame:
    """The data of Aeron streams that passed again or late, and why, from frames of captures."""
    return tell(FOLD, frames, "retransmits")
