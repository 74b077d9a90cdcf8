"""``gaps``: one row for each range of an Aeron stream that was lost, or seemed so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.spark.folds.path import PathFold
from mainstem.spark.tables.table import of_fold, tell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLD = PathFold()
GAPS = of_fold(FOLD, "gaps", "one row for each range of an Aeron stream that was lost, or seemed so")


def gaps(frames: DataFrame) -> DataFrame:
    """What was lost on Aeron streams, where, and what became of it, from frames of captures."""
    return tell(FOLD, frames, "gaps")
