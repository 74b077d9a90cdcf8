"""Micro-batches of a table ``n bigint, place string``, written as a task writes them, for the tests of table formats."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from mainstem.spark.formats.data_files import WriteFiles

QUERY, OTHER = "0b51a9a0-0000-4000-8000-000000000001", "0b51a9a0-0000-4000-8000-000000000002"


def columns(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


SIMPLE = columns(n=LongType(), place=StringType())


def batch(numbers: list[int | None], place: str | None = "Brest") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int64()), "place": [place] * len(numbers)})


def files(
    table: Any, batch_id: int, batches: list[pa.RecordBatch], size: int = 1 << 20, query: str = QUERY
) -> list[bytes]:
    """Return what a task of a micro-batch returns. The writer is pickled, as it is for a task."""
    task = pickle.loads(pickle.dumps(WriteFiles(table.files(query, batch_id), size)))
    (result,) = task(iter(batches))
    return [bytes(each) for each in result.column(0).to_pylist()]
