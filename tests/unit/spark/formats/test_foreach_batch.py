"""Idempotent user-defined sinks, with a ledger or in the transaction that writes the rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

from mainstem.errors import ConfigurationError, MainstemError, StoreError
from mainstem.spark.foreach_batch import BatchWriter, idempotent, in_transaction

if TYPE_CHECKING:
    from pathlib import Path


def test_a_function_is_called_once_for_a_micro_batch(tmp_path: Path) -> None:
    calls: list[int] = []

    def send(batch: Any, number: int) -> None:
        if batch == "bad":
            raise OSError("the sink")
        calls.append(number)

    write = idempotent(send, tmp_path / "ledger", query_id="tides")
    write("rows", 0)
    write("rows", 0)
    with pytest.raises(OSError, match="the sink"):
        write("bad", 1)
    # The ledger also applies after a restart; failed micro-batches are repeated.
    again = idempotent(send, tmp_path / "ledger", query_id="tides")
    again("rows", 0)
    again("rows", 1)
    idempotent(send, tmp_path / "ledger", query_id="other")("rows", 0)
    assert calls == [0, 1, 0]
    # A query that began again has other rows under the same number.
    with pytest.raises(MainstemError, match="up to 1, so micro-batch 0 may have other rows"):
        again("rows", 0)
    with pytest.raises(ConfigurationError, match="is not a query name"):
        idempotent(send, tmp_path / "ledger", query_id="../tides")("rows", 0)


def numbers(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        return [n for (n,) in connection.execute("SELECT n FROM tides ORDER BY n")]


def insert(batch: list[int], connection: Any) -> None:
    connection.executemany("INSERT INTO tides VALUES (?)", ((n,) for n in batch))
    if -1 in batch:
        raise OSError("the power")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "tides.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE tides (n INTEGER)")
    return path


def test_rows_and_the_number_of_their_micro_batch_are_one_transaction(database: Path) -> None:
    write: Any = in_transaction(lambda: sqlite3.connect(database), insert, query_id="tides")
    write([1, 2], 0)
    write([1, 2], 0)
    with pytest.raises(OSError, match="the power"):
        write([3, -1], 1)
    assert numbers(database) == [1, 2]
    write([3], 1)
    in_transaction(lambda: sqlite3.connect(database), insert, query_id="other")([4], 0)  # type: ignore[arg-type]
    assert numbers(database) == [1, 2, 3, 4]
    with pytest.raises(MainstemError, match="up to 1, so micro-batch 0 may have other rows"):
        write([5], 0)
    assert numbers(database) == [1, 2, 3, 4]
    with pytest.raises(ConfigurationError, match="not a plain table name"):
        in_transaction(lambda: None, insert, table="a; DROP TABLE tides")


def test_of_two_drivers_of_one_query_one_writes(database: Path) -> None:
    write: Any = in_transaction(lambda: sqlite3.connect(database), insert, query_id="tides")
    write([1], 0)

    class Overtaken:
        """A cursor that lets another driver write the micro-batch after this one has read the last batch number."""

        def __init__(self, cursor: Any) -> None:
            self._cursor = cursor

        def __getattr__(self, name: str) -> Any:
            return getattr(self._cursor, name)

        def fetchone(self) -> Any:
            row = self._cursor.fetchone()
            write([2], 1)
            return row

    class Connection(sqlite3.Connection):
        def cursor(self, *arguments: Any, **options: Any) -> Any:
            return Overtaken(super().cursor(*arguments, **options))

    mine: Any = in_transaction(lambda: sqlite3.connect(database, factory=Connection), insert, query_id="tides")
    with pytest.raises(MainstemError, match="another driver"):
        mine([2], 1)
    assert numbers(database) == [1, 2]


class Uncompactable:
    """A table that accepts every micro-batch and whose compaction fails, with rows of another query."""

    name, target_bytes = "tides", 1 << 20

    def __init__(self) -> None:
        self.batches: list[int] = []

    def committed(self, query_id: str) -> int:
        return self.batches[-1] if self.batches else -1

    def is_empty(self) -> bool:
        return False

    def prepare(self, columns: Any, *, evolve: bool) -> None: ...

    def files(self, query_id: str, batch_id: int) -> Any: ...

    def commit(self, query_id: str, batch_id: int, files: Any) -> bool:
        self.batches.append(batch_id)
        return True

    def compact(self) -> Any:
        raise OverflowError("date value out of range")


def test_a_compaction_that_fails_is_logged_and_stops_no_query(caplog: pytest.LogCaptureFixture) -> None:
    batch = MagicMock()
    batch.toDF.return_value.mapInArrow.return_value.collect.return_value = []
    table: Any = Uncompactable()
    write = BatchWriter(table, compact_every=2, query_id="tides")
    for number in range(4):
        write(batch, number)
    assert table.batches == [0, 1, 2, 3]
    assert [each.getMessage() for each in caplog.records] == [
        f"tides: cannot compact after micro-batch {number}: date value out of range" for number in (1, 3)
    ]


def test_a_table_has_exactly_the_earlier_micro_batches_of_its_query() -> None:
    batch = MagicMock()
    batch.toDF.return_value.mapInArrow.return_value.collect.return_value = []
    table: Any = Uncompactable()
    with pytest.raises(StoreError, match="another query has written rows"):
        BatchWriter(table, query_id="tides", is_whole=True, append=False)(batch, 0)
    write = BatchWriter(table, query_id="tides", is_whole=True)
    for number in (0, 0, 1, 2):
        write(batch, number)
    with pytest.raises(StoreError, match="no micro-batch 3 of query tides: it was deleted or replaced"):
        write(batch, 4)
    with pytest.raises(MainstemError, match="up to 2, so micro-batch 1 may have other rows"):
        write(batch, 1)
    assert table.batches == [0, 1, 2]
