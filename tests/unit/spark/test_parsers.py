from __future__ import annotations

import json
import pickle
import struct
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from mainstem.errors import ConfigurationError
from mainstem.spark.ingest import META, Parsing
from mainstem.spark.parsers import find_parser, parser_names
from mainstem.spark.parsers.sbe_schema import SbeSchema

if TYPE_CHECKING:
    from pathlib import Path


def messages(payloads: list[bytes]) -> pa.RecordBatch:
    """As Spark hands them to a parser's task."""
    rows = len(payloads)
    columns: list[Any] = [
        pa.array([date(2026, 1, 1)] * rows),
        pa.array([1001] * rows, pa.int32()),
        pa.array([0] * rows, pa.int64()),
        pa.array([7] * rows, pa.int32()),
        pa.array(range(rows), pa.int64()),
        pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * rows, pa.timestamp("us", "UTC")),
        pa.array(payloads, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=[*META[:-1], "payload"])


def parsed(name: str, payloads: list[bytes], schema: pa.Schema | None = None, **options: str) -> list[dict[str, Any]]:
    parser = pickle.loads(pickle.dumps(find_parser(name, options)))
    (batch,) = Parsing(parser, schema or parser.schema(payloads))(iter([messages(payloads)]))
    return sorted(batch.to_pylist(), key=lambda row: row["position"])


def arrow(values: list[int]) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"n": pa.array(values, pa.int64()), "extra": values})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


BAD = b"\xff\x00 no message"
N = pa.schema([("n", pa.int64())])
CASES: dict[str, tuple[list[bytes], pa.Schema, dict[str, str]]] = {
    "json": ([json.dumps({"n": n, "t": f"x{n}"}).encode() for n in range(20)], N, {}),
    "csv": ([f"{n};x{n}".encode() for n in range(20)], N.append(pa.field("t", pa.string())), {"delimiter": ";"}),
    "msgpack": ([msgspec.msgpack.encode({"n": n}) for n in range(20)], N, {}),
    "arrow": ([arrow([n]) for n in range(20)], N, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_format_becomes_typed_columns_and_what_is_none_of_it_is_told(name: str) -> None:
    payloads, schema, options = CASES[name]
    rows = parsed(name, [*payloads[:10], BAD, *payloads[10:]], schema, **options)
    assert [row["n"] for row in rows] == [*range(10), None, *range(10, 20)]
    assert [row["problem"] is not None for row in rows].index(True) == 10
    assert {(row["stream_id"], row["session_id"]) for row in rows} == {(1001, 7)}


def test_a_message_gives_any_number_of_rows() -> None:
    rows = parsed("json", [b'{"n": 1}\n\n{"n": 2}', b"", b'{"n": 3}'], N)
    assert [(row["position"], row["n"]) for row in rows] == [(0, 1), (0, 2), (2, 3)]
    rows = parsed("arrow", [arrow([1, 2, 3]), arrow([])], N)
    assert [row["n"] for row in rows] == [1, 2, 3]


def test_a_value_that_does_not_fit_fails_its_own_message_only() -> None:
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    good = b'{"n": 1, "at": "2026-01-31T12:00:00Z"}'
    rows = parsed("json", [good, b'{"n": "one"}', b'{"at": "soon"}', good], schema)
    assert [row["n"] for row in rows] == [1, None, None, 1]
    assert rows[0]["at"] == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert rows[1]["problem"].startswith("n: ")
    assert rows[2]["problem"].startswith("at: ")


def test_columns_are_found_in_the_messages() -> None:
    assert find_parser("json", {}).schema([b'{"a": 1, "b": [1.5]}']) == pa.schema(
        [("a", pa.int64()), ("b", pa.list_(pa.float64()))]
    )
    csv = find_parser("csv", {"columns": "a, b"})
    assert csv.schema([b"1,x", b"2,y"]) == pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert find_parser("arrow", {}).schema([arrow([1])]).names == ["n", "extra"]
    with pytest.raises(ValueError, match="no message"):
        find_parser("json", {}).schema([])


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


def test_sbe_is_decoded_by_its_schema(tmp_path: Path) -> None:
    (tmp_path / "schema.xml").write_text(XML)
    other = struct.pack("<HHHHB", 1, 10, 1, 0, 5)
    payloads = [order(1, 100), order(2, None), other, order(3, 7)[:-3], struct.pack("<HHHH", 0, 77, 1, 0)]
    first, second, cut = parsed("sbe", payloads, xml=str(tmp_path / "schema.xml"), message="Order")
    assert (int(first["id"]), first["side"], first["symbol"], first["price"]) == (1, "SELL", "TIDE", 100)
    assert (first["flags"], first["fills"], first["note"]) == (["odd", "big"], [{"quantity": 1}], b"note 1")
    assert (second["price"], second["fills"], second["note"]) == (None, [{"quantity": 2}, {"quantity": 3}], b"note 2")
    assert "announces 6 bytes, and 3 are left" in cut["problem"]


@pytest.mark.parametrize("cut", range(0, 54, 3))
def test_a_cut_sbe_message_is_an_error_that_says_so(cut: int) -> None:
    whole = order(2, 5)
    assert len(whole) == 54
    with pytest.raises(ValueError, match=r"cut off|are left"):
        SbeSchema(XML).decode(whole[:cut])


def test_what_is_no_sbe_schema_is_refused() -> None:
    for xml, reason in (
        ("<a", "no XML"),
        ("<a/>", "root is 'a'"),
        (XML.replace('type="Side"', 'type="X"'), "no type 'X'"),
    ):
        with pytest.raises(ValueError, match=reason):
            SbeSchema(xml)


def test_a_parser_that_is_not_there_is_an_error_that_lists_those_that_are() -> None:
    assert {"json", "csv", "msgpack", "arrow", "sbe"} <= set(parser_names())
    with pytest.raises(ConfigurationError, match="no parser 'morse'; there are arrow"):
        find_parser("morse", {})
    with pytest.raises(ConfigurationError, match="no option 'colour'"):
        find_parser("json", {"colour": "blue"})
    with pytest.raises(ConfigurationError, match="the option xml"):
        find_parser("sbe", {})
