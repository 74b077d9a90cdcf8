"""A table in a format with a commit log, for the driver and the tasks of a micro-batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem.errors import ConfigurationError, StoreError
from mainstem.spark.formats.columns import check_names, check_types, difference, united

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from pyspark.sql.types import DataType, StructType

    from mainstem.spark.formats.columns import Path
    from mainstem.spark.formats.data_files import DataFiles

T = TypeVar("T")
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


class CommitConflictError(Exception):
    """The error if another writer committed first, or a commit's response was lost. Its cause is the library's error."""


@contextmanager
def conflicts(*kinds: type[Exception]) -> Iterator[None]:
    """Convert errors of these kinds to CommitConflictError."""
    try:
        yield
    except kinds as error:
        raise CommitConflictError from error


class Table(ABC):
    """A table that the driver writes to. If another writer commits first, this reads the table again and checks what remains.

    ``partition_by`` applies only to a new table. ``target_bytes`` is the size at which tasks and compactions start another file.
    """

    format: str
    rules = ColumnRules()

    def __init__(self, name: str, partition_by: Sequence[str], target_bytes: int) -> None:
        self.name, self.target_bytes, self._partition_by = name, target_bytes, list(partition_by)
        # The table as read at the start of the micro-batch.
        self._table: Any = None

    @abstractmethod
    def _load(self) -> Any:
        """Return the current table as the format's library has it, or None."""

    @abstractmethod
    def _columns(self, table: Any) -> StructType: ...

    @abstractmethod
    def _last_batch(self, table: Any, query_id: str) -> int:
        """Return the number of the last committed micro-batch of a query, or -1."""

    @abstractmethod
    def _is_empty(self, table: Any) -> bool: ...

    @abstractmethod
    def _create(self, columns: StructType) -> None: ...

    @abstractmethod
    def _change_columns(self, table: Any, columns: StructType) -> None: ...

    @abstractmethod
    def _append(self, table: Any, query_id: str, batch_id: int, files: Sequence[bytes]) -> None:
        """Add files to the table, and note the micro-batch, in one commit."""

    @abstractmethod
    def files(self, query_id: str, batch_id: int) -> DataFiles:
        """Return the files of one micro-batch."""

    @abstractmethod
    def compact(self, *, keep_s: float | None = None) -> Compaction:
        """Join small files. With ``keep_s``, also delete files that no reader has needed for that many seconds."""

    def existing(self) -> Any:
        """Return the current table. Raises ConfigurationError if it does not exist."""
        table = self._load()
        if table is None:
            raise ConfigurationError(f"there is no {self.format} table {self.name}")
        return table

    def columns(self) -> StructType | None:
        """Return the table's columns, or None if there is no table yet."""
        table = self._load()
        return None if table is None else self._columns(table)

    def is_empty(self) -> bool:
        """Return whether the table has no data files, or does not exist yet."""
        table = self._load()
        return table is None or self._is_empty(table)

    def committed(self, query_id: str) -> int:
        """Return the number of the last committed micro-batch of a query, or -1."""
        self._table = self._load()
        return -1 if self._table is None else self._last_batch(self._table, query_id)

    def prepare(self, columns: StructType, *, evolve: bool) -> None:
        """Create the table, or with ``evolve`` add the columns that it lacks. Raises ConfigurationError."""
        check_types(columns, self.format)
        check_names(columns, self.format, self.rules.name_key)
        columns = self.rules.stored(columns)

        def attempt() -> None:
            table, self._table = self._table or self._load(), None
            if table is None:
                self._create(columns)
                return
            before = self._columns(table)
            whole = united(before, columns, self.rules.widens)
            if not (change := difference(before, whole)):
                self._table = table
            elif evolve:
                self._change_columns(table, whole)
            else:
                raise ConfigurationError(
                    f"{self.name} has other columns than the rows: {change}; `evolve` adds columns"
                )

        self.retry(attempt, "change the columns")

    def commit(self, query_id: str, batch_id: int, files: Sequence[bytes]) -> bool:
        """Add the files to the table in one commit. Returns False if the micro-batch was already committed."""

        def attempt() -> bool:
            table, self._table = self._table or self.existing(), None
            if self._last_batch(table, query_id) >= batch_id:
                # Already committed, by another driver of this query or by an attempt whose response was lost.
                return False
            self._append(table, query_id, batch_id, files)
            return True

        return self.retry(attempt, f"commit micro-batch {batch_id} of {query_id}")

    def retry(self, attempt: Callable[[], T], what: str) -> T:
        """Call ``attempt`` until its commit has no conflict. Raises StoreError after ``COMMIT_ATTEMPTS`` conflicts."""
        error: BaseException | None = None
        for _ in range(COMMIT_ATTEMPTS):
            try:
                return attempt()
            except CommitConflictError as conflict:
                error = conflict.__cause__
        raise StoreError(self.name, f"cannot {what}: {error}") from error
