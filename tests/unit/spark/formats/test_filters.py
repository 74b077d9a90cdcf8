"""A filter returns the same rows in every reader, because no reader skips a file with matching rows."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")
pytest.importorskip("polars")
pytest.importorskip("pyspark")

from tests.support.table_filters import NOT_IN_ICEBERG, PATHS, batches, columns, compares, filters
from tests.support.table_readers import delta_counts, differences, iceberg_counts, true_counts, write

from mainstem.spark.formats.delta import DeltaTable
from mainstem.spark.formats.iceberg import IcebergTable, open_catalog

if TYPE_CHECKING:
    from pathlib import Path

SEED, LEVELS, ROWS = 20_260, 6, 40


@pytest.fixture(scope="module")
def rows() -> list[pa.RecordBatch]:
    return list(batches(random.Random(SEED), LEVELS, ROWS))


def test_a_delta_table_and_its_compaction(tmp_path: Path, rows: list[pa.RecordBatch]) -> None:
    chosen = filters(random.Random(SEED), len(PATHS), LEVELS)
    true = true_counts(pa.Table.from_batches(rows), chosen)
    table = DeltaTable(str(tmp_path / "table"), partition_by=["part"])
    table.prepare(columns(), evolve=False)
    write(table, rows)
    assert differences(delta_counts(tmp_path / "table", chosen), true, chosen) == []
    assert table.compact().by == 3
    assert differences(delta_counts(tmp_path / "table", chosen), true, chosen) == []


def test_an_iceberg_table_and_its_compaction(tmp_path: Path, rows: list[pa.RecordBatch], monkeypatch: Any) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    chosen = [each for each in filters(random.Random(SEED), len(PATHS), LEVELS) if not compares(each, NOT_IN_ICEBERG)][
        ::2
    ]
    true = true_counts(pa.Table.from_batches(rows), chosen)
    catalog = open_catalog(str(tmp_path / "lake"))
    try:
        table = IcebergTable(lambda: catalog, "sea.tides", ["part"])
        table.prepare(columns(), evolve=False)
        write(table, rows)
        assert differences(iceberg_counts(table.existing(), chosen), true, chosen) == []
        assert table.compact().by == 3
        assert differences(iceberg_counts(table.existing(), chosen), true, chosen) == []
    finally:
        catalog.close()
