"""What a format of tables does, for the driver and for the tasks of a micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from mainstem.spark.formats.column_bounds import ColumnBounds
    from mainstem.spark.formats.names import Path

DEFAULT_FILE_SIZE = 128 << 20
# Commits of others that one commit may meet before it gives up: each of them was a success of another writer.
COMMIT_ATTEMPTS = 20


@dataclass(frozen=True)
class Compaction:
    """What a compaction did: how many data files it replaced, by how many, and how many unreferenced files it deleted."""

    replaced: int
    by: int
    deleted: int = 0


class DataFiles(Protocol):
    """The data files of one table, for the tasks; pickled to them."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the files."""
        ...

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[Hashable, pa.RecordBatch]]:
        """The rows of each partition of the table, in the columns of the files."""
        ...

    def create(self, partition: Any) -> Any:
        """A new file of a partition: ``name``, ``sink`` (a binary file to write to), ``close()`` and ``discard()``."""
        ...

    @property
    def bounded(self) -> Sequence[str]:
        """The columns whose bounds ``describe`` needs."""
        ...

    def describe(self, partition: Any, file: Any, metadata: Any, bounds: ColumnBounds) -> bytes:
        """What the commit needs to know of a closed file, from its Parquet footer and the bounds of its columns."""
        ...


class Table(Protocol):
    """A table that is written to, for the driver."""

    @property
    def name(self) -> str:
        """What it is called in messages."""
        ...

    def columns(self) -> StructType | None:
        """Its columns; None where there is no table yet."""
        ...

    def stored(self, columns: StructType) -> StructType:
        """Columns in the types that the format stores them in, where it lacks some of Spark's."""
        ...

    def name_key(self, path: Path) -> Hashable:
        """What the format tells the names of columns and their members apart by."""
        ...

    def widens(self, before: DataType, now: DataType) -> bool:
        """Whether a column of the first type can become one of the second, with the values that it has."""
        ...

    def prepare(self, columns: StructType, *, evolve: bool) -> None:
        """Creates the table, or adds the columns that it lacks where ``evolve`` is true. Raises ConfigurationError."""
        ...

    def committed(self, query_id: str) -> int:
        """The number of the last micro-batch of a query that is committed; -1 where there is none."""
        ...

    def files(self, query_id: str, batch_id: int) -> DataFiles:
        """The files of one micro-batch."""
        ...

    def commit(self, query_id: str, batch_id: int, files: Sequence[bytes]) -> bool:
        """Makes the files part of the table, at once; False where the micro-batch is committed already."""
        ...

    def compact(self, *, keep_s: float | None = None) -> Compaction:
        """Joins small files; with ``keep_s`` deletes files that no reader of the last so many seconds needs."""
        ...
