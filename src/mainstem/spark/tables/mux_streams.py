"""``mux_streams``: one row for each stream of a bymux connection and each session of a Jmux connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.spark.folds.multiplexed import MuxFold
from mainstem.spark.tables.table import of_fold, tell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLD = MuxFold()
MUX_STREAMS = of_fold(FOLD, "mux_streams", "one row for each stream of a bymux or session of a Jmux connection")


def mux_streams(frames: DataFrame) -> DataFrame:
    """The streams of bymux and the sessions of Jmux connections, from frames of captures."""
    return tell(FOLD, frames, "mux_streams")
