from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from tests.support.ingesting import ingest, log
from tests.support.live_driver import wait_for
from tests.support.sbe_orders import XML, order
from tests.support.waiting import STALL_S

from mainstem import Aeron, MediaDriver
from mainstem.codecs import RowCodec
from mainstem.errors import ConfigurationError
from mainstem.recording import Recorder, open_recordings
from mainstem.recording.index import index_file
from mainstem.spark.ingest.options import IngestOptions
from mainstem.spark.ingest.query import Count, start

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Words(RowCodec):
    """A user's own codec."""

    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        return [{"word": word} for word in payload.decode().split()]


def test_lines_become_typed_rows_or_problems_and_a_second_run_continues(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "recordings"
    log(path, [b'{"a": 1, "b": {"c": "x"}}\n{"a": 2}', b'{"a": "text"}'])
    rows, count = ingest(spark, tmp_path, codec="json", schema="a bigint, b struct<c: string>")
    assert [(row.a, row.problem is None) for row in rows] == [(1, True), (2, True), (None, False)]
    assert rows[0].b.c == "x"
    assert "a: " in rows[2].problem
    assert (count.messages, count.rows, count.problems) == (2, 3, 1)
    assert {path.name.partition("=")[0] for path in (tmp_path / "table").glob("date=*/*")} == {"stream_id"}
    log(path, [b'{"a": 3}'])
    log(path, [b'{"a": 4}'], stream_id=7)
    rows, count = ingest(spark, tmp_path, codec="json", schema="a bigint, b struct<c: string>")
    assert [row.a for row in rows] == [4, 1, 2, None, 3]
    assert count.messages == 2


def test_every_message_is_in_the_table_and_no_value_is_changed(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "recordings"
    log(path, [b'{"price": 2}', b'{"price": 2.99}', b"", b'{"price": 3, "venue": "x"}', b"no JSON"])
    rows, count = ingest(spark, tmp_path, codec="json", schema="price bigint")
    assert [row.price for row in rows] == [2, None, None, 3, None]
    assert [row.payload and bytes(row.payload) for row in rows] == [None, b'{"price": 2.99}', b"", None, b"no JSON"]
    assert rows[1].problem == "price: 2.99 is not of type int64"
    assert [row.rescued for row in rows] == [None, None, None, '{"venue":"x"}', None]
    assert (count.messages, count.rows, count.problems, count.rescued) == (5, 5, 3, 1)


@pytest.mark.long
def test_a_schema_is_inferred_from_all_recordings_and_stays(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "recordings"
    log(path, [b'{"price": 2}'] * 1600 + [b'{"price": 2.5}'] + [b'{"price": 2}'] * 400)
    log(path, [b'{"price": 2, "venue": "x"}'], stream_id=7)
    rows, count = ingest(spark, tmp_path, codec="json")
    assert (rows[0].price, rows[0].venue, max(row.price for row in rows)) == (2.0, "x", 2.5)
    assert (len(rows), count.problems) == (2002, 0)
    log(path, [b'{"price": "dear", "venue": 7}'])
    rows, _ = ingest(spark, tmp_path, codec="json")
    assert rows[-1].problem.startswith("venue: ") or rows[-1].problem.startswith("price: ")
    with pytest.raises(
        ConfigurationError, match=r"double in the table and bigint here, venue string is only in the table"
    ):
        ingest(spark, tmp_path, codec="json", schema="price bigint")


@pytest.mark.long
def test_a_recording_without_times_is_partitioned_by_publisher_times_or_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "recordings"
    log(path, [b'{"at": "2026-01-31T12:00:00Z"}', b'{"at": "2026-02-01T12:00:00Z"}', b"no JSON"])
    index_file(path, 0).unlink()
    options = {"codec": "json", "schema": "at timestamp"}
    with pytest.raises(ConfigurationError, match="it has no index and so no times"):
        ingest(spark, tmp_path, **options)
    with pytest.raises(ConfigurationError, match="no time field 'since'"):
        ingest(spark, tmp_path, timestamp_from="since", **options)
    rows, _ = ingest(spark, tmp_path, timestamp_from="at", **options)
    assert [row.date and row.date.isoformat() for row in rows] == ["2026-01-31", "2026-02-01", None]
    assert [row.recorded_at for row in rows] == [None] * 3


@pytest.mark.long
def test_without_a_codec_the_payload_is_kept_and_custom_codecs_are_found(spark: SparkSession, tmp_path: Path) -> None:
    log(tmp_path / "recordings", [b"ebb and", b"flow"])
    rows, _ = ingest(spark, tmp_path)
    assert [bytes(row.payload) for row in rows] == [b"ebb and", b"flow"]
    other = IngestOptions(
        source=str(tmp_path / "recordings"), out=tmp_path / "words", codec="tests.spark.test_ingest:Words"
    )
    assert start(spark, other).awaitTermination(200)
    words = spark.read.parquet(str(tmp_path / "words")).collect()
    assert sorted(row.word for row in words) == ["and", "ebb", "flow"]


@pytest.mark.long
def test_sbe_columns_come_from_its_schema(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "schema.xml").write_text(XML)
    log(tmp_path / "recordings", [order(1, 100), order(2, None), order(1, 5)[:-3]])
    options = {"xml": str(tmp_path / "schema.xml"), "message": "Order"}
    rows, count = ingest(spark, tmp_path, codec="sbe", codec_options=options)
    assert [(row.side, row.price, len(row.fills)) for row in rows[:2]] == [("SELL", 100, 1), ("BUY", None, 2)]
    assert rows[0].symbol == "TIDE"
    assert rows[2].problem is not None
    assert (count.messages, count.problems) == (3, 1)


def arrow_stream(rows: list[dict[str, Any]]) -> bytes:
    table = pa.Table.from_pylist(rows)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return bytes(out.getvalue())


@pytest.mark.parametrize(
    ("codec", "payloads"),
    [
        ("csv", [b"1,sprat\n2,herring", b"three,cod"]),
        ("msgpack", [msgspec.msgpack.encode({"id": 1, "fish": "sprat"}),
                     msgspec.msgpack.encode({"id": 2, "fish": "herring"}), b"\xc1"]),
        ("arrow", [arrow_stream([{"id": 1, "fish": "sprat"}, {"id": 2, "fish": "herring"}]), b"cod"]),
    ],
)  # fmt: skip
def test_each_codec_makes_typed_rows_and_reports_problems(
    spark: SparkSession, tmp_path: Path, codec: str, payloads: list[bytes]
) -> None:
    log(tmp_path / "recordings", payloads)
    columns = {"columns": "id,fish"} if codec == "csv" else {}
    rows, count = ingest(spark, tmp_path, codec=codec, schema="id bigint, fish string", codec_options=columns)
    assert [(row.id, row.fish) for row in rows[:2]] == [(1, "sprat"), (2, "herring")]
    assert rows[2].problem is not None
    assert (count.messages, count.rows, count.problems) == (len(payloads), 3, 1)


@pytest.mark.long
def test_a_live_channel_is_recorded_and_ingested_while_it_is_published(spark: SparkSession, tmp_path: Path) -> None:
    with MediaDriver.launch() as driver, Aeron.connect(driver.directory) as aeron:
        options = IngestOptions(
            source="aeron:ipc?term-length=1m",
            out=tmp_path / "table",
            streams=(1001,),
            record_to=str(tmp_path / "recordings"),
            driver_directory=driver.directory,
            codec="json",
            schema="n bigint",
            follow=True,
            trigger_interval=0.0,
        )
        query = start(spark, options)
        try:
            with aeron.add_publication("aeron:ipc?term-length=1m", 1001) as publication:
                wait_for(lambda: publication.is_connected)
                for number in range(500):
                    publication.send(b'{"n": %d}' % number, timeout=STALL_S)
                count = Count()

                def arrived() -> bool:
                    count.update(query)
                    assert query.isActive
                    return count.rows == 500

                wait_for(arrived)
        finally:
            query.stop()
    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted(row.n for row in rows) == list(range(500))
    (recording,) = open_recordings(tmp_path / "recordings")
    with recording:
        assert max(row.position for row in rows) == recording.end_position()


@pytest.mark.long
def test_continuous_ingest_runs_until_the_query_is_stopped(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "recordings"
    log(path, [b"one"])
    given = IngestOptions(source=str(path), out=tmp_path / "table", follow=True, trigger_interval=0.0)
    query = start(spark, given)
    try:
        for text in (b"two", b"three"):
            log(path, [text], stream_id=len(text))
            query.processAllAvailable()
            assert query.isActive
    finally:
        query.stop()
    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted(bytes(row.payload) for row in rows) == [b"one", b"three", b"two"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"codec": "morse"}, "unknown codec 'morse'"),
        ({"codec": "json"}, "pass the columns as `schema`"),
        ({"codec": "sbe"}, "the option xml"),
        ({"codec": "json", "schema": "position bigint"}, "a reserved name"),
        ({"schema": "a int"}, "`schema` lists the columns of `codec`"),
        ({"source": "aeron:ipc"}, "`streams` is required"),
    ],
)
def test_a_wrong_option_is_named(spark: SparkSession, tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    Recorder(tmp_path / "recordings").close()
    with pytest.raises(ConfigurationError, match=reason):
        start(spark, IngestOptions(**{"source": str(tmp_path / "recordings"), "out": tmp_path / "t", **options}))
