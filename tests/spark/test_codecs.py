from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType
from tests.support.ingesting import ingest, log

from mainstem.codecs import find_codec
from mainstem.errors import ConfigurationError
from mainstem.spark import decode, encode

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]

SCHEMA = {"type": "record", "name": "T", "fields": [
    {"name": "id", "type": "long"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "clock", "type": {"type": "long", "logicalType": "time-micros"}},
    {"name": "m", "type": {"type": "map", "values": "int"}},
    {"name": "fee", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
]}  # fmt: skip
ROWS = (
    "select {}L as id, timestamp'2026-01-31 12:00:00.123456' as at, "
    "3723000004L as clock, map('a', 1) as m, 1.25BD as fee"
)


def texts(df: DataFrame) -> list[str]:
    return sorted(map(str, df.collect()))


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    """Return options for Confluent's framing, with a directory of schemas."""
    (tmp_path / "7.avsc").write_text(json.dumps(SCHEMA))
    return {"framing": "confluent", "schemas": str(tmp_path), "schema": str(tmp_path / "7.avsc"), "id": "7"}


@pytest.mark.long
def test_rows_become_payloads_and_payloads_rows_in_batch_and_stream(
    spark: SparkSession, tmp_path: Path, options: dict[str, str]
) -> None:
    rows = spark.sql(f"{ROWS.format(1)} union all {ROWS.format(2)}")
    messages = encode(rows.selectExpr("*", "id * 10 as k"), "avro", columns=rows.columns, codec_options=options)
    assert messages.columns == ["k", "payload"]
    assert bytes(messages.first().payload)[:5] == b"\0\0\0\0\x07"
    bad = messages.union(spark.createDataFrame([(30, bytearray(b"\x01"))], "k int, payload binary"))
    table = decode(bad, "avro", codec_options=options)
    assert table.columns == ["k", "problem", "id", "at", "clock", "m", "fee", "rescued", "payload"]
    good = table.where("problem is null").select(rows.columns)
    assert texts(good) == texts(rows)
    assert [row.asDict() for row in table.where("problem is not null").select("k", "id", "payload").collect()] == [
        {"k": 30, "id": None, "payload": bytearray(b"\x01")}
    ]
    bad.write.parquet(str(tmp_path / "messages"))
    stream = spark.readStream.schema(bad.schema).parquet(str(tmp_path / "messages"))
    query = (
        decode(stream, "avro", codec_options=options)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "table"))
    )
    assert query.awaitTermination(200)
    assert texts(spark.read.parquet(str(tmp_path / "table")).where("problem is null").select(rows.columns)) == texts(
        rows
    )


def test_a_schema_is_inferred_or_given_and_an_invalid_one_is_refused(spark: SparkSession) -> None:
    df = spark.createDataFrame([('{"n": 1}',), ("{",), (None,)], "payload string")
    assert decode(df, "json").where("problem is null").select("n").collect() == [(1,)]
    reasons = {
        row.problem.partition(":")[0] for row in decode(df, "json", "n bigint").where("problem is not null").collect()
    }
    assert reasons == {"the message is not JSON", "there is no message"}
    with pytest.raises(ConfigurationError, match="no column 'body'"):
        decode(df, "json", payload="body")
    with pytest.raises(ConfigurationError, match="'n' has a reserved name"):
        decode(df.selectExpr("payload", "1 as n"), "json", "n int")
    with pytest.raises(ConfigurationError, match="and the columns of a stream are not inferred; pass them as schema="):
        decode(spark.readStream.format("rate").load().selectExpr("string(value) as payload"), "json")
    with pytest.raises(ConfigurationError, match="already a column 'payload'"):
        encode(df.selectExpr("payload", "1 as n"), "json", columns=["n"])
    with pytest.raises(Exception, match=r"row 0: .*CSV has no list"):
        encode(spark.sql("select array(1) as a"), "csv").collect()


@pytest.mark.long
def test_a_source_decodes_to_the_rows_of_decode_in_batch_stream_and_sql(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "recordings")
    log(
        tmp_path / "recordings", [b'{"id": 1, "at": "2026-01-31T12:00:00Z"}\n{"id": 2, "more": 5}', b'{"id": "x"}', b""]
    )
    columns = "id bigint not null, at timestamp, place struct<lat: double>"
    expected = decode(spark.read.format("mainstem.recording").load(path), "json", columns)
    declared = StructType.fromDDL(columns).json()
    options = {"codec": "json", "codecSchema": declared}
    decoded = spark.read.format("mainstem.recording").options(**options).load(path)
    assert decoded.columns == expected.columns
    assert texts(decoded) == texts(expected)
    narrow = (
        spark.read.format("mainstem.recording").option("codec", "json").schema("at timestamp, id bigint").load(path)
    )
    assert texts(narrow) == texts(expected.select("at", "id"))
    assert narrow.count() == 4
    query = (
        spark.readStream.format("mainstem.recording")
        .options(**options)
        .load(path)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    assert query.awaitTermination(200)
    assert texts(spark.read.parquet(str(tmp_path / "rows"))) == texts(expected)
    spark.sql(
        f"CREATE TABLE decoded USING mainstem.recording OPTIONS (path '{path}', codec 'json', codecSchema '{declared}')"
    )
    try:
        assert texts(spark.table("decoded")) == texts(expected)
        assert spark.sql("SELECT sum(id) FROM decoded WHERE problem IS NULL").collect() == [(3,)]
    finally:
        spark.sql("DROP TABLE decoded")


def test_ingest_reads_what_a_codec_reads(spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> None:
    (row,) = spark.sql(ROWS.format(5)).collect()
    codec = find_codec("avro", options)
    values = row.asDict() | {"at": row["at"].astimezone()}
    log(tmp_path / "recordings", [codec.encode(values), b"\0\0\0\0\x08x"])
    rows, count = ingest(spark, tmp_path, codec="avro", codec_options=options)
    assert (rows[0].id, rows[0].fee, rows[0].at, rows[0].clock) == (5, Decimal("1.25"), row["at"], row.clock)
    assert "has no schema 8.avsc" in rows[1].problem
    assert (count.rows, count.problems) == (2, 1)
