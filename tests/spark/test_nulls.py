"""The JVM does not check Arrow values for null (``java_options``); null values of every type must still be null."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = (
    "k int not null, flag boolean, tiny tinyint, small smallint, i int, l bigint, f float, d double, n decimal(20, 3), s string, "
    "b binary, day date, at timestamp, a array<string>, m map<string, bigint>, t struct<x: bigint, y: string>"
)
NAMES = [part.split()[0] for part in SCHEMA.replace("decimal(20, 3)", "decimal").split(", ")]
NAMES = [name for name in NAMES if name not in ("bigint>", "y:")]
VALUES: list[Any] = [
    *(True, -1, -2, -3, -4, 0.5, 0.25, Decimal("1.500"), "text", b"bytes", datetime.date(2024, 2, 29)),
    *(datetime.datetime(2024, 2, 29, 12), ["x", None], {"x": None}, {"x": None, "y": None}),
]


def rows() -> list[list[Any]]:
    """Return a row with a value in each column, a row of nulls, and for each column a row in which only that column is null."""
    made = [list(VALUES), [None] * len(VALUES)]
    made += [[None if i == j else value for j, value in enumerate(VALUES)] for i in range(len(VALUES))]
    return [[k, *row] for k, row in enumerate(made)]


def test_nulls_of_arrow_stay_nulls(spark: SparkSession) -> None:
    assert spark._jvm is not None
    assert spark._jvm.java.lang.System.getProperty("arrow.enable_null_check_for_get") == "false"

    def again(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    sent = rows()
    df = spark.createDataFrame(sent, SCHEMA).coalesce(1).mapInArrow(again, SCHEMA)
    got = [row.asDict(recursive=True) for row in df.sort("k").collect()]
    assert got == [dict(zip(NAMES, row, strict=True)) for row in sent]
    counts = df.selectExpr(*(f"count({name}) as {name}" for name in NAMES[1:])).first()
    assert counts is not None
    # Each column is null in two of the rows.
    assert set(counts) == {len(sent) - 2}
    grouped = df.groupBy("s", "l", "b").count().collect()
    assert {(row.s, row.l, row.b and bytes(row.b)): row["count"] for row in grouped} == {
        ("text", -4, b"bytes"): len(sent) - 4,
        (None, None, None): 1,
        (None, -4, b"bytes"): 1,
        ("text", None, b"bytes"): 1,
        ("text", -4, None): 1,
    }
