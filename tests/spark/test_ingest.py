from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from mainstem.errors import ConfigurationError
from mainstem.recording import Recorder
from mainstem.recording.deliveries import DeliveryLog
from mainstem.spark.ingest import Count, IngestOptions, start
from mainstem.spark.parsers import RowParser

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


class Words(RowParser):
    """A parser of somebody else's."""

    def rows(self, payload: bytes) -> Any:
        return ({"word": word} for word in payload.decode().split())


def log(path: Path, payloads: list[bytes], stream_id: int = 1001) -> None:
    with Recorder(path) as recorder:
        DeliveryLog(recorder, stream_id=stream_id).write((0, payload) for payload in payloads)


def ingest(spark: SparkSession, tmp_path: Path, **options: Any) -> tuple[list[Any], Count]:
    given = IngestOptions(source=str(tmp_path / "recordings"), out=tmp_path / "table", **options)
    query, count = start(spark, given), Count()
    assert query.awaitTermination(200)
    count.look(query)
    rows = spark.read.parquet(str(tmp_path / "table")).orderBy("stream_id", "position").collect()
    return rows, count


def arrow(values: list[int]) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"n": pa.array(values, pa.int64()), "extra": values})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


BAD = b"\xff\x00 no message"
CASES: dict[str, tuple[list[bytes], dict[str, Any]]] = {
    "json": ([json.dumps({"n": n, "t": f"x{n}"}).encode() for n in range(20)], {"schema": "n bigint"}),
    "csv": ([f"{n};x{n}".encode() for n in range(20)], {"parser_options": {"delimiter": ";"}, "schema": "n bigint, t string"}),
    "msgpack": ([msgspec.msgpack.encode({"n": n}) for n in range(20)], {"schema": "n bigint"}),
    "arrow": ([arrow([n]) for n in range(20)], {"schema": "n bigint"}),
}  # fmt: skip


@pytest.mark.parametrize("parser", CASES)
def test_every_format_becomes_typed_columns_and_what_is_none_of_it_is_told(
    spark: SparkSession, tmp_path: Path, parser: str
) -> None:
    payloads, options = CASES[parser]
    log(tmp_path / "recordings", [*payloads[:10], BAD, *payloads[10:]])
    rows, count = ingest(spark, tmp_path, parser=parser, **options)
    assert [row.n for row in rows] == [*range(10), None, *range(10, 20)]
    assert [bool(row.problem) for row in rows].index(True) == 10
    assert (count.messages, count.rows, count.problems) == (21, 21, 1)
    assert {path.name.partition("=")[0] for path in (tmp_path / "table").glob("date=*/*")} == {"stream_id"}


def test_a_schema_is_found_lines_become_rows_and_a_second_run_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "recordings"
    log(path, [b'{"a": 1, "b": {"c": "x"}}\n{"a": 2}', b'{"a": "text"}'])
    rows, count = ingest(spark, tmp_path, parser="json", schema="a bigint, b struct<c: string>")
    assert [(row.a, row.problem is None) for row in rows] == [(1, True), (2, True), (None, False)]
    assert rows[0].b.c == "x"
    assert "a: " in rows[2].problem
    log(path, [b'{"a": 3}'])
    log(path, [b'{"a": 4}'], stream_id=7)
    rows, count = ingest(spark, tmp_path, parser="json", schema="a bigint, b struct<c: string>")
    assert [row.a for row in rows] == [4, 1, 2, None, 3]
    assert count.messages == 2


def test_without_a_parser_the_payload_is_kept_and_one_of_the_user_s_own_is_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    log(tmp_path / "recordings", [b"ebb and", b"flow"])
    rows, _ = ingest(spark, tmp_path)
    assert [bytes(row.payload) for row in rows] == [b"ebb and", b"flow"]
    other = IngestOptions(
        source=str(tmp_path / "recordings"), out=tmp_path / "words", parser="tests.spark.test_ingest:Words"
    )
    assert start(spark, other).awaitTermination(200)
    words = spark.read.parquet(str(tmp_path / "words")).collect()
    assert sorted(row.word for row in words) == ["and", "ebb", "flow"]


