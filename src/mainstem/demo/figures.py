"""Figures that Spark computes from the data that arrived and pyarrow from the source. Both must be equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FLIGHT_COLUMNS = {"carrier", "month", "dep_delay", "dep_time"}


def is_flights(table: Any) -> bool:
    """Return whether the table has the columns that the figures of flights need."""
    return set(table.column_names) >= FLIGHT_COLUMNS


@dataclass(frozen=True, slots=True, order=True)
class CarrierMonth:
    """The flights of one carrier in one month. Sums are whole minutes, so the two results can be compared exactly."""

    carrier: str | None
    month: int | None
    flights: int
    delay_sum: float
    delayed: int
    cancelled: int

    @property
    def mean_delay(self) -> float | None:
        return self.delay_sum / self.delayed if self.delayed else None

    @property
    def cancelled_share(self) -> float:
        return self.cancelled / self.flights


@dataclass(frozen=True, slots=True, order=True)
class ColumnSummary:
    """One column of any other table: the number of its values, and of its distinct values."""

    column: str
    values: int
    distinct: int


FLIGHTS_SQL = """
    SELECT carrier, month, count(*) AS flights, coalesce(sum(dep_delay), 0) AS delay_sum,
           count(dep_delay) AS delayed, count(*) - count(dep_time) AS cancelled
    FROM {table} GROUP BY carrier, month
"""


def summary_sql(columns: list[str], table: str) -> str:
    """Return the query that computes the ``ColumnSummary`` of every column."""

    def one(name: str) -> str:
        quoted, text = f"`{name.replace('`', '``')}`", name.replace("\\", "\\\\").replace("'", "\\'")
        return (
            f"SELECT '{text}' AS column, count({quoted}) AS values, count(DISTINCT {quoted}) AS distinct FROM {table}"
        )

    return " UNION ALL ".join(one(name) for name in columns)


def source_figures(table: Any) -> list[Any]:
    """Return the figures computed from the source table, in order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_flights(table):
        return sorted(
            ColumnSummary(name, pc.count(table.column(name)).as_py(), pc.count_distinct(table.column(name)).as_py())
            for name in table.column_names
        )
    missing = pc.is_null(table.column("dep_time")).cast(pa.int64())
    groups = (
        table.select(["carrier", "month", "dep_delay"])
        .append_column("cancelled", missing)
        .group_by(["carrier", "month"])
        .aggregate([([], "count_all"), ("dep_delay", "sum"), ("dep_delay", "count"), ("cancelled", "sum")])
    )
    return in_order(
        CarrierMonth(
            row["carrier"],
            row["month"],
            row["count_all"],
            row["dep_delay_sum"] or 0,
            row["dep_delay_count"],
            row["cancelled_sum"],
        )
        for row in groups.to_pylist()
    )


def in_order(figures: Any) -> list[Any]:
    """Return the figures sorted by their keys, with missing keys first."""
    return sorted(figures, key=lambda f: (f.carrier is not None, f.carrier, f.month is not None, f.month))
