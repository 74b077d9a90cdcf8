"""Delta tables without a JVM: other readers read what the tasks write and the driver commits."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mainstem.errors import ConfigurationError, StoreError

deltalake = pytest.importorskip("deltalake")
duckdb = pytest.importorskip("duckdb")
polars = pytest.importorskip("polars")
types = pytest.importorskip("pyspark.sql.types")
from_arrow_schema = pytest.importorskip("pyspark.sql.pandas.types").from_arrow_schema

from tests.support.table_batches import OTHER, QUERY, SIMPLE, batch, columns, files  # noqa: E402

from mainstem.spark.formats import data_files  # noqa: E402
from mainstem.spark.formats.data_files import WriteFiles  # noqa: E402
from mainstem.spark.formats.delta import DeltaTable  # noqa: E402

TIDE = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)


def rows(path: Path) -> list[dict[str, Any]]:
    return sorted(deltalake.DeltaTable(path).to_pyarrow_table().to_pylist(), key=repr)


def numbers(path: Path) -> list[int]:
    return sorted(row["n"] for row in rows(path))


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    made = DeltaTable(str(tmp_path / "table"), partition_by=["place"])
    made.prepare(SIMPLE, evolve=False)
    return made


def test_values_of_every_type_round_trip_through_duckdb_polars_and_deltalake(tmp_path: Path) -> None:
    kinds = columns(
        date=types.DateType(),
        flag=types.BooleanType(),
        byte=types.ByteType(),
        short=types.ShortType(),
        price=types.DecimalType(20, 4),
        ratio=types.DoubleType(),
        raw=types.BinaryType(),
        at=types.TimestampType(),
        local=types.TimestampNTZType(),
        inner=columns(a=types.LongType(), tags=types.ArrayType(types.StringType())),
        counts=types.MapType(types.StringType(), types.LongType()),
    )
    table = DeltaTable(str(tmp_path / "table"), partition_by=["date"])
    table.prepare(kinds, evolve=False)
    value = {
        "date": date(2026, 1, 31),
        "flag": True,
        "byte": -1,
        "short": 300,
        "price": Decimal("1234567890123456.7891"),
        "ratio": 0.5,
        "raw": b"\x00\xff",
        "at": TIDE,
        "local": TIDE.replace(tzinfo=None),
        "inner": {"a": 1 << 62, "tags": ["x", None]},
        "counts": [("k", 2)],
    }
    empty = dict.fromkeys(value)
    # Spark passes batches to a task in the session's time zone.
    schema = pa.schema(deltalake.Schema.from_json(kinds.json()).to_arrow())
    schema = schema.set(schema.get_field_index("at"), pa.field("at", pa.timestamp("us", "Europe/Paris")))
    table.commit(QUERY, 0, files(table, 0, [pa.RecordBatch.from_pylist([value, empty], schema)]))
    delta = deltalake.DeltaTable(tmp_path / "table")
    lake = delta.to_pyarrow_dataset()
    assert sorted(lake.to_table().to_pylist(), key=repr) == sorted([value, empty], key=repr)
    read = duckdb.sql('select "date", price, "at" at time zone \'UTC\', "inner".a, raw from lake where flag').fetchall()
    assert read == [(value["date"], value["price"], value["local"], 1 << 62, b"\x00\xff")]
    frame = polars.scan_delta(str(tmp_path / "table")).filter(polars.col("flag")).collect()
    assert (frame["price"][0], frame["at"][0], frame["inner"][0]["a"]) == (value["price"], TIDE, 1 << 62)


@pytest.mark.parametrize("place", ["Brest", "a/b", "x=1", "100 % sûr?", "..", "", None])
def test_every_text_is_a_valid_partition_and_empty_text_is_the_null_one(
    table: DeltaTable, tmp_path: Path, place: str | None
) -> None:
    table.commit(QUERY, 0, files(table, 0, [batch([1, 2], place)]))
    assert [row["place"] for row in rows(tmp_path / "table")] == [place or None] * 2
    assert polars.scan_delta(str(tmp_path / "table")).collect()["place"].to_list() == [place or None] * 2


def test_a_micro_batch_that_is_repeated_is_committed_once(table: DeltaTable, tmp_path: Path) -> None:
    assert table.committed(QUERY) == -1
    assert table.commit(QUERY, 0, files(table, 0, [batch([1])]))
    # As after a commit that Spark did not record.
    assert table.committed(QUERY) == 0
    assert not table.commit(QUERY, 0, files(table, 0, [batch([1])]))
    # Data files of an attempt that failed before its commit.
    files(table, 1, [batch([2])])
    assert table.commit(QUERY, 1, files(table, 1, [batch([2])]))
    assert table.commit(OTHER, 0, files(table, 0, [batch([3])], query=OTHER))
    assert numbers(tmp_path / "table") == [1, 2, 3]
    assert table.committed(QUERY) == 1


def test_a_micro_batch_reads_the_log_once(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    load = deltalake.DeltaTable

    def counted(url: str, **options: Any) -> Any:
        loaded.append(url)
        return load(url, **options)

    monkeypatch.setattr(deltalake, "DeltaTable", counted)
    for batch_id in range(3):
        assert table.committed(QUERY) == batch_id - 1
        table.prepare(SIMPLE, evolve=False)
        assert table.commit(QUERY, batch_id, files(table, batch_id, [batch([batch_id])]))
        assert len(loaded) == batch_id + 1


def test_an_empty_micro_batch_is_committed_too(table: DeltaTable) -> None:
    assert files(table, 0, [batch([])]) == []
    assert table.commit(QUERY, 0, [])
    assert table.committed(QUERY) == 0


def test_of_two_drivers_of_one_query_one_commits(table: DeltaTable, tmp_path: Path) -> None:
    other = DeltaTable(str(tmp_path / "table"))
    assert table.committed(QUERY) == other.committed(QUERY) == -1
    mine, theirs = files(table, 0, [batch([1])]), files(other, 0, [batch([1])])
    # This runs between this driver's read of the table and its commit.
    assert other.commit(QUERY, 0, theirs)
    assert not table.commit(QUERY, 0, mine)
    assert numbers(tmp_path / "table") == [1]


def test_commits_of_another_query_and_a_compaction_in_between_disturb_nothing(
    table: DeltaTable, tmp_path: Path, monkeypatch: Any
) -> None:
    for number in range(4):
        table.commit(QUERY, number, files(table, number, [batch([number])]))
    load = DeltaTable._load

    def raced(self: DeltaTable) -> Any:
        read = load(self)
        monkeypatch.setattr(DeltaTable, "_load", load)
        other = DeltaTable(str(tmp_path / "table"))
        assert other.commit(OTHER, 0, files(other, 0, [batch([100])], query=OTHER))
        assert other.compact().replaced == 5
        return read

    monkeypatch.setattr(DeltaTable, "_load", raced)
    assert table.commit(QUERY, 4, files(table, 4, [batch([4])]))
    assert numbers(tmp_path / "table") == [0, 1, 2, 3, 4, 100]


def test_exactly_once_survives_compaction_and_unreferenced_files_are_deleted(table: DeltaTable, tmp_path: Path) -> None:
    checkpoint = tmp_path / "table" / "_checkpoint" / "commits" / "0"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_text("v1")
    files(table, 0, [batch([7])])
    for number in range(6):
        table.commit(QUERY, number, files(table, number, [batch([number])]))
    kept = table.compact(keep_s=7200)
    assert (kept.replaced, kept.deleted) == (6, 0)
    assert len(list((tmp_path / "table").glob("place=*/*.parquet"))) == 8
    result = table.compact(keep_s=0)
    assert (kept.by, result.replaced, result.deleted) == (1, 0, 7)
    assert len(list((tmp_path / "table").glob("place=*/*.parquet"))) == 1
    assert checkpoint.exists()
    assert not table.commit(QUERY, 5, files(table, 5, [batch([5])]))
    assert numbers(tmp_path / "table") == list(range(6))


def test_a_task_writes_files_of_the_target_size_and_few_at_once(
    table: DeltaTable, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(data_files, "MAX_OPEN", 2)
    monkeypatch.setattr(data_files, "GATHERED_BYTES", 100_000)
    batches = [batch(list(range(i * 5000, i * 5000 + 5000)), f"place {i % 3}") for i in range(30)]
    table.commit(QUERY, 0, files(table, 0, batches, 20_000))
    sizes = [
        each["size_bytes"]
        for each in deltalake.DeltaTable(tmp_path / "table").get_add_actions(flatten=True).to_struct_array().to_pylist()
    ]
    assert len(sizes) > 5
    assert max(sizes) < 60_000
    assert numbers(tmp_path / "table") == list(range(150_000))


def test_a_task_that_fails_leaves_no_file(table: DeltaTable, tmp_path: Path) -> None:
    def failing() -> Any:
        yield batch([1])
        raise RuntimeError("the source")

    with pytest.raises(RuntimeError, match="the source"):
        list(WriteFiles(table.files(QUERY, 0), 1 << 20)(failing()))
    assert list((tmp_path / "table").rglob("*.parquet")) == []


def test_columns_are_added_only_on_request(table: DeltaTable, tmp_path: Path) -> None:
    table.commit(QUERY, 0, files(table, 0, [batch([1])]))
    wider = columns(n=types.LongType(), place=types.StringType(), inner=columns(a=types.LongType()))
    with pytest.raises(ConfigurationError, match="inner struct<a:bigint> is only here"):
        table.prepare(wider, evolve=False)
    table.prepare(wider, evolve=True)
    rows_ = pa.RecordBatch.from_pylist([{"n": 2, "place": None, "inner": {"a": 5}}])
    table.commit(QUERY, 1, files(table, 1, [rows_]))
    deeper = columns(inner=columns(b=types.StringType()))
    table.prepare(deeper, evolve=True)
    # A writer that does not know of the change yet continues with its own columns.
    table.commit(QUERY, 2, files(table, 2, [batch([3])]))
    assert [row["inner"] for row in rows(tmp_path / "table")] == [None, {"a": 5, "b": None}, None]
    with pytest.raises(ConfigurationError, match="n is bigint in the table and string here"):
        table.prepare(columns(n=types.StringType()), evolve=True)
    assert [field.name for field in table.columns().fields] == ["n", "place", "inner"]


def stated(path: Path) -> list[dict[str, Any]]:
    """Return the statistics of each file in the log, decoded from JSON."""
    commits = sorted((path / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for file in commits for line in file.read_text().splitlines()]
    return [json.loads(each["add"]["stats"]) for each in actions if "add" in each]


def test_deltalake_and_duckdb_find_booleans_and_long_texts(tmp_path: Path) -> None:
    table = DeltaTable(str(tmp_path / "table"))
    table.prepare(columns(n=types.LongType(), ok=types.BooleanType(), body=types.StringType()), evolve=False)
    messages = [{"n": n, "ok": n % 2 == 0, "body": chr(97 + n) * 200} for n in range(20)]
    table.commit(QUERY, 0, files(table, 0, [pa.RecordBatch.from_pylist(messages)]))
    for _ in range(2):
        with duckdb.connect() as connection:
            connection.register("lake", deltalake.DeltaTable(tmp_path / "table").to_pyarrow_dataset())
            queries = (
                f"select count(*) from lake where {each}"
                for each in ("ok = true", "body >= 'a'", "body > 'k'", "n < 5")
            )
            assert [connection.sql(query).fetchall()[0][0] for query in queries] == [10, 20, 10, 5]
        table.compact()


def test_files_that_cannot_match_are_skipped(tmp_path: Path) -> None:
    kinds = columns(
        n=types.LongType(), at=types.TimestampType(), text=types.StringType(), price=types.DecimalType(9, 5)
    )
    table = DeltaTable(str(tmp_path / "table"))
    table.prepare(kinds, evolve=False)
    value = {"n": None, "at": TIDE, "text": "x" * 100, "price": Decimal("0.00001")}
    table.commit(QUERY, 0, files(table, 0, [pa.RecordBatch.from_pylist([value, {**value, "n": 5}])]))
    (statistics,) = stated(tmp_path / "table")
    assert statistics["minValues"] == {"n": 5, "at": "2026-01-31T12:00:00.123Z", "text": "x" * 32, "price": 0.00001}
    assert statistics["maxValues"] == {
        **statistics["minValues"],
        "at": "2026-01-31T12:00:00.124Z",
        "text": "x" * 31 + "y",
    }
    assert (statistics["numRecords"], statistics["nullCount"]["n"]) == (2, 1)
    frame = polars.scan_delta(str(tmp_path / "table"))
    assert frame.filter(polars.col("at") >= TIDE).collect().height == 2
    assert frame.filter(polars.col("n") > 5).collect().height == 0
    (file,) = deltalake.DeltaTable(tmp_path / "table").file_uris()
    Path(file).unlink()
    # The files are not even opened, because Polars reads statistics too.
    assert frame.filter(polars.col("n") > 5).collect().height == 0


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.date32(), 2_932_897),  # after the year 9999
        (pa.timestamp("us", "UTC"), -(1 << 63)),
        (pa.string(), "\U0010ffff" * 40),
    ],
    ids=["date", "timestamp", "text"],
)
def test_a_file_with_a_value_that_has_no_bound_states_none(tmp_path: Path, kind: pa.DataType, value: Any) -> None:
    table = DeltaTable(str(tmp_path / "table"))
    schema = pa.schema({"n": pa.int64(), "odd": kind})
    table.prepare(from_arrow_schema(schema), evolve=False)
    odd = pa.array([value], kind if kind == pa.string() else pa.int32() if kind == pa.date32() else pa.int64()).cast(
        kind
    )
    batch_ = pa.RecordBatch.from_arrays([pa.array([1]), odd], schema=schema)
    table.commit(QUERY, 0, files(table, 0, [batch_]))
    assert stated(tmp_path / "table") == [{"numRecords": 1, "nullCount": {"n": 0, "odd": 0}}]
    lake = deltalake.DeltaTable(tmp_path / "table").to_pyarrow_dataset()
    assert lake.count_rows(filter=pc.field("n") == 1) == lake.count_rows(filter=pc.field("odd") == odd[0]) == 1


def test_a_compaction_makes_a_table_readable_whose_files_lack_bounds(table: DeltaTable, tmp_path: Path) -> None:
    path = str(tmp_path / "older")
    schema = deltalake.Schema.from_json(columns(n=types.LongType(), ok=types.BooleanType()).json())
    deltalake.DeltaTable.create(path, schema)
    older = DeltaTable(path)
    rows_ = pa.RecordBatch.from_pydict({"n": [1, 2], "ok": [True, False]})
    (add,) = (json.loads(each) for each in files(older, 0, [rows_]))
    # If a table does not specify which columns have bounds, its files get none.
    assert json.loads(add["stats"]) == {"numRecords": 2, "nullCount": {}}
    lacking = {"numRecords": 2, "minValues": {"n": 1}, "maxValues": {"n": 2}, "nullCount": {"n": 0, "ok": 0}}
    older.commit(QUERY, 0, [json.dumps({**add, "stats": json.dumps(lacking)}).encode()])
    older.commit(QUERY, 1, files(older, 1, [rows_]))

    def found() -> list[int]:
        lake = deltalake.DeltaTable(path).to_pyarrow_dataset()
        return [lake.count_rows(filter=each) for each in (pc.field("ok") == pa.scalar(True), pc.field("n") >= 1)]

    assert found() == [1, 4]
    older.compact()
    assert found() == [2, 4]
    older.commit(QUERY, 2, files(older, 2, [rows_]))
    assert found() == [3, 6]
    assert stated(tmp_path / "older")[-1]["minValues"] == {"n": 1}


@pytest.mark.parametrize("name", ["a.b", "a`b", "a b", "é", "a,b", 'a"b', "$"])
def test_any_name_of_a_column_or_a_partition_is_kept(tmp_path: Path, name: str) -> None:
    for number, partition_by in enumerate(([], [name])):
        path = tmp_path / str(number)
        table = DeltaTable(str(path), partition_by=partition_by)
        table.prepare(columns(**{name: types.LongType(), "n": types.LongType()}), evolve=False)
        table.commit(QUERY, 0, files(table, 0, [pa.RecordBatch.from_pydict({name: [1, 2], "n": [3, 4]})]))
        lake = deltalake.DeltaTable(path).to_pyarrow_dataset()
        assert lake.count_rows(filter=pc.field(name) == 2) == 1
        frame = polars.scan_delta(str(path)).filter(polars.col(name) == 2).collect()
        assert frame.select(name, "n").rows() == [(2, 4)]


def test_unsupported_delta_types_and_missing_tables_are_named(tmp_path: Path) -> None:
    table = DeltaTable(str(tmp_path / "table"))
    with pytest.raises(ConfigurationError, match=r"'inner.span' has the type interval day to second"):
        table.prepare(columns(inner=columns(span=types.DayTimeIntervalType())), evolve=False)
    with pytest.raises(ConfigurationError, match="there is no Delta table"):
        table.compact()
    with pytest.raises(ConfigurationError, match="a directory has no options"):
        DeltaTable(str(tmp_path), {"region": "x"})
    with pytest.raises(ConfigurationError, match="no store for ftp"):
        DeltaTable("ftp://x/y")
    (tmp_path / "file").write_text("")
    with pytest.raises((StoreError, OSError)):
        DeltaTable(str(tmp_path / "file")).prepare(SIMPLE, evolve=False)


def test_a_directory_that_cannot_be_created_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StoreError):
        DeltaTable(str(tmp_path / "file" / "table")).prepare(SIMPLE, evolve=False)
