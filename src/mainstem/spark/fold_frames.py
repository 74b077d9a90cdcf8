"""Runs a fold over a DataFrame, batch or streaming."""

from __future__ import annotations

from collections.abc import Iterator  # noqa: TC003 - Spark inspects the type hints of the function
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mainstem.analysis.folds.fold import PREFIX, REVISION, TIMES, dump, from_arrow, from_pandas, load
from mainstem.capture.schema import arrow_kinds
from mainstem.spark.sources.features import in_groups

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

    from mainstem.analysis.folds.fold import Fold, Row


def schema(fold: Fold) -> str:
    """Return the schema of ``apply`` as DDL: the keys, a row's table, its revision, and a struct for each table."""
    keys = [f"{column.name} {column.type}" for column, _ in fold.keys]
    kinds = [f"{k.name} struct<{', '.join(f'{c.name}: {c.type}' for c in k.columns)}>" for k in fold.kinds]
    return ", ".join([*keys, "kind string", f"{REVISION.name} {REVISION.type}", *kinds])


def arrow_schema(fold: Fold) -> pa.Schema:
    types = arrow_kinds()
    keys = [pa.field(column.name, types[column.type]) for column, _ in fold.keys]
    kinds = [pa.field(k.name, pa.struct([pa.field(c.name, types[c.type]) for c in k.columns])) for k in fold.kinds]
    return pa.schema([*keys, pa.field("kind", pa.string()), pa.field(REVISION.name, pa.int64()), *kinds])


def rows_to_arrow(fold: Fold, key: tuple[Any, ...], rows: list[Row]) -> pa.RecordBatch:
    schema = arrow_schema(fold)
    columns: list[Any] = [pa.array([value] * len(rows), schema.field(i).type) for i, value in enumerate(key)]
    columns.append(pa.array([row.kind for row in rows], pa.string()))
    columns.append(pa.array([row.revision for row in rows], pa.int64()))
    columns += [
        pa.array([row.values if row.kind == kind.name else None for row in rows], schema.field(kind.name).type)
        for kind in fold.kinds
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _only(rows: Iterable[Row], kinds: frozenset[str]) -> list[Row]:
    return [row for row in rows if not kinds or row.kind in kinds]


def prepared(fold: Fold, frames: DataFrame) -> DataFrame:
    """Return the frames that a fold reads, with its keys and inputs as columns."""
    chosen = frames.where(fold.where)
    keys = [f"{expression} as {column.name}" for column, expression in fold.keys]
    return chosen.selectExpr(*keys, *(f"{expression} as {PREFIX}{name}" for name, expression in fold.inputs.items()))


def apply(fold: Fold, frames: DataFrame, *kinds: str) -> DataFrame:
    """Fold frames into the rows of all tables of ``fold``, or only of ``kinds``.

    In batch, each row appears once, in its final form. Memory is bounded by the fold's state, because Spark sorts the rows of a
    key on disk and the fold reads them in parts. In streaming, a row appears again with a higher revision whenever a micro-batch
    changes it; frames must be ordered by time across micro-batches.
    """
    ready = prepared(fold, frames)
    return _stream(fold, ready, frozenset(kinds)) if frames.isStreaming else _batch(fold, ready, frozenset(kinds))


def _batch(fold: Fold, ready: DataFrame, kinds: frozenset[str]) -> DataFrame:
    keys = [column.name for column, _ in fold.keys]

    def fold_batches(key: tuple[Any, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        values, state = tuple(scalar.as_py() for scalar in key), fold.fresh()
        for batch in batches:
            rows = _only(fold.feed(state, from_arrow(batch, fold.inputs)), kinds)
            if rows:
                yield rows_to_arrow(fold, values, rows)
        yield rows_to_arrow(fold, values, _only(fold.pending_rows(state), kinds))

    order = [*keys, *(PREFIX + name for name in TIMES)]
    # Grouping needs the rows of each key together and the keys in order. This does both, and sorts the rows of a key by time.
    ordered = ready.repartition(*keys).sortWithinPartitions(*order)
    return in_groups(ordered, keys, fold_batches, schema(fold), arrow_schema(fold))


def _stream(fold: Fold, ready: DataFrame, kinds: frozenset[str]) -> DataFrame:
    import pandas as pd

    keys = [column.name for column, _ in fold.keys]
    columns = arrow_schema(fold).names

    def fold_micro_batch(
        key: tuple[Any, ...], parts: Iterator[pd.DataFrame], checkpoint: Any
    ) -> Iterator[pd.DataFrame]:
        state = load(bytes(checkpoint.get[0])) if checkpoint.exists else fold.fresh()
        before = state.seen
        whole = pd.concat(list(parts), ignore_index=True)
        rows = fold.feed(state, from_pandas(whole, fold.inputs))
        rows += [row for row in fold.pending_rows(state) if row.revision > before]
        checkpoint.update((dump(state),))
        tuples = [
            (*key, row.kind, row.revision, *(_struct(row, kind) for kind in fold.kinds)) for row in _only(rows, kinds)
        ]
        yield pd.DataFrame(tuples, columns=columns)

    return ready.groupBy(*keys).applyInPandasWithState(
        fold_micro_batch, schema(fold), "state binary", "append", "NoTimeout"
    )


def _struct(row: Row, kind: Any) -> Any:
    if row.kind != kind.name:
        return None
    return {name: row.values.get(name) for name in _names(kind)}


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(column.name for column in kind.columns)
