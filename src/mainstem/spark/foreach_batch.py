"""Functions for ``foreachBatch`` that write each micro-batch of a streaming query exactly once, to tables or your own sink.

Spark repeats a micro-batch if the driver stops before it has written the checkpoint. ``to_delta`` and ``to_iceberg`` write tables
whose commits contain the number of the micro-batch. ``in_transaction`` stores the number in the database, in the same transaction
as the rows. ``idempotent`` stores it separately, for sinks without transactions. All of them take the query's id from its
checkpoint, so a new checkpoint means a new query. Only one driver may run a query at a time.
"""

from __future__ import annotations

import logging
import re
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError, MainstemError, StoreError
from mainstem.spark.formats.base import DEFAULT_FILE_SIZE
from mainstem.spark.formats.data_files import FILE_DDL, WriteFiles
from mainstem.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from mainstem.spark.formats.base import Compaction, Table

__all__ = ["idempotent", "in_transaction", "to_delta", "to_iceberg"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,127}")


def to_delta(
    url: str | Path,
    *,
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    evolve: bool = False,
    target_file_size: int = DEFAULT_FILE_SIZE,
    compact_every: int = 0,
    query_id: str = "",
) -> Callable[[DataFrame, int], None]:
    """Write micro-batches to a Delta table. Executors write data files, and the driver commits each micro-batch once.

    Args:
        url: A directory that driver and executors share, or a URL. The table is created if it does not exist.
        partition_by: The columns that a new table is partitioned by.
        options: Store options, under their pyarrow or Hadoop names.
        evolve: Whether to add columns that the table lacks. Otherwise a batch with such columns is refused.
        target_file_size: File size in bytes at which a task starts another file.
        compact_every: Compact small files after this many micro-batches, on the driver; 0 for never.
        query_id: The name of the query in commits; empty for the id in its checkpoint.

    Returns:
        The function for ``foreachBatch``.

    Raises:
        ConfigurationError: No store supports the URL.
        MissingExtraError: deltalake is not installed.

    Example:
        >>> writer = df.writeStream.foreachBatch(to_delta("/data/tides", partition_by=["date"]))
        >>> query = writer.option("checkpointLocation", "/data/checkpoints/tides").start()
    """
    from mainstem.spark.formats.delta import DeltaTable

    table = DeltaTable(str(url), options, partition_by, target_file_size)
    return BatchWriter(table, evolve=evolve, compact_every=compact_every, query_id=query_id)


def to_iceberg(
    table: str,
    *,
    warehouse: str | Path = "",
    catalog: str = "",
    catalog_options: Mapping[str, str] | None = None,
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    evolve: bool = False,
    target_file_size: int = DEFAULT_FILE_SIZE,
    compact_every: int = 0,
    query_id: str = "",
) -> Callable[[DataFrame, int], None]:
    """Write micro-batches to an Iceberg table. Executors write data files, and the driver commits each micro-batch once.

    Args:
        table: The name in the catalog, such as ``sea.tides``. The table is created if it does not exist.
        warehouse: The location of new tables. Without ``catalog`` and ``catalog_options``, a directory, which also holds
            the catalog file.
        catalog: The name of a catalog in pyiceberg's configuration.
        catalog_options: Catalog options, such as ``uri``.
        partition_by: The columns that a new table is partitioned by.
        options: Options of the warehouse's store, under their pyarrow or Hadoop names.
        evolve: Whether to add columns that the table lacks and to widen types. Otherwise such a batch is refused.
        target_file_size: File size in bytes at which a task starts another file.
        compact_every: Compact small files after this many micro-batches, on the driver; 0 for never.
        query_id: The name of the query in commits; empty for the id in its checkpoint.

    Returns:
        The function for ``foreachBatch``.

    Raises:
        ConfigurationError: The name has no namespace.
        MissingExtraError: pyiceberg is not installed.

    Example:
        >>> write = to_iceberg("sea.tides", catalog="lake", catalog_options={"uri": "http://127.0.0.1:8181"})
        >>> df.writeStream.foreachBatch(write).option("checkpointLocation", "/data/checkpoints/tides").start()
    """
    from mainstem.spark.formats.iceberg import IcebergTable, open_catalog

    connect = partial(open_catalog, str(warehouse), name=catalog, options=catalog_options, store=options)
    written = IcebergTable(connect, table, partition_by, target_file_size)
    return BatchWriter(written, evolve=evolve, compact_every=compact_every, query_id=query_id)


