"""``credits``: one row for each Credit of a bymux connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.spark.folds.multiplexed import MuxFold
from mainstem.spark.tables.table import of_fold, tell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLD = MuxFold()
CREDITS = of_fold(FOLD, "credits", "one row for each Credit of a bymux connection")


def credits(frames: DataFrame) -> DataFrame:  # noqa: A001 - the protocol's own word
    """The credit that bymux peers gave one another, from frames of captures."""
    return tell(FOLD, frames, "credits")
