"""300 random filters over all types return the same rows of a table in deltalake, pyiceberg, DuckDB, Polars and Spark."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")
pytest.importorskip("polars")

from tests.support.table_filters import FLOATING, NOT_IN_ICEBERG, Filter, as_sql, batches, columns, compares, filters  # noqa: E402
from tests.support.table_readers import delta_counts, differences, iceberg_counts, true_counts, write  # noqa: E402

from mainstem.spark.formats.delta import DeltaTable  # noqa: E402
from mainstem.spark.formats.iceberg import IcebergTable, open_catalog  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]
SEED, FILTERS, LEVELS, ROWS = 20_261, 300, 6, 60
# Queries per job. With more, compiling the plan takes Spark longer than running it.
QUERIES = 25


@pytest.fixture(scope="module")
def rows() -> list[pa.RecordBatch]:
    return list(batches(random.Random(SEED), LEVELS, ROWS))


@pytest.fixture(scope="module")
def chosen() -> list[Filter]:
    return filters(random.Random(SEED), FILTERS, LEVELS)


def spark_differences(spark: SparkSession, path: Path, chosen: list[Filter], true: dict[str, list[int]]) -> list[str]:
    """Return ``differences`` for Spark on a Delta table's files. A sum over a condition skips nothing."""
    frame = spark.read.option("basePath", str(path)).parquet(*deltalake.DeltaTable(path).file_uris())
    frame.createOrReplaceTempView("filtered")
    wrong = []
    for begin in range(0, len(chosen), QUERIES):
        part = chosen[begin : begin + QUERIES]
        texts = [as_sql(each, "spark") for each in part]
        queries = [f"select {i} as i, count(*) as c from filtered where {text}" for i, text in enumerate(texts)]
        found = [row.c for row in sorted(spark.sql(" union all ".join(queries)).collect())]
        expected = spark.sql(f"select {', '.join(f'count_if({text})' for text in texts)} from filtered").collect()[0]
        for number, each in enumerate(part):
            right = {expected[number]} | (set() if compares(each, FLOATING) else {true["arrow"][begin + number]})
            if {found[number]} != right:
                wrong.append(f"spark: {found[number]} rows, not {right}: {each}"[:300])
    return wrong


def test_a_delta_table(spark: SparkSession, tmp_path: Path, rows: list[pa.RecordBatch], chosen: list[Filter]) -> None:
    true = true_counts(pa.Table.from_batches(rows), chosen)
    path = tmp_path / "table"
    table = DeltaTable(str(path), partition_by=["part"])
    table.prepare(columns(), evolve=False)
    write(table, rows)
    assert differences(delta_counts(path, chosen), true, chosen) == []
    assert spark_differences(spark, path, chosen, true) == []
    table.compact()
    assert differences(delta_counts(path, chosen), true, chosen) == []
    assert spark_differences(spark, path, chosen[: 4 * QUERIES], true) == []


def test_an_iceberg_table(tmp_path: Path, rows: list[pa.RecordBatch], chosen: list[Filter], monkeypatch: Any) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    able = [each for each in chosen if not compares(each, NOT_IN_ICEBERG)]
    true = true_counts(pa.Table.from_batches(rows), able)
    catalog = open_catalog(str(tmp_path / "lake"))
    try:
        table = IcebergTable(lambda: catalog, "sea.tides", ["part"])
        table.prepare(columns(), evolve=False)
        write(table, rows)
        assert differences(iceberg_counts(table.existing(), able), true, able) == []
    finally:
        catalog.close()
