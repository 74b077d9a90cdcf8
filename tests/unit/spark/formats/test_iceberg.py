"""Iceberg tables without a JVM: other readers read what the tasks write and the driver commits."""

from __future__ import annotations

import gc
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.waiting import wait_for

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.errors import ConfigurationError, StoreError

pytest.importorskip("pyiceberg")
duckdb = pytest.importorskip("duckdb")
polars = pytest.importorskip("polars")
types = pytest.importorskip("pyspark.sql.types")
from_arrow_schema = pytest.importorskip("pyspark.sql.pandas.types").from_arrow_schema

from pyiceberg.expressions import EqualTo, GreaterThan  # noqa: E402
from tests.support.table_batches import OTHER, QUERY, SIMPLE, batch, columns, files  # noqa: E402

from mainstem.spark.formats import data_files  # noqa: E402
from mainstem.spark.formats.data_files import WriteFiles  # noqa: E402
from mainstem.spark.formats.iceberg import IcebergTable, open_catalog  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


TIDE = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)


class Warehouse:
    """The tables of one warehouse; their catalogs are closed at the end."""

    def __init__(self, path: Path) -> None:
        self._path, self._catalogs = path, []

    def table(self, partition_by: tuple[str, ...] = ("place",), **options: Any) -> IcebergTable:
        catalog = open_catalog(str(self._path))
        self._catalogs.append(catalog)
        return IcebergTable(lambda: catalog, "sea.tides", partition_by, **options)

    def close(self) -> None:
        for catalog in self._catalogs:
            catalog.close()


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: Any) -> Iterator[Warehouse]:
    # Polars would warn that its planner, a separate package, is not installed.
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    made = Warehouse(tmp_path / "warehouse")
    yield made
    made.close()


@pytest.fixture
def table(warehouse: Warehouse) -> IcebergTable:
    made = warehouse.table()
    made.prepare(SIMPLE, evolve=False)
    return made


def rows(table: IcebergTable) -> list[dict[str, Any]]:
    return sorted(table.existing().scan().to_arrow().to_pylist(), key=repr)


def numbers(table: IcebergTable) -> list[int]:
    return sorted(row["n"] for row in rows(table))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.date32(), -719_529),  # the first day of the year 0
        (pa.date32(), 2_932_897),  # after the year 9999
        (pa.timestamp("us", "UTC"), -(1 << 63)),
        (pa.timestamp("us"), 253_402_300_800_000_000),
        (pa.string(), "x" * 15 + "\ud7ff" + "y"),
        (pa.string(), "\ud7ff" + "\U0010ffff" * 16),
        (pa.string(), "\U0010ffff" * 17),
        (pa.binary(), b"\xff" * 17),
        (pa.float64(), float("nan")),
    ],
    ids=[
        "year 0",
        "year 10000",
        "least time",
        "greatest time",
        "U+D7FF",
        "before U+10FFFF",
        "U+10FFFF",
        "binary",
        "NaN",
    ],
)
def test_a_value_that_pyiceberg_has_no_bound_for_is_written_and_found(
    warehouse: Warehouse, kind: pa.DataType, value: Any
) -> None:
    ints = {pa.date32(): pa.int32()}.get(kind, pa.int64() if pa.types.is_timestamp(kind) else kind)
    column = pa.array([value], ints).cast(kind)
    batch_ = pa.RecordBatch.from_arrays(
        [column, pa.StructArray.from_arrays([column], ["member"])], names=["odd", "inner"]
    )
    table = warehouse.table(())
    table.prepare(from_arrow_schema(batch_.schema, prefer_timestamp_ntz=True), evolve=False)
    for number in range(2):
        table.commit(QUERY, number, files(table, number, [batch_]))
    table.compact()
    read = table.existing().scan().to_arrow()
    # Compare as text, because NaN equals nothing.
    assert repr(read["odd"].cast(ints).to_pylist()) == repr([value] * 2)
    if pa.types.is_string(kind):
        assert table.existing().scan(row_filter=EqualTo("odd", value)).to_arrow().num_rows == 2