def idempotent(
    function: Callable[[DataFrame, int], Any],
    ledger: str | Path,
    *,
    options: Mapping[str, str] | None = None,
    query_id: str = "",
) -> Callable[[DataFrame, int], None]:
    """Call a function for each micro-batch, but not again for one for which it has returned.

    Use it for a sink without transactions. A micro-batch is repeated only if the driver stops while the function runs, or after it
    has returned but before the ledger is written. The function must tolerate that, for example by writing rows under keys.

    Args:
        function: A function as for ``foreachBatch``, called with the micro-batch and its number.
        ledger: A directory or URL with a file for each query, which holds the number of its last micro-batch.
        options: Options of the ledger's store.
        query_id: The name of the query's file; empty for the id in its checkpoint.

    Returns:
        The function for ``foreachBatch``.

    Raises:
        ConfigurationError: No store supports the URL.

    Example:
        >>> df.writeStream.foreachBatch(idempotent(send_mail, "/data/ledger")).start()
    """
    store = open_store(ledger, options)

    def write(batch: DataFrame, batch_id: int) -> None:
        name = _checked(query_id or query_id_of(batch))
        with suppress(FileNotFoundError):
            if _is_written(int(store.read(name, 0, 20)), batch_id, name, store.url):
                return
        function(batch, batch_id)
        store.put(name, str(batch_id).encode())

    return write


def in_transaction(
    connect: Callable[[], Any],
    function: Callable[[DataFrame, Any], Any],
    *,
    table: str = "mainstem_batches",
    query_id: str = "",
) -> Callable[[DataFrame, int], None]:
    """Call a function for each micro-batch in a database transaction that also stores the micro-batch's number.

    If the function writes the rows through the connection that it gets, each micro-batch is in the database exactly once. The
    function runs on the driver. Use ``batch.toLocalIterator()`` to fetch the rows in parts.

    Args:
        connect: Opens a connection (PEP 249) without autocommit. It is closed after the micro-batch.
        function: Called with the micro-batch and the connection. It must not commit or roll back.
        table: The table for the numbers (``query_id``, ``batch_id``). It is created if it does not exist.
        query_id: The name of the query in that table; empty for the id in its checkpoint.

    Returns:
        The function for ``foreachBatch``.

    Raises:
        ConfigurationError: The table's name is not a plain one, which consists of letters, digits, ``_`` and ``.``.

    Example:
        >>> def insert(batch, connection):
        ...     rows = ((row.n, row.place) for row in batch.toLocalIterator())
        ...     connection.cursor().executemany("INSERT INTO tides VALUES (?, ?)", rows)
        >>> df.writeStream.foreachBatch(in_transaction(lambda: sqlite3.connect("tides.db"), insert)).start()
    """
    if not _TABLE.fullmatch(table):
        raise ConfigurationError(f"{table!r} is not a plain table name: use letters, digits, '_' and '.'")

    def write(batch: DataFrame, batch_id: int) -> None:
        name = _checked(query_id or query_id_of(batch))
        with closing(connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {table} (query_id VARCHAR(64) PRIMARY KEY, batch_id BIGINT NOT NULL)"
            )
            connection.commit()
            try:
                if _claim(cursor, table, name, batch_id):
                    function(batch, connection)
                    connection.commit()
            except BaseException:
                connection.rollback()
                raise

    return write