XML = """<sbe:messageSchema xmlns:sbe="http://fixprotocol.io/2016/sbe" package="t" id="1" version="0" byteOrder="littleEndian">
<types>
  <composite name="messageHeader"><type name="blockLength" primitiveType="uint16"/><type name="templateId" primitiveType="uint16"/>
    <type name="schemaId" primitiveType="uint16"/><type name="version" primitiveType="uint16"/></composite>
  <composite name="groupSizeEncoding"><type name="blockLength" primitiveType="uint16"/>
    <type name="numInGroup" primitiveType="uint16"/></composite>
  <composite name="text"><type name="length" primitiveType="uint32"/>
    <type name="varData" primitiveType="uint8" length="0"/></composite>
  <enum name="Side" encodingType="char"><validValue name="BUY">B</validValue><validValue name="SELL">S</validValue></enum>
  <set name="Flags" encodingType="uint8"><choice name="odd">0</choice><choice name="big">3</choice></set>
  <type name="Symbol" primitiveType="char" length="6"/>
  <type name="Price" primitiveType="int64" presence="optional"/>
</types>
<sbe:message name="Order" id="9"><field name="id" id="1" type="uint64"/><field name="side" id="2" type="Side"/>
  <field name="symbol" id="3" type="Symbol"/><field name="price" id="4" type="Price"/><field name="flags" id="5" type="Flags"/>
  <group name="fills" id="6" dimensionType="groupSizeEncoding"><field name="quantity" id="7" type="uint32"/></group>
  <data name="note" id="8" type="text"/></sbe:message>
<sbe:message name="Other" id="10"><field name="id" id="1" type="uint8"/></sbe:message>
</sbe:messageSchema>"""


def order(number: int, price: int | None) -> bytes:
    fills = b"".join(struct.pack("<I", number + i) for i in range(number))
    fixed = struct.pack("<Qc6sqB", number, b"BS"[number % 2 :][:1], b"TIDE", -(1 << 63) if price is None else price, 9)
    note = f"note {number}".encode()
    head = struct.pack("<HHHH", len(fixed), 9, 1, 0)
    return head + fixed + struct.pack("<HH", 4, number) + fills + struct.pack("<I", len(note)) + note


def test_sbe_is_decoded_by_its_schema(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "schema.xml").write_text(XML)
    other = struct.pack("<HHHHB", 1, 10, 1, 0, 5)
    log(tmp_path / "recordings", [order(1, 100), order(2, None), other, order(3, 7)[:-3]])
    options = {"xml": str(tmp_path / "schema.xml"), "message": "Order"}
    rows, count = ingest(spark, tmp_path, parser="sbe", parser_options=options)
    first, second, cut = rows
    assert (int(first.id), first.side, first.symbol, first.price) == (1, "SELL", "TIDE", 100)
    assert (first.flags, [fill.quantity for fill in first.fills], bytes(first.note)) == (["odd", "big"], [1], b"note 1")
    assert (second.price, [fill.quantity for fill in second.fills], bytes(second.note)) == (None, [2, 3], b"note 2")
    assert "bytes, and" in cut.problem
    assert (count.messages, count.rows, count.problems) == (4, 3, 1)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"parser": "morse"}, "there is no parser 'morse'"),
        ({"parser": "json"}, "--schema says"),
        ({"parser": "sbe"}, "the option xml"),
        ({"parser": "json", "schema": "position bigint"}, "the name of one of ours"),
        ({"schema": "a int"}, "--parser says"),
        ({"source": "aeron:ipc"}, "--stream"),
    ],
)
def test_a_wrong_option_is_named(spark: SparkSession, tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    Recorder(tmp_path / "recordings").close()
    with pytest.raises(ConfigurationError, match=reason):
        start(spark, IngestOptions(**{"source": str(tmp_path / "recordings"), "out": tmp_path / "t", **options}))
