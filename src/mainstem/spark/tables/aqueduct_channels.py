"""``aqueduct_channels``: one row for each channel of Aqueduct."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.spark.folds.aqueduct import AqueductFold
from mainstem.spark.tables.table import of_fold, tell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLD = AqueductFold()
AQUEDUCT_CHANNELS = of_fold(FOLD, "aqueduct_channels", "one row for each channel of Aqueduct")


def aqueduct_channels(frames: DataFrame) -> DataFrame:
    """The channels of Aqueduct connections, from frames of their traces."""
    return tell(FOLD, frames, "aqueduct_channels")
