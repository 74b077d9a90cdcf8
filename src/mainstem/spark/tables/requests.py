"""``requests``: one row for each request of a Jmux connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.spark.folds.multiplexed import MuxFold
from mainstem.spark.tables.table import of_fold, tell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLD = MuxFold()
REQUESTS = of_fold(FOLD, "requests", "one row for each request of a Jmux connection")


def requests(frames: DataFrame) -> DataFrame:
    """The requests of Jmux connections, how long each took and how it ended, from frames of captures."""
    return tell(FOLD, frames, "requests")