def test_bounds_of_a_column_cover_all_row_groups_or_none(warehouse: Warehouse, monkeypatch: Any) -> None:
    monkeypatch.setattr(data_files, "ROW_GROUP_BYTES", 1)
    table = warehouse.table(())
    table.prepare(SIMPLE, evolve=False)
    # Arrow keeps no row group bounds for a text this long.
    table.commit(QUERY, 0, files(table, 0, [batch([1], "a"), batch([2], "z" * 5000), batch([None], None)]))
    (task,) = table.existing().scan().plan_files()
    assert (task.file.lower_bounds.keys(), task.file.upper_bounds.keys()) == ({1}, {1})
    assert table.existing().scan(row_filter=GreaterThan("place", "y")).to_arrow().num_rows == 1


def test_values_of_every_type_round_trip_through_duckdb_polars_and_pyiceberg(warehouse: Warehouse) -> None:
    kinds = columns(
        date=types.DateType(),
        flag=types.BooleanType(),
        byte=types.ByteType(),
        price=types.DecimalType(20, 4),
        ratio=types.DoubleType(),
        raw=types.BinaryType(),
        at=types.TimestampType(),
        local=types.TimestampNTZType(),
        inner=columns(a=types.LongType(), tags=types.ArrayType(types.StringType())),
        counts=types.MapType(types.StringType(), types.LongType()),
    )
    table = warehouse.table(("date",))
    table.prepare(kinds, evolve=False)
    value = {
        "date": date(2026, 1, 31),
        "flag": True,
        "byte": -1,
        "price": Decimal("1234567890123456.7891"),
        "ratio": 0.5,
        "raw": b"\x00\xff",
        "at": TIDE,
        "local": TIDE.replace(tzinfo=None),
        "inner": {"a": 1 << 62, "tags": ["x", None]},
        "counts": [("k", 2)],
    }
    empty = dict.fromkeys(value)
    schema = pa.schema(
        [
            ("date", pa.date32()), ("flag", pa.bool_()), ("byte", pa.int8()), ("price", pa.decimal128(20, 4)),
            ("ratio", pa.float64()), ("raw", pa.binary()), ("at", pa.timestamp("us", "Europe/Paris")),
            ("local", pa.timestamp("us")), ("inner", pa.struct([("a", pa.int64()), ("tags", pa.list_(pa.string()))])),
            ("counts", pa.map_(pa.string(), pa.int64())),
        ]
    )  # fmt: skip
    table.commit(QUERY, 0, files(table, 0, [pa.RecordBatch.from_pylist([value, empty], schema)]))
    lake = table.existing().scan().to_arrow()
    assert sorted(lake.to_pylist(), key=repr) == sorted([value, empty], key=repr)
    read = duckdb.sql('select "date", price, "inner".a, raw from lake where flag').fetchall()
    assert read == [(value["date"], value["price"], 1 << 62, b"\x00\xff")]
    frame = polars.scan_iceberg(table.existing()).filter(polars.col("flag")).collect()
    assert (frame["price"][0], frame["at"][0], frame["inner"][0]["a"]) == (value["price"], TIDE, 1 << 62)
    assert table.columns().jsonValue() == table.rules.stored(kinds).jsonValue()


@pytest.mark.parametrize("place", ["Brest", "a/b", "x=1", "100 % sûr?", "..", "", None])
def test_any_text_is_a_partition(table: IcebergTable, place: str | None) -> None:
    table.commit(QUERY, 0, files(table, 0, [batch([1, 2], place)]))
    assert [row["place"] for row in rows(table)] == [place] * 2
    (file,) = table.existing().scan().plan_files()
    assert file.file.partition[0] == place


def test_a_micro_batch_that_is_repeated_is_committed_once(table: IcebergTable) -> None:
    assert table.committed(QUERY) == -1
    assert table.commit(QUERY, 0, files(table, 0, [batch([1])]))
    assert table.committed(QUERY) == 0
    assert not table.commit(QUERY, 0, files(table, 0, [batch([1])]))
    # Data files of an attempt that failed before its commit.
    files(table, 1, [batch([2])])
    assert table.commit(QUERY, 1, files(table, 1, [batch([2])]))
    assert table.commit(OTHER, 0, files(table, 0, [batch([3])], query=OTHER))
    assert table.commit(QUERY, 2, [])
    assert numbers(table) == [1, 2, 3]
    assert table.committed(QUERY) == 2
    assert table.existing().snapshots()[0].summary.additional_properties["mainstem.batch-id"] == "0"
    assert "commit.retry.num-retries" not in table.existing().metadata.properties