def _claim(cursor: Any, table: str, query_id: str, batch_id: int) -> bool:
    """Store the number of a micro-batch in the transaction. Returns False if it is already stored."""
    cursor.execute(f"SELECT batch_id FROM {table} WHERE query_id = '{query_id}'")
    row = cursor.fetchone()
    if row is None:
        cursor.execute(f"INSERT INTO {table} (query_id, batch_id) VALUES ('{query_id}', {batch_id:d})")
        return True
    if _is_written(int(row[0]), batch_id, query_id, table):
        return False
    # If another driver of this query was faster, it has changed the row, and the condition matches no row.
    cursor.execute(
        f"UPDATE {table} SET batch_id = {batch_id:d} WHERE query_id = '{query_id}' AND batch_id = {int(row[0])}"
    )
    if cursor.rowcount == 0:
        raise MainstemError(f"another driver is writing micro-batches of query {query_id}")
    return True


def _is_written(last: int, batch_id: int, query_id: str, where: str) -> bool:
    """Return whether a micro-batch is the last one of its query in a sink. Raises MainstemError if it comes before that.

    Spark repeats only the last micro-batch. An earlier number means that the query began again, so it may stand for other rows.
    """
    if last > batch_id:
        raise MainstemError(
            f"{where} has micro-batches of query {query_id} up to {last}, so micro-batch {batch_id} may have other rows: the "
            "checkpoint was deleted or restored from an older copy, or another driver runs the query; use the checkpoint that "
            "wrote them, or another query_id"
        )
    return last == batch_id


def _checked(query_id: str) -> str:
    if not _NAME.fullmatch(query_id):
        raise ConfigurationError(f"{query_id!r} is not a query name: letters, digits, '-', '_' and '.', at most 64")
    return query_id


# -- tables ------------------------------------------------------------------------------------------------------------


log = logging.getLogger("mainstem.spark")


class BatchWriter:
    """A writer of micro-batches to a table, with one commit per call. A call for a committed micro-batch does nothing."""

    def __init__(
        self,
        table: Table,
        *,
        evolve: bool = False,
        compact_every: int = 0,
        query_id: str = "",
        is_whole: bool = False,
        append: bool = True,
    ) -> None:
        """With ``is_whole``, the table must have all earlier micro-batches. Without ``append``, it must have no other rows."""
        self._table, self._evolve = table, evolve
        self._is_whole, self._append = is_whole, append
        self._compact_every, self._query_id = compact_every, query_id
        self._prepared = ""
        self.compactions: list[Compaction] = []

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        query_id = self._query_id or query_id_of(batch)
        last = self._table.committed(query_id)
        if _is_written(last, batch_id, query_id, self._table.name):
            return
        if self._is_whole and last != batch_id - 1:
            raise StoreError(
                self._table.name,
                f"the table has no micro-batch {batch_id - 1} of query {query_id}: it was deleted or replaced; delete the "
                "checkpoint too, to write everything again",
            )
        if batch_id == 0 and not self._append and not self._table.is_empty():
            raise StoreError(self._table.name, "another query has written rows; stop it, or use another table")
        if (columns := batch.schema.json()) != self._prepared:
            self._table.prepare(batch.schema, evolve=self._evolve)
            self._prepared = columns
        names = batch.schema.names
        write = WriteFiles(self._table.files(query_id, batch_id), self._table.target_bytes, names)
        # mapInArrow interprets dots and backticks in names, so number the columns.
        numbered = batch.toDF(*(f"c{number}" for number in range(len(names))))
        # The driver receives one row per file.
        files = [bytes(row[0]) for row in numbered.mapInArrow(write, FILE_DDL).collect()]
        self._table.commit(query_id, batch_id, files)
        if self._compact_every and batch_id % self._compact_every == self._compact_every - 1:
            self._compact(batch_id)

    def _compact(self, batch_id: int) -> None:
        try:
            self.compactions.append(self._table.compact())
        except Exception as error:
            # The micro-batch is committed, and the next compaction will include these files.
            log.warning("%s: cannot compact after micro-batch %d: %s", self._table.name, batch_id, error)


def query_id_of(batch: DataFrame) -> str:
    """Return the id of a micro-batch's query, from its checkpoint. Raises ConfigurationError if there is none."""
    query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not query_id:
        raise ConfigurationError("this is not a micro-batch of a streaming query; pass query_id=")
    return str(query_id)
