"""Ingest into tables for other programs: exactly once, with columns added later, and read back by other readers."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.ingesting import forget_last_batch

from mainstem.errors import ConfigurationError, StoreError
from mainstem.recording import Recorder
from mainstem.recording.message_server import MessageLog
from mainstem.spark.formats.delta import DeltaTable
from mainstem.spark.formats.iceberg import open_catalog
from mainstem.spark.ingest.options import IngestOptions
from mainstem.spark.ingest.query import Count, start

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
duckdb = pytest.importorskip("duckdb")
polars = pytest.importorskip("polars")

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


def log(path: Path, numbers: range, stream_id: int = 1001, extra: dict[str, Any] | None = None) -> None:
    with Recorder(path) as recorder:
        messages = (json.dumps({"n": number, **(extra or {})}).encode() for number in numbers)
        MessageLog(recorder, stream_id=stream_id).write((0, message) for message in messages)


def ingest(spark: SparkSession, tmp_path: Path, **options: Any) -> Count:
    given = {"source": str(tmp_path / "recordings"), "out": tmp_path / "table", "codec": "json", **options}
    query, count = start(spark, IngestOptions(**given)), Count()
    assert query.awaitTermination(400)
    count.update(query)
    return count


def test_a_delta_table_has_each_message_once_and_spark_duckdb_and_polars_read_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: Any
) -> None:
    table, options = tmp_path / "table", {"format": "delta", "schema": "n bigint", "compact_every": 2}
    log(tmp_path / "recordings", range(100))
    log(tmp_path / "recordings", range(100, 200), stream_id=7)
    count = ingest(spark, tmp_path, **options)
    assert (count.messages, count.rows, count.problems) == (200, 200, 0)
    # The driver ends between the table's commit and the checkpoint's, so Spark runs the micro-batch again.
    forget_last_batch(table / "_checkpoint")
    log(tmp_path / "recordings", range(200, 250))
    # The driver ends after writing data files and before the commit.
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "commit", _failing)
        with pytest.raises(Exception, match="the power"):
            ingest(spark, tmp_path, **options)
    ingest(spark, tmp_path, **options)
    expected = list(range(250))
    lake = deltalake.DeltaTable(table)
    dataset = lake.to_pyarrow_dataset()  # noqa: F841 - DuckDB reads it by its name
    assert [n for (n,) in duckdb.sql("select n from dataset order by n").fetchall()] == expected
    assert polars.scan_delta(str(table)).select("n").collect()["n"].sort().to_list() == expected
    frame = spark.read.option("basePath", str(table)).parquet(*lake.file_uris())
    assert [row.n for row in frame.orderBy("n").collect()] == expected
    assert {row.stream_id for row in frame.select("stream_id").distinct().collect()} == {7, 1001}
    assert any(entry["operation"] == "OPTIMIZE" for entry in lake.history())


def _failing(*_: Any) -> bool:
    raise StoreError("the table", "the power failed")


@pytest.mark.long
def test_an_iceberg_table_has_each_message_once_and_spark_duckdb_and_polars_read_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    options = {"format": "iceberg", "table": "sea.tides", "schema": "n smallint", "compact_every": 2}
    log(tmp_path / "recordings", range(100))
    log(tmp_path / "recordings", range(100, 200), stream_id=7)
    count = ingest(spark, tmp_path, **options)
    assert (count.messages, count.rows, count.problems) == (200, 200, 0)
    forget_last_batch(tmp_path / "table" / "_checkpoint" / "sea.tides")
    log(tmp_path / "recordings", range(200, 250), extra={"place": "Brest"})
    ingest(spark, tmp_path, **{**options, "schema": "n bigint, place string"}, evolve=True)
    expected = list(range(250))
    catalog = open_catalog(str(tmp_path / "table"))
    try:
        lake = catalog.load_table("sea.tides")
        reader = lake.scan().to_arrow_batch_reader()  # noqa: F841 - DuckDB reads it by its name
        rows = duckdb.sql("select n, place from reader order by n").fetchall()
        assert rows == [(n, "Brest" if n >= 200 else None) for n in expected]
        assert polars.scan_iceberg(lake).select("n").collect()["n"].sort().to_list() == expected
        files = [task.file.file_path for task in lake.scan().plan_files()]
        # One file has `n` as int and another as bigint. Spark does not merge them; Iceberg's readers widen the int.
        frames = [spark.read.parquet(file).selectExpr("cast(n as bigint) as n") for file in files]
        assert sorted(row.n for frame in frames for row in frame.collect()) == expected
    finally:
        catalog.close()


@pytest.mark.parametrize("table_format", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def test_no_name_or_value_of_a_message_stops_the_query(spark: SparkSession, tmp_path: Path, table_format: str) -> None:
    odd = {"a.b": 1, "a": {"b": 2}, "t`u": 3, "v w": 4, "nul\0": 5, "text": "x" * 15 + "\ud7ff!", "day": "0000-01-01"}
    options = {"format": table_format} | ({"table": "sea.tides"} if table_format == "iceberg" else {})
    log(tmp_path / "recordings", range(1), extra=odd)
    count = ingest(spark, tmp_path, **options)
    assert (count.rows, count.problems) == (1, 0)
    # No partition can have the time by which this table is partitioned.
    schema = "`a.b` bigint, `t``u` bigint, text string, `the.day` date"
    log(tmp_path / "dated" / "recordings", range(2), extra={**odd, "the.day": "0000-01-01"})
    ingest(spark, tmp_path / "dated", schema=schema, timestamp_from="the.day", **options)
    rows, dated = (read(path, table_format) for path in (tmp_path, tmp_path / "dated"))
    names = {"a.b", "t`u", "v w", "text"}
    assert rows.select(sorted(names)).to_pylist() == [{name: odd[name] for name in sorted(names)}]
    # In Iceberg, the member of `a` has the same name as a column.
    kept = {"nul\0": 5} | ({"a": {"b": 2}} if table_format == "iceberg" else {})
    assert json.loads(rows["rescued"][0].as_py()) == kept
    # A row has a value or a problem, in the partition of the recording's day.
    stated = [set(dated[name].is_valid().to_pylist()) for name in ("date", "the.day", "problem")]
    assert stated in ([{True}, {True}, {False}], [{True}, {False}, {True}])


def read(path: Path, table_format: str) -> Any:
    """Return an ingested table as an Arrow table."""
    if table_format == "delta":
        return deltalake.DeltaTable(path / "table").to_pyarrow_table()
    catalog = open_catalog(str(path / "table"))
    try:
        return catalog.load_table("sea.tides").scan().to_arrow()
    finally:
        catalog.close()


@pytest.mark.long
def test_columns_are_added_on_request_and_a_changed_schema_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table, delta = tmp_path / "table", {"format": "delta"}
    log(tmp_path / "recordings", range(3))
    ingest(spark, tmp_path, **delta)
    log(tmp_path / "recordings", range(3, 5), extra={"place": "Brest"})
    with pytest.raises(ConfigurationError, match="place string is only here; use `evolve`"):
        ingest(spark, tmp_path, schema="n bigint, place string", **delta)
    # Without --evolve, fields that the schema lacks are in `rescued`.
    ingest(spark, tmp_path, **delta)
    log(tmp_path / "recordings", range(5, 7), extra={"place": "Brest"})
    # With --evolve, the new messages define the new columns.
    ingest(spark, tmp_path, evolve=True, **delta)
    with pytest.raises(ConfigurationError, match="n is bigint in the table and string here"):
        ingest(spark, tmp_path, schema="n string", evolve=True, **delta)
    rows = polars.read_delta(str(table)).sort("n")
    assert rows["place"].to_list() == [None] * 5 + ["Brest"] * 2
    assert rows["rescued"].to_list() == [None] * 3 + ['{"place":"Brest"}'] * 2 + [None] * 2


@pytest.mark.long
def test_a_parquet_table_accepts_more_columns_but_no_other_format(spark: SparkSession, tmp_path: Path) -> None:
    log(tmp_path / "recordings", range(2))
    ingest(spark, tmp_path, schema="n bigint")
    log(tmp_path / "recordings", range(2, 3), extra={"place": "Brest"})
    ingest(spark, tmp_path, schema="n bigint, place string", evolve=True)
    rows = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "table")).orderBy("n").collect()
    assert [(row.n, row.place) for row in rows] == [(0, None), (1, None), (2, "Brest")]
    with pytest.raises(ConfigurationError, match="a directory of Parquet files; use `format=parquet`"):
        ingest(spark, tmp_path, schema="n bigint", format="delta")
    shutil.rmtree(tmp_path / "table")
    ingest(spark, tmp_path, schema="n bigint", format="delta")
    with pytest.raises(ConfigurationError, match="is a Delta table; use `format=delta`"):
        ingest(spark, tmp_path, schema="n bigint")
