"""``rtt``: one row for each round trip that a capture shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.spark.folds.every import RoundTripFold
from mainstem.spark.tables.table import of_fold, tell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLD = RoundTripFold()
RTT = of_fold(FOLD, "rtt", "one row for each round trip")


def rtt(frames: DataFrame) -> DataFrame:
    """The round trips of RTTM, of NAKs and their repair, and of pings, from frames of captures."""
    return tell(FOLD, frames, "rtt")