def race(monkeypatch: Any, then: Any) -> None:
    """Run ``then`` between the next read of a table and the commit to it."""
    load = IcebergTable._load

    def raced(self: IcebergTable) -> Any:
        read = load(self)
        monkeypatch.setattr(IcebergTable, "_load", load)
        then()
        return read

    monkeypatch.setattr(IcebergTable, "_load", raced)


def test_a_micro_batch_reads_the_table_when_it_starts_and_when_it_commits(
    table: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns, load, reads = table.columns(), IcebergTable._load, []

    def counted(self: IcebergTable) -> Any:
        reads.append(load(self))
        return reads[-1]

    monkeypatch.setattr(IcebergTable, "_load", counted)
    assert table.committed(QUERY) == -1
    table.prepare(columns, evolve=False)
    assert table.commit(QUERY, 0, files(table, 0, [batch([1])]))
    assert len(reads) == 2


def test_of_two_drivers_of_one_query_one_commits(table: IcebergTable, warehouse: Warehouse, monkeypatch: Any) -> None:
    mine, theirs = (files(table, 0, [batch([1])]) for _ in range(2))
    race(monkeypatch, lambda: warehouse.table().commit(QUERY, 0, theirs))
    assert not table.commit(QUERY, 0, mine)
    assert numbers(table) == [1]


def test_commits_of_another_query_and_a_compaction_in_between_disturb_nothing(
    table: IcebergTable, warehouse: Warehouse, monkeypatch: Any
) -> None:
    for number in range(4):
        table.commit(QUERY, number, files(table, number, [batch([number])]))
    other = warehouse.table()

    def theirs() -> None:
        assert other.commit(OTHER, 0, files(other, 0, [batch([100])], query=OTHER))
        assert other.compact().replaced == 5

    mine = files(table, 4, [batch([4])])
    race(monkeypatch, theirs)
    assert table.commit(QUERY, 4, mine)
    assert numbers(table) == [0, 1, 2, 3, 4, 100]


def test_a_compaction_loses_no_earlier_append_and_yields_to_another_compaction(
    table: IcebergTable, warehouse: Warehouse, monkeypatch: Any
) -> None:
    for number in range(4):
        table.commit(QUERY, number, files(table, number, [batch([number])]))
    other = warehouse.table()
    theirs = files(other, 0, [batch([100])], query=OTHER)
    load = IcebergTable.existing
    calls = []

    def raced(self: IcebergTable) -> Any:
        read = load(self)
        calls.append(read)
        if len(calls) == 2:
            other.commit(OTHER, 0, theirs)
        return read

    with monkeypatch.context() as patch:
        patch.setattr(IcebergTable, "existing", raced)
        assert table.compact().replaced == 4
    assert numbers(table) == [0, 1, 2, 3, 100]
    calls.clear()

    def overtaken(self: IcebergTable) -> Any:
        read = load(self)
        calls.append(read)
        if len(calls) == 1:
            with monkeypatch.context() as patch:
                patch.setattr(IcebergTable, "existing", load)
                assert other.compact().replaced == 2
        return read

    with monkeypatch.context() as patch:
        patch.setattr(IcebergTable, "existing", overtaken)
        with pytest.raises(StoreError, match="another writer replaced"):
            table.compact()
    assert numbers(table) == [0, 1, 2, 3, 100]


def test_exactly_once_survives_compaction_and_expiry_and_unreferenced_files_are_deleted(
    table: IcebergTable, tmp_path: Path
) -> None:
    files(table, 0, [batch([7])])
    for number in range(6):
        table.commit(QUERY, number, files(table, number, [batch([number])]))
    kept = table.compact(keep_s=7200)
    assert (kept.replaced, kept.by, kept.deleted) == (6, 1, 0)
    foreign = tmp_path / "warehouse" / "sea" / "tides" / "data" / "of-others.parquet"
    foreign.write_text("")
    # Only files older than this millisecond are deleted.
    newest = max(snapshot.timestamp_ms for snapshot in table.existing().snapshots())
    wait_for(lambda: SYSTEM_CLOCK.epoch_ms() > newest, "a later millisecond")
    assert table.compact(keep_s=0).deleted == 7
    assert len(list((tmp_path / "warehouse").rglob("part-*.parquet"))) == 0
    assert foreign.exists()
    assert not table.commit(QUERY, 5, files(table, 5, [batch([5])]))
    assert numbers(table) == list(range(6))


def test_a_task_writes_files_of_the_target_size(table: IcebergTable) -> None:
    batches = [batch(list(range(i * 5000, i * 5000 + 5000)), f"place {i % 3}") for i in range(30)]
    table.commit(QUERY, 0, files(table, 0, batches, 20_000))
    sizes = [task.file.file_size_in_bytes for task in table.existing().scan().plan_files()]
    assert len(sizes) > 5
    assert max(sizes) < 60_000
    assert numbers(table) == list(range(150_000))


def test_a_task_that_fails_leaves_no_file(table: IcebergTable, tmp_path: Path) -> None:
    def failing() -> Any:
        yield batch([1])
        raise RuntimeError("the source")

    with pytest.raises(RuntimeError, match="the source"):
        list(WriteFiles(table.files(QUERY, 0), 1 << 20)(failing()))
    assert list((tmp_path / "warehouse").rglob("*.parquet")) == []


def test_columns_are_added_and_widened_only_on_request(warehouse: Warehouse) -> None:
    table = warehouse.table()
    table.prepare(columns(n=types.ShortType(), place=types.StringType()), evolve=False)
    table.commit(QUERY, 0, files(table, 0, [batch([1])]))
    # Both are the same type in Iceberg.
    table.prepare(columns(n=types.ByteType(), place=types.StringType()), evolve=False)
    wider = columns(n=types.LongType(), place=types.StringType(), inner=columns(a=types.LongType()))
    with pytest.raises(
        ConfigurationError, match="n is int in the table and bigint here, inner struct<a:bigint> is only here"
    ):
        table.prepare(wider, evolve=False)
    table.prepare(wider, evolve=True)
    later = pa.RecordBatch.from_pylist([{"n": 1 << 40, "place": None, "inner": {"a": 5}}])
    table.commit(QUERY, 1, files(table, 1, [later]))
    table.prepare(columns(inner=columns(b=types.StringType())), evolve=True)
    table.commit(QUERY, 2, files(table, 2, [batch([3])]))
    assert [row["n"] for row in rows(table)] == [1, 1 << 40, 3]
    assert [row["inner"] for row in rows(table)] == [None, {"a": 5, "b": None}, None]
    with pytest.raises(ConfigurationError, match="n is bigint in the table and string here"):
        table.prepare(columns(n=types.StringType()), evolve=True)
    assert table.compact().replaced == 2
    assert [row["n"] for row in rows(table)] == [1, 1 << 40, 3]


def test_filters_skip_files_but_never_a_matching_row(warehouse: Warehouse) -> None:
    table = warehouse.table(())
    table.prepare(columns(n=types.LongType(), at=types.TimestampType(), ratio=types.DoubleType()), evolve=False)
    value = {"n": None, "at": TIDE, "ratio": float("nan")}
    table.commit(QUERY, 0, files(table, 0, [pa.RecordBatch.from_pylist([value, {**value, "n": 5, "ratio": 1.0}])]))
    frame = polars.scan_iceberg(table.existing())
    assert frame.filter(polars.col("at") >= TIDE).collect().height == 2
    assert frame.filter(polars.col("n") == 5).collect().height == 1
    assert list(table.existing().scan(row_filter="n > 5").plan_files()) == []


def test_unsupported_iceberg_types_and_missing_tables_are_named(warehouse: Warehouse, tmp_path: Path) -> None:
    table = warehouse.table(())
    with pytest.raises(ConfigurationError, match=r"'inner.span' has the type interval day to second, which Iceberg"):
        table.prepare(columns(inner=columns(span=types.DayTimeIntervalType())), evolve=False)
    with pytest.raises(ConfigurationError, match="there is no Iceberg table"):
        table.compact()
    with pytest.raises(ConfigurationError, match="has no namespace"):
        IcebergTable(lambda: None, "tides")
    with pytest.raises(ConfigurationError, match="`catalog`"):
        open_catalog("s3://bucket/warehouse")
    with pytest.raises(StoreError, match="cannot open the catalog"):
        IcebergTable(lambda: open_catalog("", name="nowhere"), "sea.tides").columns()


@pytest.mark.parametrize("name", ["", "sea"])
def test_a_catalog_in_a_database_is_closed_with_its_last_table(tmp_path: Path, name: str) -> None:
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"} if name else {}
    table = IcebergTable(lambda: open_catalog(str(tmp_path), name=name, options=options), "sea.tides")
    assert table.columns() is None
    engine = table._catalog.engine
    assert engine.pool.checkedin() == 1
    del table
    gc.collect()
    assert engine.pool.checkedin() == 0
