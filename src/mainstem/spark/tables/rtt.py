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


def of_parts(paths: DataFrame, connections: DataFrame) -> DataFrame:
    """The same from the round trips that ``PathFold`` and ``MuxFold`` told."""
    parts = []
    for rows in (paths, connections):
        missing = (column for column, _ in FOLD.keys if column.name not in rows.columns)
        added = [
            f"cast({'0' if column.type != 'string' else repr('')} as {column.type}) as {column.name}"
            for column in missing
        ]
        parts.append(rows.selectExpr("*", *added).select(*RTT.names))
    return parts[0].unionByName(parts[1])
