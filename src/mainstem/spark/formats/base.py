"""The interface of a table format, for the driver and the tasks of a micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from pyspark.sql.types import DataType, StructType

    from mainstem.spark.formats.columns import Path
    from mainstem.spark.formats.data_files import DataFiles

DEFAULT_FILE_SIZE = 128 << 20
# Commits are retried because other writers commit too. Each failed attempt means that another writer succeeded.
COMMIT_ATTEMPTS = 20


@dataclass(frozen=True)
class Compaction:
    """The result of a compaction: data files replaced, data files written, and unreferenced files deleted."""

    replaced: int
    by: int
    deleted: int = 0


class ColumnRules:
    """The rules by which a format changes Spark's columns. The default rules change nothing."""

    def stored(self, columns: StructType) -> StructType:
        """Return the columns in the types that the format stores them in."""
        return columns

    def name_key(self, path: Path) -> Hashable:
        """Return the key that makes names of columns and struct fields distinct."""
        return path

    def widens(self, before: DataType, now: DataType) -> bool:  # noqa: ARG002
        """Return whether a column can change from one type to the other without changing its values."""
        return False


class Table(Protocol):
    """A table that the driver writes to."""

    name: str
    rules: ColumnRules

    def columns(self) -> StructType | None:
        """Return the table's columns, or None if there is no table yet."""
        ...

    def prepare(self, columns: StructType, *, evolve: bool) -> None:
        """Create the table, or with ``evolve`` add the columns that it lacks. Raises ConfigurationError."""
        ...

    def committed(self, query_id: str) -> int:
        """Return the number of the last committed micro-batch of a query, or -1."""
        ...

    def files(self, query_id: str, batch_id: int) -> DataFiles:
        """Return the files of one micro-batch."""
        ...

    def commit(self, query_id: str, batch_id: int, files: Sequence[bytes]) -> bool:
        """Add the files to the table in one commit. Returns False if the micro-batch was already committed."""
        ...

    def compact(self, *, keep_s: float | None = None) -> Compaction:
        """Join small files. With ``keep_s``, also delete files that no reader has needed for that many seconds."""
        ...
