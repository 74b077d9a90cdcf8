"""Each message becomes a row or a problem row, whatever its content; none stops the query."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.hostile_messages import MESSAGES
from tests.support.ingesting import ingest, log

from mainstem.spark import decode

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


@pytest.mark.long
def test_hostile_messages_become_rows_and_columns_are_added(spark: SparkSession, tmp_path: Path) -> None:
    usual = [json.dumps({"a": n, "at": "2026-01-31", "o": {"x": n}}).encode() for n in range(20)]
    log(tmp_path / "recordings", usual)
    rows, _ = ingest(spark, tmp_path, codec="json", evolve=True)
    assert [row.a for row in rows] == list(range(20))
    log(tmp_path / "recordings", list(MESSAGES), 1002)
    rows, count = ingest(spark, tmp_path, codec="json", evolve=True)
    assert count.messages == len(MESSAGES)
    found = [row for row in rows if row.stream_id == 1002]
    assert len({row.position for row in found}) == len(MESSAGES)
    # If a problem row lacks the payload, the message was empty.
    assert all(row.problem is None or row.payload is not None or "empty" in row.problem for row in found)


def test_a_required_column_makes_problem_rows(spark: SparkSession, tmp_path: Path) -> None:
    kinds = [
        "int",
        "bigint",
        "double",
        "boolean",
        "date",
        "timestamp",
        "string",
        "binary",
        "decimal(38, 10)",
        "array<int>",
    ]
    names = [f"c{i}" for i in range(len(kinds))]
    schema = ", ".join(f"{name} {kind} not null" for name, kind in zip(names, kinds, strict=True))
    values: list[Any] = [1, 2, 0.5, True, "2026-01-31", "2026-01-31T12:00:00Z", "x", "y", "1.5", [1]]
    good = dict(zip(names, values, strict=True))
    bad = [{}, *({**good, name: None} for name in names), *({**good, name: {"no": 1}} for name in names)]
    log(tmp_path / "recordings", [json.dumps(each).encode() for each in (good, *bad)])
    rows, count = ingest(spark, tmp_path, codec="json", schema=f"{schema}, s struct<x: int not null>")
    assert (count.rows, count.problems) == (1 + len(bad), len(bad))
    assert [row.c0 for row in rows] == [1] + [None] * len(bad)
    assert all(row[name] is None for row in rows[1:] for name in names)
    df = spark.createDataFrame([('{"n": 1}',), ("{}",), ('{"n": null}',)], "payload string")
    decoded = decode(df, "json", "n int not null, t string not null").collect()
    assert [(row.n, row.t, row.problem is None) for row in decoded] == [(None, None, False)] * 3
