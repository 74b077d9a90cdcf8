"""Count the rows that each reader of a table returns for a filter, and the rows in memory that match it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
from tests.support.table_filters import FLOATING, Filter, as_arrow, as_iceberg, as_polars, as_sql, compares

from mainstem.spark.formats.data_files import WriteFiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Counts = dict[str, list[int]]


def write(table: Any, batches: Sequence[pa.RecordBatch]) -> None:
    """Commit each batch as a micro-batch of its own."""
    for number, batch in enumerate(batches):
        task = WriteFiles(table.files("filters", number), 1 << 20)
        table.commit(
            "filters", number, [bytes(each) for result in task(iter([batch])) for each in result.column(0).to_pylist()]
        )


def true_counts(rows: pa.Table, chosen: Sequence[Filter]) -> Counts:
    """Return the counts by reader for rows in memory, which have no statistics."""
    frame = pl.DataFrame(rows)
    return {
        "arrow": [rows.filter(as_arrow(each)).num_rows for each in chosen],
        "duckdb": _duckdb(rows, chosen),
        "polars": [frame.filter(as_polars(each)).height for each in chosen],
    }


def delta_counts(path: Path, chosen: Sequence[Filter]) -> Counts:
    """Return the counts by reader for a Delta table; ``datafusion`` is deltalake's own query engine."""
    table = deltalake.DeltaTable(path)
    dataset, lazy = table.to_pyarrow_dataset(), pl.scan_delta(str(path))
    queries = deltalake.QueryBuilder().register("filtered", table)

    def datafusion(each: Filter) -> int:
        query = f"select count(*) as c from filtered where {as_sql(each, 'datafusion')}"
        return int(pa.table(queries.execute(query).read_all())["c"][0].as_py())

    return {
        "arrow": [dataset.count_rows(filter=as_arrow(each)) for each in chosen],
        "duckdb": _duckdb(dataset, chosen),
        "polars": [lazy.filter(as_polars(each)).select(pl.len()).collect().item() for each in chosen],
        "datafusion": [datafusion(each) for each in chosen],
    }


def iceberg_counts(table: Any, chosen: Sequence[Filter]) -> Counts:
    """Return the counts by reader for an Iceberg table that pyiceberg loaded; pyiceberg does not accept NaN."""
    lazy = pl.scan_iceberg(table)
    return {
        "pyiceberg": [
            -1 if compares(each, FLOATING) else table.scan(row_filter=as_iceberg(each)).to_arrow().num_rows
            for each in chosen
        ],
        "polars": [lazy.filter(as_polars(each)).select(pl.len()).collect().item() for each in chosen],
    }


def differences(found: Counts, true: Counts, chosen: Sequence[Filter]) -> list[str]:
    """Return the filters for which a reader's rows differ from its result for the rows in memory, or from other readers' rows.

    If a filter compares floats, each reader is checked against its own ordering of NaN. DataFusion orders NaN as Polars does;
    pyiceberg has two orderings.
    """
    wrong = []
    for number, each in enumerate(chosen):
        is_floating = compares(each, FLOATING)
        for reader, counts in found.items():
            itself = {"datafusion": "polars", "pyiceberg": ""}.get(reader, reader) if is_floating else "arrow"
            if itself and counts[number] != true[itself][number]:
                wrong.append(f"{reader}: {counts[number]} rows, not {true[itself][number]}: {each}"[:300])
        if not is_floating and len({counts[number] for counts in true.values()}) > 1:
            wrong.append(f"in memory: {each}"[:300])
    return wrong


def _duckdb(rows: Any, chosen: Sequence[Filter]) -> list[int]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("filtered", rows)
        queries = (f"select count(*) from filtered where {as_sql(each, 'duckdb')}" for each in chosen)
        return [connection.sql(query).fetchall()[0][0] for query in queries]
